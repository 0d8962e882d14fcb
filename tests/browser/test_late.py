"""Answers that come late, in another order, or not at all: what is shown is still true, and a key
does what it was pressed for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import rollscope
from rollscope import Message, Rollout, Tokens
from server.conftest import Served, serving
from server.made import SIBLINGS

from .pages import Held, Look, at_rest, eventually, left, param, ready, refused, until, visit
from .test_real import recorded


def other_row(page: Any, n: int = 6) -> Any:
    """A row of the list that is not the one in sight."""
    return page.locator("a.row[aria-selected=false]").nth(n)


def id_of(row: Any) -> str:
    return str(re.findall(r"id=([^&]+)", row.get_attribute("href"))[0])


# -- what stands beside a title is of that title --------------------------------------------


def test_a_rollout_that_does_not_come_is_not_shown_as_the_one_before(
    site: Served, look: Look
) -> None:
    page = ready(look(f"{site.url}/?q=split:train"))
    at_rest(page)
    row = other_row(page)
    held = Held(page, f"**/api/rollouts/{id_of(row)}?*")
    row.click()
    held.wait()
    expect(page.locator(".column")).to_have_attribute("aria-busy", "true")
    expect(page.get_by_role("complementary", name="Facts").locator(".old")).to_be_visible()
    held.refuse()
    expect(page.get_by_role("alert")).to_contain_text("out of order")
    expect(page.locator("article.card")).to_have_count(0)
    expect(page.get_by_role("complementary", name="Facts")).not_to_contain_text("reward")
    refused(page)


def test_siblings_that_do_not_come_are_not_those_of_the_group_before(
    site: Served, look: Look
) -> None:
    page = ready(look(f"{site.url}/?q=split:train"))
    at_rest(page)
    strip = page.locator(".strip .where")
    expect(strip).to_contain_text("siblings")
    held = Held(page, "**/neighbours")
    row = other_row(page, SIBLINGS + 2)
    row.click()
    held.wait()
    expect(page.get_by_role("tablist")).to_have_attribute("aria-busy", "true")
    expect(strip).not_to_contain_text("siblings")
    expect(page.get_by_role("button", name="Next group")).to_be_disabled()
    held.refuse()
    expect(page.get_by_role("tab")).to_have_count(0)
    refused(page)


@pytest.mark.parametrize(
    ("screen", "asked", "shown"),
    [
        ("fate", "funnel", "Where they ended"),
        ("failures", "failures", "none carries an error"),
        ("tasks", "tasks", "q-1"),
    ],
)
def test_counts_of_another_query_are_pale_and_go_when_theirs_do_not_come(
    site: Served, look: Look, screen: str, asked: str, shown: str
) -> None:
    page = look(f"{site.url}/?s={screen}&q=task:q-1 truncated:false")
    expect(page.get_by_text(shown).first).to_be_visible()
    at_rest(page)
    held = Held(page, f"**/api/{asked}*")
    page.get_by_role("button", name="Clear query").click()
    held.wait()
    expect(page.locator("main .old")).to_be_visible()
    held.refuse()
    expect(page.get_by_role("alert")).to_contain_text("out of order")
    expect(page.get_by_text(shown)).to_have_count(0)
    refused(page)


def test_a_history_and_a_comparison_are_those_of_the_address(site: Served, look: Look) -> None:
    page = look(f"{site.url}/?s=tasks&q=split:train")
    page.get_by_role("link", name="q-1").click()
    expect(page.get_by_role("heading", name="q-1")).to_be_visible()
    at_rest(page)
    ids = [row["id"] for row in site.get("rollouts", q="task:q-1", limit=3)["rows"]]
    history = Held(page, "**/api/history?*")
    visit(page, "?s=task&task=q-2&dataset=apples")
    history.wait()
    expect(page.get_by_role("heading", name="q-1")).to_have_count(0)
    history.release()
    expect(page.get_by_role("heading", name="q-2")).to_be_visible()

    visit(page, f"?s=compare&ids={ids[0]},{ids[1]}")
    expect(page.get_by_text("2 rollouts")).to_be_visible()
    compared = Held(page, "**/api/compare?*")
    visit(page, f"?s=compare&ids={ids[0]},{ids[2]}")
    compared.wait()
    expect(page.locator("main .old")).to_be_visible()
    compared.refuse()
    expect(page.get_by_role("alert")).to_contain_text("out of order")
    refused(page)


@pytest.mark.parametrize(
    ("screen", "asked", "claim"),
    [("spans", "**/spans", "No spans"), ("group", "**/neighbours", "No group here")],
)
def test_what_is_not_known_yet_is_not_said_to_be_nothing(
    site: Served, look: Look, screen: str, asked: str, claim: str
) -> None:
    page = look("about:blank")
    held = Held(page, asked)
    page.goto(f"{site.url}/?s={screen}&q=task:q-1")
    held.wait()
    expect(page.locator(".strip")).to_be_visible()
    assert page.get_by_text(claim).count() == 0
    held.refuse()
    expect(page.get_by_role("alert")).to_contain_text("out of order")
    assert page.get_by_text(claim).count() == 0
    refused(page)


def test_rows_that_do_not_come_are_not_none(site: Served, look: Look) -> None:
    page = look(f"{site.url}/?s=table&q=split:train")
    rows = page.get_by_role("listbox", name="Rollouts").get_by_role("option")
    expect(rows.first).to_be_visible()
    at_rest(page)
    held = Held(page, "**/api/rollouts?*")
    page.get_by_role("button", name="Clear query").click()
    held.wait()
    held.refuse()
    expect(page.get_by_role("alert")).to_contain_text("out of order")
    expect(page.get_by_text("No rollout matches")).to_have_count(0)
    expect(page.get_by_role("search")).not_to_contain_text(re.compile(r"\b0 of"))
    held.release()
    expect(rows.first).to_be_visible()  # it asks again by itself
    refused(page)


def test_a_text_search_that_breaks_off_is_not_complete(site: Served, look: Look) -> None:
    page = look("about:blank")
    row = site.get("rollouts", q="task:q-1", limit=1)["rows"][0]
    told = f'data: {{"rows": [{{"id": "{row["id"]}"}}], "scanned": 40, "total": 100}}\n\n'
    page.route(
        "**/api/search?*",
        lambda route: route.fulfill(
            body=told.replace(
                '{"id"', '{"flags": [], "labels": [], "tools": [], "rewards": {}, "id"'
            ),
            content_type="text/event-stream",
        ),
    )
    page.goto(f"{site.url}/?q=baskets")
    expect(page.get_by_role("search")).to_contain_text("1 found · stopped at 40 %")


def test_the_first_tokens_are_asked_for_with_their_rollout(site: Served, look: Look) -> None:
    page = ready(look(f"{site.url}/?q=task:q-1&view=tokens&stream=logprob"))
    expect(page.locator("[data-message] [data-i]").first).to_be_visible()
    before, page.asked[:] = param(page, "id"), []
    detail = Held(page, "**/api/rollouts/*?first=*")
    page.keyboard.press("]")
    left(page, before)
    detail.wait()
    id = param(page, "id")
    asked = f"/api/rollouts/{id}/tokens?first=0&count=8&start=0"
    eventually(lambda: page.evaluate("1") and any(asked in url for url in page.asked))
    detail.release()
    at_rest(page)
    expect(page.locator("[data-message] [data-i]").first).to_be_visible()
    assert sum(asked in url for url in page.asked) == 1
    assert page.wrong == []


def test_tokens_of_messages_that_came_meanwhile_are_asked_for(site: Served, look: Look) -> None:
    """As of a rollout that has grown after its tokens, and before its messages, were told."""
    page = ready(look(f"{site.url}/?q=task:q-1&view=tokens&stream=logprob"))
    expect(page.locator("[data-message] [data-i]").first).to_be_visible()
    before = param(page, "id")
    tokens = Held(page, "**/tokens?first=0*")
    page.keyboard.press("]")
    left(page, before)
    tokens.wait()
    tokens.routes.pop(0).fulfill(json={"messages": []})
    tokens.wait()
    tokens.release()
    at_rest(page)
    expect(page.locator("[data-message] [data-i]").first).to_be_visible()
    expect(page.get_by_text("no tokens recorded").first).to_be_visible()  # of the prompt
    assert page.wrong == []


def test_hits_and_streams_are_those_of_the_rollout_in_sight(site: Served, look: Look) -> None:
    page = ready(look(f"{site.url}/?q=task:q-1&find=apples&view=tokens&stream=logprob"))
    expect(page.get_by_text(re.compile(r"\d hits"))).to_be_visible()
    expect(page.locator(".strip .head")).to_contain_text("lowest")
    hits, strip = Held(page, "**/hits?*"), Held(page, "**/strip?*")
    page.keyboard.press("]")
    hits.wait()
    strip.wait()
    expect(page.get_by_text(re.compile(r"\d hits"))).to_have_count(0)
    expect(page.locator(".strip .head")).not_to_contain_text("lowest")
    hits.release()
    strip.release()
    expect(page.locator(".strip .head")).to_contain_text("lowest")
    assert page.wrong == []


# -- a key does what it was pressed for -------------------------------------------------------


def test_who_goes_on_is_not_called_back_by_a_key_pressed_before(site: Served, look: Look) -> None:
    page = ready(look(f"{site.url}/?q=split:train&list=no"))
    at_rest(page)
    for key, asked in (("]", "**/neighbours"), (".", "**/neighbours"), ("r", "**/random?*")):
        far = site.get("rollouts", q="split:train", at=40, limit=2)["rows"]
        held = Held(page, asked)
        visit(page, f"?q=split:train&list=no&id={far[0]['id']}")
        expect(page.locator("article.card").first).to_be_visible()
        page.keyboard.press(key)
        held.wait()
        visit(page, f"?q=split:train&list=no&id={far[1]['id']}")
        held.release()
        at_rest(page)
        assert param(page, "id") == far[1]["id"], key
    assert page.wrong == []


def test_keys_pressed_before_the_list_is_here_are_all_done(site: Served, look: Look) -> None:
    rows = site.get("rollouts", q="split:train", limit=3)["rows"]
    page = look("about:blank")
    held = Held(page, "**/api/rollouts?*")
    page.goto(f"{site.url}/?q=split:train&id={rows[0]['id']}")
    ready(page)
    page.keyboard.press("j")
    page.keyboard.press("j")
    held.release()
    eventually(lambda: param(page, "id") == rows[2]["id"])
    assert page.wrong == []


def test_keys_pressed_before_it_is_known_where_to_begin(site: Served, look: Look) -> None:
    page = look("about:blank")
    held = Held(page, "**/api/start?*")
    page.goto(f"{site.url}/?q=split:train")
    held.wait()
    page.keyboard.press("b")
    held.release()
    expect(page.get_by_text("first divergence")).to_be_visible()
    assert page.wrong == []


def test_the_history_of_a_rollout_that_is_on_its_way(site: Served, look: Look) -> None:
    page = ready(look(f"{site.url}/?q=split:train"))
    at_rest(page)
    row = page.locator("a.row[aria-selected=false]").filter(has_text="q-3").first
    held = Held(page, f"**/api/rollouts/{id_of(row)}?*")
    row.click()
    held.wait()
    page.keyboard.press("h")
    held.release()
    expect(page.get_by_role("heading", name="q-3")).to_be_visible()
    assert page.wrong == []


def test_the_next_hit_is_in_this_rollout_also_before_its_hits_are_known(
    site: Served, look: Look
) -> None:
    page = look("about:blank")
    held = Held(page, "**/hits?*")
    page.goto(f"{site.url}/?q=baskets split:train")
    ready(page)
    held.wait()
    here = param(page, "id")
    page.keyboard.press("n")
    held.release()
    expect(page.get_by_text("1 / 1 hit")).to_be_visible()
    assert param(page, "id") == here
    assert page.wrong == []


def test_two_labels_one_after_the_other_are_not_both_on_the_first(
    tmp_path: Path, look: Look
) -> None:
    with recorded(tmp_path, 3) as site:
        page = ready(look(f"{site.url}/?q=project:p"))
        at_rest(page)
        first = param(page, "id")
        held = Held(page, "**/api/labels")
        page.keyboard.press("1")
        held.wait()
        page.keyboard.press("2")
        expect(page.locator(".said")).to_contain_text("still being kept")
        held.release()
        eventually(lambda: param(page, "id") != first)
        at_rest(page)
        assert [row["id"] for row in site.get("rollouts", q="label:good")["rows"]] == [first]
        assert site.get("rollouts", q="label:bad")["rows"] == []
        assert page.wrong == []


def test_a_label_does_not_move_who_has_gone_elsewhere(tmp_path: Path, look: Look) -> None:
    with recorded(tmp_path, 5) as site:
        page = ready(look(f"{site.url}/?q=project:p"))
        at_rest(page)
        held = Held(page, "**/api/labels")
        page.keyboard.press("1")
        held.wait()
        row = other_row(page, 3)
        there = id_of(row)
        row.click()
        ready(page)
        held.release()
        expect(page.locator(".said")).to_contain_text("labelled good")
        at_rest(page)
        assert param(page, "id") == there
        expect(page.locator("article.card").first).to_be_visible()
        assert page.wrong == []


def test_a_piece_of_a_text_comes_once(site: Served, look: Look) -> None:
    page = ready(look(f"{site.url}/?q=task:wide"))
    page.get_by_role("button", name=re.compile("show all")).click()
    held = Held(page, "**/messages/0?*")
    page.keyboard.press("End")
    held.wait()
    for key in ("Home", "End", "Home", "End"):
        page.keyboard.press(key)
    held.release()
    at_rest(page)
    asked = [url for url in page.asked if "/messages/0?" in url]
    assert len(asked) == len(set(asked)) > 0
    expect(page.get_by_role("button", name=re.compile("show less"))).to_be_in_viewport()
    assert page.wrong == []


def test_more_tasks_come_once(demo_site: Served, look: Look) -> None:
    page = look(f"{demo_site.url}/?s=tasks")
    more = page.get_by_role("button", name=re.compile("show more"))
    expect(more).to_be_visible()
    at_rest(page)
    before = page.locator("tbody tr").count()
    held = Held(page, "**/api/tasks?*")
    more.click()
    held.wait()
    more.click()
    held.release()
    expect(page.locator("tbody tr").nth(before)).to_be_visible()
    at_rest(page)
    shown = page.locator("tbody tr td:first-child").all_inner_texts()
    assert len(shown) == len(set(shown)) > before
    assert page.wrong == []


def test_typing_in_the_query_bar_does_not_walk_a_comparison(site: Served, look: Look) -> None:
    first, *_, last = (row["id"] for row in site.get("rollouts", q="task:q-1")["rows"])
    page = look(f"{site.url}/?s=compare&ids={first},{last}")
    expect(page.locator(".turn.first")).to_be_visible()
    at_rest(page)
    before = page.url
    page.keyboard.press("i")
    page.keyboard.type(" jjj")
    expect(page.get_by_role("textbox", name="Query")).to_contain_text("jjj")
    assert page.url == before


def test_turns_asked_for_before_the_messages_are_here(site: Served, look: Look) -> None:
    row = site.get("rollouts", q="task:long", limit=1)["rows"][0]
    page = look("about:blank")
    held = Held(page, f"**/api/rollouts/{row['id']}?*")
    page.goto(f"{site.url}/?q=task:long&id={row['id']}")
    held.wait()
    page.keyboard.press("J")
    page.keyboard.press("J")
    held.release()
    eventually(lambda: param(page, "m") == "2")
    assert page.wrong == []


def test_a_rollout_is_picked_before_it_is_known_which(site: Served, look: Look) -> None:
    page = look("about:blank")
    held = Held(page, "**/api/start?*")
    page.goto(f"{site.url}/?q=split:train")
    held.wait()
    page.keyboard.press("c")
    held.release()
    expect(page.get_by_role("button", name="1 picked to compare")).to_be_visible()
    assert page.wrong == []


# -- a click does what was clicked ------------------------------------------------------------


def test_what_was_pressed_is_meant_though_it_moves_or_changes_meanwhile(
    site: Served, look: Look
) -> None:
    """What comes between pressing and releasing moved a span away, and the click was lost."""
    page = ready(look(f"{site.url}/?q=split:train"))
    at_rest(page)
    wanted = id_of(other_row(page, 2))
    row = page.locator(f"a.row[href*='{wanted}']")
    row.scroll_into_view_if_needed()
    at_rest(page)
    box = row.bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 10)
    page.mouse.down()
    # What arrives pushes the list down by two rows, as it does on a busy machine.
    page.evaluate("document.querySelector('.left .head').style.setProperty('margin-top', '88px')")
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => done()))")
    page.mouse.up()
    eventually(lambda: param(page, "id") == wanted)
    assert page.wrong == []


def test_siblings_that_arrive_move_nothing(site: Served, look: Look) -> None:
    row = site.get("rollouts", q="task:q-1", limit=1)["rows"][0]
    page = look("about:blank")
    held = Held(page, "**/neighbours")
    page.goto(f"{site.url}/?s=spans&q=task:q-1&id={row['id']}")
    held.wait()
    tools = page.locator(".tools").filter(has_text="spans")
    expect(tools).to_be_visible()
    at = tools.bounding_box()["y"]
    held.release()
    expect(page.get_by_role("tab", selected=True)).to_be_visible()
    assert tools.bounding_box()["y"] == at
    assert page.wrong == []


@pytest.mark.parametrize(
    ("screen", "asked", "control", "gone"),
    [
        ("fate", "funnel", "Scored", "fate"),
        ("failures", "failures", "rollouts", "failures"),
        ("group", "rollouts/*/neighbours", "read", "group"),
    ],
)
def test_a_click_on_what_is_still_pale_is_done_with_its_own_answer(
    site: Served, look: Look, screen: str, asked: str, control: str, gone: str
) -> None:
    page = look(f"{site.url}/?s={screen}&q=split:train")
    kind = "button" if screen == "group" else "link"
    found = page.locator("main").get_by_role(kind, name=re.compile(control)).first
    expect(found).to_be_visible()
    at_rest(page)
    held = Held(page, f"**/api/{asked}*")
    there = site.get("rollouts", q="split:train step:1", at=SIBLINGS + 1)["rows"][0]["id"]
    also = f"&id={there}" if screen == "group" else " step:1"
    visit(page, f"?s={screen}&q=split:train{also}")
    held.wait()
    expect(page.locator("main .old").first).to_be_visible()
    found.click()
    assert param(page, "s") == gone
    held.release()
    eventually(lambda: param(page, "s") == "None")
    if screen == "group":
        mine = site.get(f"rollouts/{there}/neighbours")["siblings"]
        assert param(page, "id") in [row["id"] for row in mine]
    else:
        assert param(page, "q").startswith("split:train step:1")
    assert page.wrong == []


# -- the address is the person's --------------------------------------------------------------


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two rollouts, of which only one has entropies."""
    folder = tmp_path_factory.mktemp("streamed")
    with rollscope.init(project="p", run="r", dir=folder) as run:
        for n, streams in enumerate(({"entropy": [0.5]}, {})):
            tokens = Tokens([7], ends=[4], logprob=[-0.5], **streams)
            said = Message(role="assistant", content="word", sampled=True, tokens=tokens)
            run.log(Rollout(key=str(n), step=1 - n, task=f"t{n}", reward=1.0, messages=[said]))
    with serving(folder) as served:
        yield served


