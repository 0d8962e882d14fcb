"""The demo's real rollouts on every screen, walked as a person would.

Pictures are kept under out/screenshots, as demo-*.png.
"""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from server.conftest import Served

from .pages import Look, Shoot, at_rest, eventually, left, param, ready, until


def begin(site: Served, q: str) -> str:
    return str(site.get("start", q=q)["id"])


def test_it_opens_where_the_policy_is_learning(demo_site: Served, look: Look, shoot: Shoot) -> None:
    page = ready(look(demo_site.url))
    newest = max(run["last_step"] for run in demo_site.get("runs")["runs"])
    expect(page.get_by_text(f"step {newest} · train")).to_be_visible()
    rewards = page.get_by_role("tablist", name="Siblings").locator("b")
    eventually(lambda: len(set(rewards.all_inner_texts())) > 1)
    facts = page.get_by_role("complementary", name="Facts")
    for shown in ("reward", "advantage", "correct", "reference", "final answer"):
        expect(facts.get_by_text(shown, exact=True).first).to_be_in_viewport()
    lanes = page.get_by_role("region", name="Steps")
    for lane in ("lr-1e-3 · train", "lr-1e-3 · eval", "lr-6e-3 · train"):
        expect(lanes.get_by_text(lane, exact=True)).to_be_visible()
    shoot(page, "demo-rollouts")
    assert page.wrong == []


def test_six_keys_lead_to_where_best_and_worst_part(
    demo_site: Served, look: Look, shoot: Shoot
) -> None:
    page = ready(look(demo_site.url))
    expect(page.get_by_role("tablist", name="Siblings").get_by_role("tab").nth(1)).to_be_visible()
    page.keyboard.press("b")  # one of the six
    expect(page.get_by_text("first divergence")).to_be_in_viewport()
    expect(page.locator(".turn.first .side mark").first).to_be_in_viewport()
    expect(page.get_by_text("What else differs")).to_be_visible()
    shoot(page, "demo-compare")
    assert page.wrong == []


LONG = "run:long-division"


def test_a_long_reply_shows_the_slip_that_made_it_wrong(
    demo_site: Served, look: Look, shoot: Shoot
) -> None:
    rows = demo_site.get("rollouts", q=f"{LONG} step:3", order="-response_tokens", limit=100)[
        "rows"
    ]
    assert rows[0]["response_tokens"] > 2_000
    wrong = next(row for row in rows if row["reward"] < 0.7)
    page = ready(look(f"{demo_site.url}/?id={wrong['id']}&q={LONG}"))
    page.get_by_role("button", name=re.compile("Thinking")).click()
    at_rest(page)
    shoot(page, "demo-long")
    page.keyboard.press("b")
    expect(page.get_by_text("first divergence")).to_be_in_viewport()
    expect(page.locator(".side.base mark").first).to_be_in_viewport()
    shoot(page, "demo-long-compare")
    assert page.wrong == []


def test_every_token_of_a_long_reply_can_be_jumped_to(
    demo_site: Served, look: Look, shoot: Shoot
) -> None:
    id = begin(demo_site, f"{LONG} response_tokens:>2000")
    page = ready(look(f"{demo_site.url}/?id={id}&view=tokens&stream=logprob"))
    page.get_by_role("button", name=re.compile("lowest")).click()
    expect(page.locator(".tok.at")).to_be_in_viewport()
    at_rest(page)
    assert page.locator(".window:not(.wait)").count() > 1
    drawn = page.locator(".tokens").last.evaluate("tokens => tokens.textContent")
    assert " ." not in drawn, "a space that nobody wrote, between two windows"
    shoot(page, "demo-long-tokens")
    assert page.wrong == []


