"""All that is shown is in the address: opened again, it shows the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

import rollscope
from rollscope import Message, Rollout, Span, ToolCall
from server.conftest import Served, serving

from .pages import Look, ready

ANSWERS = ("It is five.", "It is six.")


@pytest.fixture(scope="module")
def long_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two siblings of thirty turns with long tool results, and three spans each; and one more
    group of the kind, a step before."""
    folder = tmp_path_factory.mktemp("long")
    with rollscope.init(project="p", run="r", dir=folder) as run:
        for index, answer in enumerate(ANSWERS):
            run.log(_rollout(index, answer))
        run.log(_rollout(2, "It is nine.", step=0, task="other"))
    with serving(folder) as served:
        yield served


def _rollout(index: int, answer: str, step: int = 1, task: str = "sum") -> Rollout:
    messages = [Message(role="user", content="Add two and three. Look everywhere.")]
    for n in range(30):
        call = ToolCall(id=f"c{n}", name="look", arguments=f'{{"at": {n}}}')
        said = f"Again. {answer}" if n % 10 == 5 else f"Turn {n}."
        messages.append(Message(role="assistant", content=said, tool_calls=[call], sampled=True))
        found = "\n".join(f"line {line} of look {n}" for line in range(60))
        messages.append(Message(role="tool", content=found, tool_call_id=f"c{n}"))
    messages.append(Message(role="assistant", content=answer, sampled=True))
    spans = [
        Span(name=name, id=name, start=100.0 + n, end=100.5 + n, inputs={"which": name})
        for n, name in enumerate(("first", "second", "third"))
    ]
    return Rollout(
        step=step, task=task, group=task, index=index, reward=1.0 - index,
        messages=messages, spans=spans,
    )  # fmt: skip


def again(look: Look, page: Any, until: str) -> Any:
    """The page's address, once it says `until`, opened by somebody else."""
    expect(page).to_have_url(re.compile(until))
    return look(page.url)


def test_folds_and_panels_of_a_transcript(site: Served, look: Look) -> None:
    page = ready(look(f"{site.url}/?q=task:q-1"))
    for key in ("p", "z", "o", "\\"):
        page.keyboard.press(key)
    other = again(look, page, "list=no")
    expect(other.get_by_role("button", name=re.compile("Thinking"))).to_have_attribute(
        "aria-expanded", "true"
    )
    expect(other.get_by_role("button", name="show prompt")).to_be_visible()
    expect(other.get_by_role("button", name=re.compile("outline"))).to_have_attribute(
        "aria-pressed", "true"
    )
    expect(other.get_by_role("complementary", name="Selection")).to_have_count(0)
    other.get_by_role("button", name="fold thinking").click()
    expect(other.get_by_role("button", name="show prompt")).to_be_visible()  # folded as before
    assert page.wrong == other.wrong == []


def test_a_long_text_stays_unfolded_out_of_sight_and_in_a_link(
    long_site: Served, look: Look
) -> None:
    page = ready(look(f"{long_site.url}/?q=index:0"))
    last = re.compile("line 59 of look 0$", re.M)
    page.get_by_role("button", name=re.compile("show all")).first.click()
    expect(page.get_by_text(last)).to_have_count(1)
    cards = page.locator(".cards")
    cards.evaluate("box => box.scrollTo(0, box.scrollHeight)")
    expect(page.get_by_text(last)).to_have_count(0)
    cards.evaluate("box => box.scrollTo(0, 0)")
    expect(page.get_by_text(last)).to_have_count(1)
    other = again(look, page, "fold=-text:2")
    expect(other.get_by_text(last)).to_have_count(1)
    assert page.wrong == other.wrong == []


def test_siblings_are_folded_alike_message_by_message_and_others_are_not(
    long_site: Served, look: Look
) -> None:
    page = ready(look(f"{long_site.url}/?q=task:sum,other&order=-step"))
    page.keyboard.press("p")
    page.get_by_role("button", name=re.compile("show all")).first.click()
    expect(page).to_have_url(re.compile("fold=prompt,-text:2"))
    page.keyboard.press("]")
    expect(page.get_by_role("tab").nth(1)).to_have_attribute("aria-selected", "true")
    expect(page).to_have_url(re.compile("fold=prompt,-text:2"))
    page.keyboard.press("j")
    expect(page.get_by_role("complementary", name="Facts")).to_contain_text("other")
    expect(page).to_have_url(re.compile("fold=prompt(&|$)"))
    assert page.wrong == []


def test_the_span_in_sight(long_site: Served, look: Look) -> None:
    page = look(f"{long_site.url}/?q=index:0&s=spans")
    detail = page.locator(".detail")
    expect(detail).to_contain_text('"which": "first"')
    page.get_by_role("button", name=re.compile("third")).click()
    other = again(look, page, "span=2")
    expect(other.locator(".detail")).to_contain_text('"which": "third"')
    other.keyboard.press("]")
    expect(other).not_to_have_url(re.compile("span="))  # another rollout has other spans
    page.get_by_role("button", name="close").click()
    closed = again(look, page, "span=none")
    expect(closed.locator(".lane").first).to_be_visible()
    expect(closed.locator(".detail")).to_have_count(0)
    assert page.wrong == other.wrong == closed.wrong == []


def test_where_somebody_is_in_a_comparison(long_site: Served, look: Look) -> None:
    page = ready(look(f"{long_site.url}/"))
    page.keyboard.press("b")
    expect(page.locator(".turn.first")).to_be_visible()
    page.keyboard.press("j")
    page.get_by_role("button", name="all messages").click()
    other = again(look, page, "all=yes.*at=|at=.*all=yes")
    now = other.locator(".turn.now")
    expect(now).to_be_in_viewport()
    expect(now).not_to_have_class(re.compile("first"))
    assert now.get_attribute("data-row") == page.locator(".turn.now").get_attribute("data-row")
    expect(other.get_by_role("button", name="only what differs")).to_be_visible()
    assert page.wrong == other.wrong == []


def test_facets_and_runs_are_links_for_another_tab(demo_site: Served, look: Look) -> None:
    page = ready(look(f"{demo_site.url}/?q=split:train"))
    facet = page.get_by_role("link", name=re.compile(r"^dropped \d"))
    other = look(f"{demo_site.url}/" + facet.get_attribute("href"))
    expect(other.get_by_role("link", name=re.compile(r"^dropped \d"))).to_have_attribute(
        "aria-current", "true"
    )
    page.get_by_role("button", name="all runs").click()
    run = page.get_by_role("option").filter(has_text="step").first
    name = run.locator("span").first.inner_text()
    third = look(f"{demo_site.url}/" + run.get_attribute("href"))
    expect(third.get_by_role("button", name=name, exact=True)).to_be_visible()
    assert page.wrong == other.wrong == third.wrong == []