def test_back_shows_the_stream_that_was_shown(streamed: Served, look: Look) -> None:
    first, second = (row["id"] for row in streamed.get("rollouts")["rows"])
    page = ready(look(f"{streamed.url}/?id={first}&view=tokens&stream=entropy"))
    expect(page.locator(".strip .head b")).to_have_text("entropy")
    page.keyboard.press("j")
    until(page, "() => new URL(location).searchParams.get('stream') === 'logprob'")
    at_rest(page)
    held = Held(page, f"**/api/rollouts/{first}?*")
    page.go_back()
    held.wait()
    held.release()
    at_rest(page)
    assert (param(page, "id"), param(page, "stream")) == (first, "entropy")
    assert second != first


def test_another_rollout_is_not_shown_by_the_branch_of_the_one_before(
    site: Served, look: Look
) -> None:
    page = ready(look(f"{site.url}/?q=task:tree"))
    page.get_by_role("combobox", name="Branch").select_option("1")
    expect(page).to_have_url(re.compile("leaf=1"))
    page.get_by_role("link", name="All rollouts").or_(page.locator(".count a").first).first.click()
    ready(page)
    expect(page.locator("article.card").last).to_contain_text("There are")
    assert param(page, "leaf") == "None"


def test_a_place_in_another_selection_is_not_taken_for_one_in_this(
    tmp_path: Path, look: Look
) -> None:
    with recorded(tmp_path, 130) as site:
        here, after = site.get("rollouts", q="index:0", order="step", at=120, limit=2)["rows"]
        page = look("about:blank")
        held = Held(page, "**/place?*")
        page.goto(f"{site.url}/?order=step&id={here['id']}")
        held.wait()
        visit(page, f"?q=index:0&order=step&id={here['id']}")
        expect(page.get_by_role("search")).to_contain_text("130 of 260")
        held.release()
        at_rest(page)
        page.keyboard.press("j")
        left(page, here["id"])
        assert param(page, "id") == after["id"]
        assert page.wrong == []