def test_a_helper_has_a_conversation_of_its_own(
    demo_site: Served, look: Look, shoot: Shoot
) -> None:
    page = ready(look(f"{demo_site.url}/?id={begin(demo_site, 'dataset:team run:lr-1e-3')}"))
    branches = page.get_by_role("combobox", name="Branch")
    expect(branches).to_be_visible()
    shoot(page, "demo-team")
    branches.select_option(index=0)
    expect(page).to_have_url(re.compile("leaf="))
    expect(page.locator("article.card").first).to_be_visible()
    page.keyboard.press("s")
    expect(page.get_by_text("policy writes")).to_be_visible()
    expect(page.get_by_text("Inputs")).to_be_visible()
    shoot(page, "demo-spans")
    assert page.wrong == []


def test_a_timeline_tells_which_weights_wrote_what(demo_site: Served, look: Look) -> None:
    q = "version_min:0..100 staleness:>0 has:trained_step turns:>2"
    rows = demo_site.get("rollouts", q=q, limit=300)["rows"]
    two = next(row for row in rows if row["version_min"] != row["version_max"])
    page = look(f"{demo_site.url}/?s=spans&id={two['id']}")
    legend = page.locator(".versions")
    for version in (two["version_min"], two["version_max"]):
        expect(legend.get_by_text(str(version), exact=True)).to_be_visible()
    assert page.wrong == []


def test_tokens_carry_what_engine_and_learner_said(
    demo_site: Served, look: Look, shoot: Shoot
) -> None:
    id = begin(demo_site, "dataset:words run:lr-1e-3 fate:trained step:<10")
    page = ready(look(f"{demo_site.url}/?id={id}&view=tokens&stream=logprob"))
    expect(page.locator(".strip .head b")).to_have_text("logprob")
    page.get_by_role("button", name=re.compile("lowest")).click()
    expect(page.locator(".tok.at")).to_be_in_viewport()
    at_rest(page)
    page.locator(".tok.at").hover()
    expect(page.locator(".tip")).to_contain_text("train_logprob")
    at_rest(page)
    at, tip = page.locator(".tok.at").bounding_box(), page.locator(".tip").bounding_box()
    assert abs(tip["x"] - at["x"]) < 300, "what hovers stands by its token"
    assert abs(tip["y"] - at["y"]) < 60
    shoot(page, "demo-tokens")
    for stream in ("ratio", "advantage", "mask", "version"):
        page.get_by_role("combobox", name="Stream").select_option(stream)
        expect(page.locator(".strip .head b")).to_have_text(stream)
    page.keyboard.press("Escape")
    page.keyboard.press("x")
    expect(page.locator(".tok.bare", has_text="<answer>").first).to_be_visible()
    shoot(page, "demo-raw")
    assert page.wrong == []


@pytest.mark.parametrize(
    ("name", "state", "text"),
    [
        ("table", "s=table", "last words of the policy"),
        ("group", "s=group", "compare best and worst"),
        ("tasks", "s=tasks&kind=regressed", "regressed"),
        ("fate", "s=fate", "zero variance"),
        ("failures", "s=failures", "ServiceTimeout"),
    ],
)
def test_every_screen_has_something_to_say(
    demo_site: Served, look: Look, shoot: Shoot, name: str, state: str, text: str
) -> None:
    page = look(f"{demo_site.url}/?{state}")
    expect(page.get_by_text(text).first).to_be_visible()
    at_rest(page)
    shoot(page, f"demo-{name}")
    assert page.wrong == []


def test_fates_add_up_and_lead_to_their_rollouts(demo_site: Served, look: Look) -> None:
    page = look(f"{demo_site.url}/?s=fate&q=run:lr-1e-3")
    total = demo_site.get("rollouts", q="run:lr-1e-3")["count"]
    expect(page.get_by_text(f"= {total:,}")).to_be_visible()
    page.get_by_role("link", name=re.compile("zero variance")).first.click()
    expect(page.get_by_role("search")).to_contain_text(" of ")
    expect(page.get_by_role("complementary", name="Facts")).to_contain_text("zero variance")


