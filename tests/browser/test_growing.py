"""The store grows, is scored, or asks for another token while somebody looks at it."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import expect

import rollscope
from rollscope import Message, Rollout
from server.conftest import serving

from .pages import Look, at_rest, intercept, param, ready, refused
from .test_real import recorded, some


def test_the_first_rollouts_of_an_empty_store_appear(tmp_path: Path, look: Look) -> None:
    run = rollscope.init(project="p", run="r", dir=tmp_path)
    with serving(tmp_path) as site:
        page = look(site.url)
        expect(page.get_by_text("Nothing recorded yet")).to_be_visible()
        run.log(some(0, 2))
        run.flush()
        ready(page)
        run.finish()
        assert page.wrong == []


def test_siblings_and_fates_that_come_later_are_shown(tmp_path: Path, look: Look) -> None:
    run = rollscope.init(project="p", run="r", dir=tmp_path)
    both = some(0, 1)
    run.log(both[0])
    run.flush()
    with serving(tmp_path) as site:
        page = ready(look(f"{site.url}/?q=project:p"))
        facts = page.get_by_role("complementary", name="Facts")
        expect(facts).to_contain_text("fate not known")
        expect(page.get_by_role("tab")).to_have_count(1)
        run.log(both[1])
        run.annotate(key="0-0", fate="trained", advantage=-1.0)
        run.flush()
        expect(page.get_by_role("tab")).to_have_count(2)
        expect(facts).to_contain_text("● trained")
        expect(facts).to_contain_text("−1")
        run.finish()
        assert page.wrong == []


def test_what_has_not_changed_is_read_once(tmp_path: Path, look: Look) -> None:
    with recorded(tmp_path, 3) as site:
        page = ready(look(f"{site.url}/?q=project:p"))
        at_rest(page)
        here = param(page, "id")
        assert len([url for url in page.asked if f"/api/rollouts/{here}?" in url]) == 1


def test_a_text_search_is_made_again_for_who_wants_what_is_new(tmp_path: Path, look: Look) -> None:
    run = rollscope.init(project="p", run="r", dir=tmp_path)
    run.log(some(0, 3))
    run.flush()
    with serving(tmp_path) as site:
        page = ready(look(f"{site.url}/?q=question"))
        expect(page.get_by_role("search")).to_contain_text("6 of 6")
        run.log(some(3, 2))
        run.flush()
        page.get_by_text("+4 new").click()
        expect(page.get_by_role("search")).to_contain_text("10 of 10")
        expect(page.locator("article.card").first).to_contain_text(re.compile("question [34]"))
        run.finish()
        assert page.wrong == []


def test_rows_in_sight_stay_in_sight_while_others_come(tmp_path: Path, look: Look) -> None:
    run = rollscope.init(project="p", run="r", dir=tmp_path)
    run.log(some(0, 30))
    run.flush()
    with serving(tmp_path) as site:
        page = ready(look(f"{site.url}/?q=project:p"))
        at_rest(page)
        rows = page.get_by_role("listbox", name="Rollouts")
        rows.evaluate("box => { box.scrollTop = 44 * 20 }")
        row = rows.get_by_role("option").filter(has_text="t17").first
        expect(row).to_be_in_viewport()
        at_rest(page)
        before = row.bounding_box()["y"]
        run.log(some(30, 4))
        run.flush()
        expect(page.get_by_role("search")).to_contain_text("68 of 68")
        at_rest(page)
        assert abs(row.bounding_box()["y"] - before) < 1
        run.finish()
        assert page.wrong == []


def test_a_reward_that_is_not_known_yet_is_no_regression(tmp_path: Path, look: Look) -> None:
    with rollscope.init(project="p", run="r", dir=tmp_path) as run:
        for step, reward in ((0, 1.0), (1, None), (None, 1.0)):
            said = Message(role="assistant", content="word", sampled=True)
            run.log(Rollout(step=step, task="t", reward=reward, messages=[said]))
        run.log(Rollout(step=0, task="never", messages=[said]))
    with serving(tmp_path) as site:
        page = look(f"{site.url}/?s=task&task=t")
        expect(page.get_by_text("first success")).to_be_visible()
        expect(page.get_by_text("regression")).to_have_count(0)
        page = look(f"{site.url}/?s=task&task=never")
        expect(page.get_by_text("no reward known")).to_be_visible()
        expect(page.get_by_text("never solved")).to_have_count(0)


def test_runs_of_one_name_in_two_projects_are_two(tmp_path: Path, look: Look) -> None:
    for project, count in (("p", 3), ("q", 2)):
        with rollscope.init(project=project, run="r", dir=tmp_path) as run:
            run.log(some(0, count))
    with serving(tmp_path) as site:
        page = ready(look(site.url))
        lanes = page.locator("a.lane")
        expect(lanes).to_have_count(2)
        expect(lanes.nth(0)).to_contain_text("p")
        lanes.filter(has_text="q").click()
        expect(page.get_by_role("search")).to_contain_text("4 of 10")
        assert page.wrong == []


def test_a_token_that_holds_no_longer_is_asked_for(tmp_path: Path, look: Look) -> None:
    with recorded(tmp_path, 3) as site:
        page = ready(look(f"{site.url}/?q=project:p"))
        at_rest(page)
        intercept(
            page,
            "**/api/**",
            lambda route: route.fulfill(status=401, json={"error": "token?"}),
        )
        page.keyboard.press("f")
        expect(page.get_by_label("Token")).to_be_visible()
        refused(page)
