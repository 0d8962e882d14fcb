"""A group of 64: sorted, chosen from, and compared eight at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

import rollscope
from rollscope.model import Message, Rollout
from server.conftest import Served, serving

from .pages import Look, Shoot, at_rest, param, ready, until

SIZE = 64


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("group")
    ask = Message(role="user", content="What is 6 * 7?")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROLLSCOPE_SEAL", "off")
        with rollscope.init(project="p", run="r", dir=directory) as run:
            for i in range(SIZE):
                said = [ask, Message(role="assistant", content=f"It is {i}.", sampled=True)]
                one = Rollout(step=1, task="sum of/" * 40, index=i, reward=i / SIZE, messages=said)
                run.log(one)
            said = [ask, Message(role="assistant", content="Other.", sampled=True)]
            run.log(Rollout(step=2, task="other", index=0, reward=0.0, messages=said))
    with serving(directory) as site:
        yield site


def ids(site: Served, q: str) -> list[str]:
    return [row["id"] for row in site.get("rollouts", q=q, order="index", limit=SIZE)["rows"]]


def test_the_board_has_the_best_first_and_the_one_in_hand_in_sight(
    group: Served, look: Look, shoot: Shoot
) -> None:
    all_ = ids(group, "step:1")
    page = look(f"{group.url}/?s=group&id={all_[3]}")
    expect(page.locator(".board article.on")).to_be_in_viewport(ratio=1)
    shown = page.locator(".board article header a").all_inner_texts()
    assert shown == [f"#{i}" for i in reversed(range(SIZE))]
    shoot(page, "group-64")
    assert page.wrong == []


def test_eight_of_a_large_group_are_chosen_and_those_left_out_are_counted(
    group: Served, look: Look
) -> None:
    page = look(f"{group.url}/?s=group&id={ids(group, 'step:1')[SIZE - 1]}")
    expect(page.get_by_role("button", name="pick up to 8 of 64 to compare")).to_be_disabled()
    picks = page.get_by_role("button", name="pick", exact=True)
    for n in range(9):
        picks.nth(n).click()
    expect(page.get_by_text("8 are compared at most")).to_be_visible()
    page.get_by_role("button", name="compare 8 picked, 56 left out").click()
    expect(page.locator(".side-head")).to_have_count(8)
    assert page.wrong == []


def test_too_many_in_an_address_are_compared_in_turn(group: Served, look: Look) -> None:
    twelve = ids(group, "step:1")[:12]
    page = look(f"{group.url}/?s=compare&ids={','.join(twelve)}")
    expect(page.locator(".side-head")).to_have_count(8)
    expect(page.get_by_text("4 left out")).to_be_visible()
    page.get_by_role("button", name=re.compile("compare without")).first.click()
    expect(page.get_by_text("3 left out")).to_be_visible()
    expect(page.locator(".side-head")).to_have_count(8)
    at_rest(page)
    assert page.wrong == []


def test_the_table_of_a_comparison_lines_up_with_the_transcripts(group: Served, look: Look) -> None:
    page = look(f"{group.url}/?s=compare&ids={','.join(ids(group, 'step:1')[:5])}")
    expect(page.get_by_text("What else differs")).to_be_visible()
    left = "all => all.map(it => Math.round(it.getBoundingClientRect().left))"
    sides = page.locator(".turn").first.locator(".side").evaluate_all(left)
    assert len(set(sides)) == 5
    cells = page.locator("h3 ~ .field").first.locator(".cell")
    expect(cells).to_have_count(5)
    assert cells.evaluate_all(left) == sides


def test_a_rollout_that_the_query_does_not_select_says_so(group: Served, look: Look) -> None:
    inside, outside = ids(group, "step:1")[0], ids(group, "step:2")[0]
    page = ready(look(f"{group.url}/?q=step:1&id={outside}"))
    said = page.get_by_text("not in this selection")
    expect(said).to_be_visible()
    page.get_by_role("listbox", name="Rollouts").get_by_role("option").first.click()
    until(page, "id => new URL(location).searchParams.get('id') !== id", outside)
    at_rest(page)
    expect(said).to_have_count(0)
    page.goto(f"{group.url}/?q=step:2&id={inside}")
    expect(said).to_be_visible()
    assert param(page, "id") == inside
    assert page.wrong == []