def test_a_task_that_regressed_shows_when(demo_site: Served, look: Look, shoot: Shoot) -> None:
    task = demo_site.get("tasks", q="run:lr-1e-3", kind="regressed")["tasks"][0]
    page = look(f"{demo_site.url}/?s=task&task={task['task']}&dataset={task['dataset']}")
    expect(page.get_by_text(re.compile("first success: step"))).to_be_visible()
    cells = page.locator(".cell")
    assert cells.count() >= task["rollouts"]
    shoot(page, "demo-task")
    cells.nth(0).click(modifiers=["Shift"])
    cells.last.click(modifiers=["Shift"])
    expect(page.get_by_text("2 rollouts")).to_be_visible()
    expect(page.get_by_text("What else differs")).to_be_visible()
    assert page.wrong == []


def test_hits_are_walked_across_rollouts_and_back(demo_site: Served, look: Look) -> None:
    page = ready(look(f"{demo_site.url}/?q=carry step:3 index:0"))
    expect(page.get_by_text(re.compile(r"\d+ hits?"))).to_be_visible()
    first = param(page, "id")
    count = int(re.findall(r"\d+", page.get_by_text(re.compile(r"\d+ hits?$")).inner_text())[0])
    for n in range(count):
        page.keyboard.press("n")
        expect(page.get_by_text(re.compile(rf"^{n + 1} / {count} hits?"))).to_be_visible()
    title = page.title()
    page.keyboard.press("n")
    left(page, first)
    until(page, "title => document.title !== title", title)

    def back() -> bool:
        page.keyboard.press("N")  # at the first hit of all it stays where it is
        at_rest(page)
        return param(page, "id") == first

    eventually(back)
    expect(page.get_by_text(re.compile(rf"^\d+ / {count} hits?"))).to_be_visible()


def test_metrics_lie_over_the_rewards(demo_site: Served, look: Look, shoot: Shoot) -> None:
    page = look(f"{demo_site.url}/?q=run:lr-1e-3 split:train")
    metric = page.get_by_role("combobox", name="Logged metric")
    expect(metric.locator("option")).not_to_have_count(1)
    name = metric.locator("option").nth(1).get_attribute("value")
    metric.select_option(name)
    expect(page.locator(".ribbon path[stroke-dasharray]").first).to_be_attached()
    eventually(lambda: page.locator(".ribbon path[stroke-dasharray]").first.get_attribute("d"))
    shoot(page, "demo-metric")


def test_a_random_rollout_is_one_of_the_selection(demo_site: Served, look: Look) -> None:
    q = "step:3 split:train run:lr-1e-3"
    among = {row["id"] for row in demo_site.get("rollouts", q=q, limit=500)["rows"]}
    page = ready(look(f"{demo_site.url}/?q={q}"))
    seen = {param(page, "id")}
    for _ in range(5):
        before = param(page, "id")
        page.keyboard.press("r")
        left(page, before)
        ready(page)
        assert param(page, "q") == q
        seen.add(param(page, "id"))
    assert seen <= among


def test_every_count_leads_to_as_many_rollouts(demo_site: Served) -> None:
    """Of fates, failures, facets and tasks: the query of each finds what it counts."""
    q = "run:lr-1e-3"

    def found(term: str) -> int:
        return int(demo_site.get("rollouts", q=f"{q} ({term})", limit=1)["count"])

    funnel, failures = demo_site.get("funnel", q=q), demo_site.get("failures", q=q)
    bars = [*funnel["stages"], *funnel["ends"], *failures["kinds"], *failures["failures"]]
    bars += [reason for bar in bars for reason in bar.get("reasons", [])]
    assert len(bars) > 15
    for bar in bars:
        if bar["q"]:
            assert found(bar["q"]) == bar["count"], bar
    one = {"tools": "tool", "flags": "flag", "labels": "label"}
    for facet in demo_site.get("facets", q=q)["facets"]:
        for value in facet["values"][:3]:
            word = "none" if value["value"] is None else f'"{value["value"]}"'
            key = one.get(facet["key"], facet["key"])
            assert found(f"{key}:{word}") == value["count"], (key, value)
    for task in demo_site.get("tasks", q=q, limit=3)["tasks"]:
        assert found(f'task:"{task["task"]}" dataset:"{task["dataset"]}"') == task["rollouts"]


