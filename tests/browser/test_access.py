"""For everybody: contrast, names and roles by axe's WCAG rules, and the keyboard alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from server.conftest import Served

from .pages import Look, at_rest, ready

AXE = Path(__file__).parents[2] / "viewer" / "node_modules" / "axe-core" / "axe.min.js"
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]

SCREENS = {
    "read": ("", "article.card"),
    "outline": ("outline=yes", ".outline .line"),
    "raw": ("view=raw", ".tok"),
    "tokens": ("view=tokens&stream=logprob", ".strip .head b"),
    "table": ("s=table", "[role=option]"),
    "group": ("s=group", "article"),
    "compare": ("s=compare&ids={one},{other}", ".turn"),
    "tasks": ("s=tasks", "table, [role=row], .page"),
    "matrix": ("s=matrix", "a.cell"),
    "task": ("s=task&task={task}", ".cell"),
    "fate": ("s=fate", ".stage"),
    "failures": ("s=failures", ".kind"),
    "findings": ("s=findings", "td.found"),
    "spans": ("s=spans", ".lane"),
    "error": ("q=stpe:3", ".cm-content .wrong"),
    "search": ("q=carry", "article.card"),
    "keys": ("", "article.card"),
    "label": ("", "article.card"),
}


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed: make viewer")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_screen_keeps_the_rules_of_wcag(demo_site: Served, look: Look, dark: bool) -> None:
    start = demo_site.get("start")["id"]
    task = demo_site.get(f"rollouts/{start}/neighbours")["siblings"][0]["task"]
    other = demo_site.get("rollouts", q=f'-task:"{task}"', limit=1)["rows"][0]["id"]
    known = {"one": start, "other": other, "task": task}
    # Our policy lets no foreign script in: here it is lifted for the one that judges.
    page = look("about:blank", dark=dark, bypass_csp=True)
    page.add_init_script(path=AXE)
    wrong = []
    for name, (state, there) in SCREENS.items():
        page.goto(f"{demo_site.url}/?{state.format(**known)}")
        expect(page.locator(there).first).to_be_visible()
        if name in ("keys", "label"):
            page.keyboard.press("?" if name == "keys" else "l")
            expect(page.get_by_role("dialog")).to_be_visible()
        at_rest(page)
        rules = {"runOnly": {"type": "tag", "values": LEVELS}, "resultTypes": ["violations"]}
        found = page.evaluate("rules => axe.run(document, rules)", rules)
        wrong += [
            (name, rule["id"], node["html"][:120], node["failureSummary"])
            for rule in found["violations"]
            for node in rule["nodes"]
        ]
    assert wrong == []


def test_everything_can_be_reached_by_the_tab_key(demo_site: Served, look: Look) -> None:
    page = ready(look(demo_site.url))
    expect(page.locator(".cm-content")).to_be_visible()  # it comes after the first paint
    at_rest(page)
    reached: list[str] = []
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                """() => {
                    const at = document.activeElement;
                    const parts = '.page > header, .ribbon, [role=search], aside, .middle';
                    const part = at.closest(parts);
                    const ring = getComputedStyle(at).outlineStyle !== 'none'
                        || at.closest('.field') !== null;  // its border tells
                    return (part?.className ?? '') + ' ' + (part?.tagName ?? at.tagName)
                        + (ring ? '' : ' unseen');
                }"""
            )
        )
    places = list(dict.fromkeys(re.sub(r"svelte-\w+", "", place).strip() for place in reached))
    assert not [place for place in places if place.endswith("unseen")], places
    order = [next((i for i, p in enumerate(places) if part in p), None)
             for part in ("HEADER", "ribbon", "bar", "left")]  # fmt: skip
    assert None not in order and order == sorted(order), places  # type: ignore[type-var]


def test_a_person_without_a_mouse_reads_compares_filters_and_returns(
    demo_site: Served, look: Look
) -> None:
    page = ready(look(demo_site.url))
    press = page.keyboard.press
    press("]")
    press("j")
    ready(page)
    editor = page.locator(".cm-content")
    expect(editor).to_be_visible()  # it comes after the first paint
    press("i")
    expect(editor).to_be_focused()
    page.keyboard.type("split:eval reward:<0.5")
    at_rest(page)  # completions have come and gone
    expect(page.locator(".cm-tooltip-autocomplete")).to_have_count(0)
    press("Enter")
    expect(page).to_have_url(re.compile("split:eval"))
    press("Escape")
    page.evaluate("document.activeElement.blur()")
    press("h")
    expect(page.get_by_text("Every rollout, step by step")).to_be_visible()
    press("a")
    expect(page.get_by_role("button", name="never solved")).to_be_visible()
    press("f")
    expect(page.get_by_text("Where they ended")).to_be_visible()
    press("e")
    expect(page.get_by_text("rollouts failed")).to_be_visible()
    press("w")
    expect(page.get_by_role("listbox", name="Rollouts")).to_be_visible()
    press("Escape")
    ready(page)
    press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    expect(dialog).to_be_visible()
    assert dialog.evaluate("box => box.contains(document.activeElement)")
    press("Escape")
    expect(dialog).to_have_count(0)
    assert page.wrong == []
