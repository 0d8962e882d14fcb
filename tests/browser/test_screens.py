"""Every screen, walked as a person would. Pictures are kept under out/screenshots."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from server.conftest import Served
from server.made import SIBLINGS, STEPS, TASKS

from .pages import Look, Shoot, at_rest, eventually, intercept, left, param, ready, until


def test_it_opens_on_a_mixed_group_with_a_transcript_in_sight(
    site: Served, look: Look, shoot: Shoot
) -> None:
    page = ready(look(site.url))
    rewards = page.get_by_role("tablist", name="Siblings").locator("b")
    eventually(lambda: len(set(rewards.all_inner_texts())) == 2)
    expect(page.get_by_role("complementary", name="Facts")).to_contain_text("reference")
    expect(page.get_by_text(f"step {STEPS - 1} · train")).to_be_visible()
    shoot(page, "rollouts")
    assert page.wrong == []


def test_a_sorted_list_opens_at_its_top(site: Served, look: Look) -> None:
    page = look(f"{site.url}/?order=-turns")
    rows = page.get_by_role("listbox", name="Rollouts").get_by_role("option")
    expect(rows.first).to_have_attribute("aria-selected", "true")
    assert page.wrong == []


def test_from_the_start_to_the_first_divergence_takes_at_most_six_keys(
    site: Served, look: Look, shoot: Shoot
) -> None:
    page = ready(look(site.url))
    page.keyboard.press("b")
    pin = page.get_by_text("first divergence")
    expect(pin).to_be_in_viewport()
    sides = page.locator(".turn.first .side mark")
    expect(sides.first).to_be_visible()
    shoot(page, "compare")
    page.keyboard.press("Escape")
    ready(page)
    assert page.wrong == []


def test_keys_walk_rows_siblings_groups_and_steps(site: Served, look: Look) -> None:
    page = ready(look(f"{site.url}/?q=split:train"))
    seen = {param(page, "id")}
    for key in ("]", "[", "{", "}", ",", "."):
        before = param(page, "id")
        page.keyboard.press(key)
        left(page, before)
        ready(page)
        seen.add(param(page, "id"))
    assert len(seen) >= 4
    page.keyboard.press("k")
    page.keyboard.press("r")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("compare best and worst")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert page.wrong == []


def test_back_and_forward_go_where_one_was(site: Served, look: Look) -> None:
    page = ready(look(site.url))
    first = page.url
    page.keyboard.press("g")
    expect(page).to_have_url(re.compile("s=group"))
    page.keyboard.press("f")
    expect(page).to_have_url(re.compile("s=fate"))
    page.go_back()
    page.go_back()
    expect(page).to_have_url(first)
    ready(page)
    page.go_forward()
    expect(page).to_have_url(re.compile("s=group"))


def test_a_link_shows_the_same_place_again(site: Served, look: Look) -> None:
    page = ready(look(f"{site.url}/?q=task:q-2&view=tokens&stream=logprob"))
    address, task = page.url, page.locator(".where b").inner_text()
    other = ready(look(address))
    assert other.locator(".where b").inner_text() == task
    expect(other.get_by_role("combobox", name="Stream")).to_have_value("logprob")


def test_a_list_that_is_left_while_it_scrolls_leaves_no_error(site: Served, look: Look) -> None:
    page = ready(look(f"{site.url}/?q=split:train"))
    at_rest(page)
    page.evaluate(
        """() => {
            document.querySelector('.rows').scrollTop = 400;
            dispatchEvent(new KeyboardEvent('keydown', {key: 'f'}));
        }"""
    )
    expect(page.get_by_text("Where they ended")).to_be_visible()
    at_rest(page)
    assert page.wrong == []


def test_the_query_bar_filters_completes_and_marks_errors(
    site: Served, look: Look, shoot: Shoot
) -> None:
    page = ready(look(site.url))
    page.keyboard.press("i")
    page.keyboard.type("fate:dr")
    expect(page.locator(".cm-tooltip-autocomplete")).to_contain_text("dropped")
    # A list that has just opened takes no Enter yet, lest it be taken by mistake.
    opened = page.evaluate("performance.now()")
    until(page, "opened => performance.now() > opened + 100", opened)
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("fate:dropped"))
    expect(page.get_by_role("search")).to_contain_text(re.compile(rf"^{STEPS * SIBLINGS}|\b\d+ of"))
    page.goto(f"{site.url}/?q=stpe:3")
    expect(page.get_by_role("search")).to_contain_text('unknown key "stpe"')
    expect(page.locator(".cm-content .wrong")).to_be_visible()
    shoot(page, "query-error")
    page.get_by_role("button", name="step?").click()
    expect(page).to_have_url(re.compile("q=step:3"))


def test_what_is_being_typed_stays_while_the_page_goes_on(site: Served, look: Look) -> None:
    page = ready(look(site.url))
    query = page.get_by_role("textbox", name="Query")
    query.fill("split:ev")
    before = page.url
    page.locator("a.row[aria-selected=false]").nth(1).click()
    expect(page).not_to_have_url(before)
    ready(page)
    expect(query).to_have_text("split:ev")


def test_facets_and_histograms_filter(site: Served, look: Look) -> None:
    page = ready(look(f"{site.url}/?q=split:train"))
    page.get_by_role("link", name=re.compile(r"^dropped \d")).first.click()
    expect(page).to_have_url(re.compile("fate:dropped"))
    at_rest(page)  # bars of other rollouts stand elsewhere
    bars = page.get_by_role("group", name="step: drag to filter")
    bars.scroll_into_view_if_needed()
    box = bars.bounding_box()
    page.mouse.move(box["x"] + 2, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 3, box["y"] + 10)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"step:0\.\.[12]"))


def test_rows_are_asked_for_before_anything_else_and_the_old_ones_stay_until_then(
    site: Served, look: Look
) -> None:
    page = ready(look(f"{site.url}/?q=split:train"))
    at_rest(page)
    rows = page.get_by_role("listbox", name="Rollouts")
    held: list[Any] = []
    intercept(page, "**/api/rollouts?*", held.append)
    page.asked.clear()
    page.get_by_role("link", name=re.compile(r"^dropped \d")).first.click()
    expect(rows).to_have_attribute("aria-busy", "true")
    expect(rows.get_by_role("option").first).to_be_visible()
    eventually(lambda: page.evaluate("1") and held)
    assert [url for url in page.asked if "/api/" in url] == [held[0].request.url]
    held[0].continue_()
    expect(rows).to_have_attribute("aria-busy", "false")
    at_rest(page)
    asked = {re.findall(r"/api/(\w+)", url)[0] for url in page.asked if "/api/" in url}
    assert {"rollouts", "facets", "histograms"} <= asked


@pytest.mark.parametrize("order", ["", "&order=-response_tokens"])
def test_a_text_search_is_the_only_look_at_all_texts(site: Served, look: Look, order: str) -> None:
    page = ready(look(f"{site.url}/?q=baskets{order}"))
    expect(page.get_by_role("search")).to_contain_text(f"{STEPS * TASKS * SIBLINGS} of")
    facet = page.get_by_role("link", name=f"train {STEPS * TASKS * SIBLINGS}")
    expect(facet).to_be_visible()
    at_rest(page)
    looks = [url for url in page.asked if "q=baskets" in url and "/hits" not in url]
    assert [url.partition("?")[0].rpartition("/")[2] for url in looks] == ["", "search"]


def test_what_a_text_search_found_is_sorted_as_the_server_sorts(site: Served, look: Look) -> None:
    page = ready(look(f"{site.url}/?q=baskets&order=reward"))
    first = page.get_by_role("listbox", name="Rollouts").get_by_role("option").first
    sorted_rows = site.get("rollouts", q="baskets", order="reward", limit=1)["rows"]
    expect(first).to_have_attribute("href", re.compile(f"id={sorted_rows[0]['id']}"))


def test_a_text_search_that_finds_too_much_says_so_and_sorting_looks_at_all(
    site: Served, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollscope.server.streams.FOUND", 10)
    page = ready(look(f"{site.url}/?q=baskets"))
    expect(page.get_by_role("search")).to_contain_text("the first 10 found")
    expect(page.get_by_text("of the first 10 found")).to_be_visible()
    page.get_by_role("combobox", name="Order").select_option("-reward")
    expect(page.get_by_role("search")).to_contain_text(f"{STEPS * TASKS * SIBLINGS} of")


def test_the_ribbon_chooses_steps(site: Served, look: Look) -> None:
    page = ready(look(f"{site.url}/?q=split:train"))
    at_rest(page)
    slider = page.get_by_role("slider", name=re.compile("Step"))
    box = slider.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    expect(page.get_by_text(re.compile(r"rollouts · .*truncated"))).to_be_visible()
    slider.click(position={"x": box["width"] - 4, "y": 20})
    expect(page).to_have_url(re.compile(f"step:{STEPS - 1}"))
    expect(page.get_by_role("search")).to_contain_text(str(TASKS * SIBLINGS))


def test_thinking_folds_and_tool_calls_stand_with_their_results(site: Served, look: Look) -> None:
    page = ready(look(f"{site.url}/?q=task:q-1"))
    thinking = page.get_by_role("button", name=re.compile("Thinking"))
    expect(thinking).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("z")
    expect(thinking).to_have_attribute("aria-expanded", "true")
    card = page.locator("article.card.assistant").first
    expect(card).to_contain_text("calculator")
    expect(card.locator(".answer")).to_contain_text(re.compile(r"\d+"))
    expect(page.locator("math").first).to_be_attached()


def test_one_key_shows_exactly_the_tokens(site: Served, look: Look, shoot: Shoot) -> None:
    page = ready(look(f"{site.url}/?q=task:q-1"))
    page.keyboard.press("x")
    expect(page.locator(".tok").first).to_contain_text("A·")
    shoot(page, "raw")
    page.keyboard.press("x")
    expect(page.locator(".tok")).to_have_count(0)


def test_the_token_lens_colours_jumps_and_tells_exact_values(
    site: Served, look: Look, shoot: Shoot
) -> None:
    page = ready(look(f"{site.url}/?q=task:q-1"))
    page.keyboard.press("t")
    page.get_by_role("combobox", name="Stream").select_option("logprob")
    expect(page.locator(".tok.none").first).to_be_visible()
    expect(page.locator(".strip .head b")).to_have_text("logprob")
    page.get_by_role("button", name=re.compile(r"lowest −")).click()
    at = page.locator(".tok.at")
    expect(at).to_be_in_viewport()
    at.hover()
    expect(page.locator(".tip")).to_contain_text("train_logprob")
    shoot(page, "tokens")
    page.get_by_role("combobox", name="Stream").select_option("ratio")
    expect(page.locator(".strip .head b")).to_have_text("ratio")
    assert page.wrong == []


def test_tokens_fit_texts_of_wide_characters(site: Served, look: Look) -> None:
    page = ready(look(f"{site.url}/?q=task:unicode&view=tokens&stream=logprob"))
    expect(page.locator(".tok").first).to_be_visible()
    tokens = page.locator(".tok:not(.bare)")

    def joined() -> str:
        return "".join(tokens.all_inner_texts()).replace("⟦U+200D⟧", "\u200d")

    eventually(lambda: joined() == "👩‍🚀 naïve 漢字 𝔘𝔫𝔦𝔠𝔬𝔡𝔢")


def test_find_walks_hits(site: Served, look: Look) -> None:
    page = ready(look(f"{site.url}/?q=baskets"))
    expect(page.get_by_text("1 hit")).to_be_visible()
    eventually(lambda: (page.evaluate("CSS.highlights.get('hits')?.size") or 0) >= 1)
    before = param(page, "id")
    page.keyboard.press("n")
    page.keyboard.press("n")
    left(page, before)
    page.keyboard.press("/")
    page.keyboard.type("apples")
    expect(page.get_by_text(re.compile(r"[2-9] hits"))).to_be_visible()


def test_a_sibling_keeps_turn_and_folds(site: Served, look: Look) -> None:
    page = ready(look(f"{site.url}/?q=task:q-1"))
    page.keyboard.press("z")
    page.keyboard.press("J")
    until(page, "() => new URL(location).searchParams.get('m') !== null")
    turn = param(page, "m")
    page.keyboard.press(
        "]" if page.get_by_role("tab").last.get_attribute("aria-selected") != "true" else "["
    )
    ready(page)
    eventually(lambda: param(page, "m") == turn)
    thinking = page.get_by_role("button", name=re.compile("Thinking"))
    expect(thinking).to_have_attribute("aria-expanded", "true")


def test_branches_and_sub_agents_can_be_read(site: Served, look: Look) -> None:
    page = ready(look(f"{site.url}/?q=task:tree"))
    branches = page.get_by_role("combobox", name="Branch")
    expect(branches.locator("option")).to_have_count(3)
    page.get_by_role("button", name="#2").or_(page.get_by_role("button", name="#1")).first.click()
    expect(page).to_have_url(re.compile("leaf="))
    branches.select_option("4")
    expect(page.locator("article.card").first).to_contain_text("sub-agent, begin")


def test_pictures_are_shown_and_remote_ones_only_named(site: Served, look: Look) -> None:
    page = ready(look(f"{site.url}/?q=task:parts"))
    picture = page.locator("img")
    expect(picture).to_have_count(1)
    eventually(lambda: picture.evaluate("img => img.complete && img.naturalWidth === 1"))
    expect(page.get_by_text("image, not loaded: https://example.com")).to_be_visible()
    assert page.wrong == []


def test_a_very_long_rollout_shows_a_window_and_both_its_ends(site: Served, look: Look) -> None:
    page = ready(look(f"{site.url}/?q=task:long"))
    assert page.locator("article.card").count() < 30
    page.locator(".cards").evaluate("box => box.scrollTo(0, box.scrollHeight)")
    expect(page.get_by_text(re.compile("turn 199[0-9]:")).first).to_be_visible()
    assert page.locator("article.card").count() < 30
    page.keyboard.press("o")
    page.get_by_role("navigation", name="Outline").get_by_role("button").first.wait_for()
    wide = ready(look(f"{site.url}/?q=task:wide"))
    wide.get_by_role("button", name=re.compile("show all")).click()
    wide.keyboard.press("End")
    at_rest(wide)
    expect(wide.get_by_role("button", name="show less of 300,000 characters")).to_be_in_viewport()
    assert wide.locator(".piece.wait").count() > 20


def test_the_table_sorts_and_chooses_columns(site: Served, look: Look, shoot: Shoot) -> None:
    page = look(f"{site.url}/?s=table&q=split:train")
    rows = page.get_by_role("listbox", name="Rollouts").get_by_role("option")
    expect(rows.first).to_be_visible()
    shoot(page, "table")
    page.get_by_title("sort by response_tokens").click()
    expect(page).to_have_url(re.compile("order=-response_tokens"))
    page.get_by_role("button", name="columns").click()
    page.get_by_role("button", name="environment").click()
    expect(page).to_have_url(re.compile("cols=.*environment"))
    expect(rows.first).to_contain_text("farm")
    rows.nth(2).click()
    ready(page)


@pytest.mark.parametrize(
    ("screen", "text"),
    [
        ("group", "compare best and worst"),
        ("tasks", "never solved"),
        ("task&task=q-1&dataset=apples", "first success"),
        ("fate", "Where they ended"),
        ("failures", "SandboxDied"),
        ("spans", "calculator"),
    ],
)
def test_every_screen_shows_what_it_is_for(
    site: Served, look: Look, shoot: Shoot, screen: str, text: str
) -> None:
    page = look(f"{site.url}/?s={screen}")
    expect(page.get_by_text(text).first).to_be_visible()
    at_rest(page)
    shoot(page, screen.partition("&")[0])
    assert page.wrong == []


def test_every_count_is_a_link(site: Served, look: Look) -> None:
    page = look(f"{site.url}/?s=fate&q=split:train")
    link = page.get_by_role("link", name=re.compile("dropped"))
    expect(link).to_be_visible()
    count = re.search(r"(\d+)", link.inner_text().split("dropped")[1]).group(1)  # type: ignore[union-attr]
    link.click()
    expect(page.get_by_role("search")).to_contain_text(f"{count} of")


def test_two_cells_of_a_history_can_be_compared(site: Served, look: Look) -> None:
    page = look(f"{site.url}/?s=task&task=q-1&dataset=apples")
    cells = page.locator(".cell")
    expect(cells).to_have_count(STEPS * SIBLINGS)
    cells.nth(0).click(modifiers=["Shift"])
    cells.nth(9).click(modifiers=["Shift"])
    expect(page.get_by_text("2 rollouts")).to_be_visible()
    expect(page.get_by_text("What else differs")).to_be_visible()


def test_it_works_small_and_dark(site: Served, look: Look, shoot: Shoot) -> None:
    page = ready(look(site.url, width=1024, height=720))
    assert page.evaluate("document.documentElement.scrollWidth") <= 1024
    shoot(page, "small")
    dark = ready(look(site.url, dark=True))
    assert dark.evaluate("document.documentElement.dataset.theme") == "dark"
    shoot(dark, "dark")


def test_first_load_stays_small(site: Served, look: Look) -> None:
    page = ready(look(site.url))
    at_rest(page)
    scripts = page.evaluate(
        "performance.getEntriesByType('resource').filter(e => e.name.endsWith('.js'))"
        ".map(e => [e.name.split('/').pop(), e.encodedBodySize])"
    )
    first = [size for name, size in scripts if not re.match("katex|code-", name)]
    assert sum(first) <= 250_000, scripts