@pytest.mark.parametrize(
    ("state", "counts"),
    [
        ("s=failures", "h1 a, a.kind .num, header a.num"),
        ("s=tasks&kind=regressed", "tbody tr td:nth-child(2) a"),
        ("s=task&task={task}&dataset={dataset}", "header .soft a"),
        ("s=fate", "a.stage, a.head, a.reason"),
        ("q=split:eval", "[role=search] a"),
    ],
)
def test_every_count_is_a_link_that_also_opens_in_another_tab(
    demo_site: Served, look: Look, state: str, counts: str
) -> None:
    task = demo_site.get("tasks", kind="regressed", limit=1)["tasks"][0]
    page = look(f"{demo_site.url}/?{state.format(**task)}")
    links = page.locator(counts)
    expect(links.first).to_be_visible()
    at_rest(page)
    before = page.url
    for n in range(min(3, links.count())):
        wanted = int(re.findall(r"\d[\d,]*", links.nth(n).inner_text())[0].replace(",", ""))
        with page.context.expect_page() as opened:
            links.nth(n).click(modifiers=["Control"])
        tab = opened.value
        expect(tab.get_by_role("search")).to_contain_text(f"{wanted:,} of")
        tab.close()
    assert page.url == before, "who opens another tab stays where he is"


def test_several_runs_lie_over_each_other(demo_site: Served, look: Look) -> None:
    page = ready(look(f"{demo_site.url}/?q=split:train"))
    ribbon = page.locator(".ribbon")
    for run in ("lr-1e-3", "lr-6e-3"):
        expect(ribbon.get_by_text(run).first).to_be_visible()
    lines = {path.get_attribute("stroke") for path in ribbon.locator("path").all()}
    assert len({line for line in lines if line and line != "none"}) >= 2
    expect(ribbon.locator(".band")).to_have_count(0)
    ribbon.get_by_text("lr-6e-3").first.click()
    until(page, "() => new URL(location).searchParams.get('q').includes('lr-6e-3')")
    one = look(f"{demo_site.url}/?q=run:lr-1e-3").locator(".ribbon")
    for split in ("train", "eval"):
        expect(one.get_by_role("link", name=f"lr-1e-3 · {split}")).to_be_visible()
    expect(one.locator(".band")).to_have_count(1)


_APART = """() => {
    const place = (row) => [Number(row.dataset.index), row.getBoundingClientRect()];
    const rows = [...document.querySelectorAll(".place")].map(place).sort((a, b) => a[0] - b[0]);
    return rows.length > 1 && rows.every(([n, box], i) => {
        const before = rows[i - 1];
        return !before || before[0] + 1 !== n || Math.abs(box.top - before[1].bottom - 10) < 2;
    });
}"""


def test_turns_never_lie_over_each_other(demo_site: Served, look: Look) -> None:
    page = ready(look(f"{demo_site.url}/?q=carry turns:>2"))
    for key in "nntttxx]jnzJK":
        page.keyboard.press(key)
        at_rest(page)
        until(page, _APART)
    assert page.wrong == []


def test_a_long_list_of_tasks_can_be_seen_to_its_end(demo_site: Served, look: Look) -> None:
    page = look(f"{demo_site.url}/?s=tasks")
    rows = page.locator("tbody tr")
    count = demo_site.get("tasks")["count"]
    expect(rows).to_have_count(200)
    while rows.count() < count:
        before = rows.count()
        page.get_by_role("button", name=re.compile("show more")).click()
        expect(rows).not_to_have_count(before)
    expect(page.get_by_role("button", name=re.compile("show more"))).to_have_count(0)
    rollouts = rows.first.locator("td").nth(1)
    number = rollouts.inner_text()
    rollouts.get_by_role("link").click()
    expect(page.get_by_role("search")).to_contain_text(f"{number} of ")
    assert page.wrong == []
