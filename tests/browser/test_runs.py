"""Many runs, many parts: the user's own keys, tasks against runs, and rows that name their run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from server import many
from server.conftest import Served, serving

from .pages import Look, Shoot, at_rest, eventually, param, ready


@pytest.fixture(scope="module")
def runs_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory: Path = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROLLSCOPE_SEAL", "off")
        many.trainings(directory)
        many.models(directory, models=6, tasks=40)
    with serving(directory) as served:
        yield served


LONG = "project:long-runs"


def test_parts_of_the_reward_and_meta_are_drawn_and_filter(
    runs_site: Served, look: Look, shoot: Shoot
) -> None:
    page = ready(look(f"{runs_site.url}/?q={LONG}"))
    facets = page.get_by_role("complementary", name="Selection")
    for name in ('rewards."exact match"', "meta.level", "meta.source.line"):
        expect(facets.get_by_role("group", name=f"{name}: drag to filter")).to_be_attached()
    expect(facets).to_contain_text("1 more key")  # uid: each rollout has another
    facets.get_by_role("link", name=re.compile("^日本語")).click()
    expect(page).to_have_url(re.compile("meta.lang"))
    at_rest(page)
    expect(page.get_by_role("search")).to_contain_text(re.compile(r"1,320 of"))
    shoot(page, "facets-own")
    assert page.wrong == []


def test_a_project_has_its_own_columns_and_the_address_has_them_too(
    runs_site: Served, look: Look, shoot: Shoot
) -> None:
    page = look(f"{runs_site.url}/?s=table&q={LONG}")
    table = page.get_by_role("region", name="Rollouts")
    page.get_by_role("button", name="columns").click()
    columns = page.get_by_role("group", name="Columns")
    for name in ("meta.lang", 'rewards."exact match"', "preview"):
        columns.get_by_role("button", name=name, exact=True).click()
    page.get_by_role("button", name="columns", exact=True).click()
    head = table.get_by_role("group", name="Sort by")
    head.get_by_role("button", name="exact match").click()
    expect(page).to_have_url(re.compile("order=-rewards"))
    at_rest(page)
    rows = table.get_by_role("option")
    expect(rows.first).to_contain_text(re.compile("en|de|日本語"))
    shoot(page, "table-own")
    assert "meta.lang" in param(page, "cols")
    # The same project opens with them; another has its own.
    page.goto(f"{runs_site.url}/?s=table&q={LONG}")
    expect(head).to_contain_text("lang")
    page.goto(f"{runs_site.url}/?s=table&q=project:models")
    expect(head).to_contain_text("last words of the policy")
    expect(head).not_to_contain_text("lang")
    assert page.wrong == []


def test_keys_and_values_of_ones_own_are_completed(runs_site: Served, look: Look) -> None:
    page = ready(look(f"{runs_site.url}/?q={LONG}"))
    at_rest(page)
    offered = page.locator(".cm-tooltip-autocomplete")
    page.keyboard.press("i")
    page.keyboard.type(" meta.so")
    expect(offered).to_contain_text("meta.source.file")
    page.keyboard.type("urce.file:")
    expect(offered).to_contain_text("part-3.jsonl")
    assert page.wrong == []


MODELS = "project:models"


def test_models_stand_side_by_side_and_two_of_them_are_compared(
    runs_site: Served, look: Look, shoot: Shoot
) -> None:
    page = look(f"{runs_site.url}/?s=tasks&q={MODELS}")
    link = page.get_by_role("link", name="6 runs taken together")
    expect(link).to_be_visible()  # of those selected, not of all eleven
    expect(page.get_by_role("columnheader", name="first")).to_have_count(0)  # nothing has steps
    link.click()
    grid = page.get_by_role("grid", name="Tasks by run")
    head = grid.get_by_role("columnheader")
    expect(head).to_have_count(3 + 6)
    expect(page.get_by_text("40 tasks × 6 runs")).to_be_visible()
    shoot(page, "matrix")
    for name in ("model-05", "model-00"):
        page.get_by_role("button", name=f"compare {name}").click()
    expect(page).to_have_url(re.compile("base=.*other="))
    first = grid.get_by_role("row").nth(1)
    expect(first.locator(".by")).to_have_text("+100 pp")
    page.get_by_role("button", name="B − A").click()
    expect(first.locator(".by")).to_have_text("−100 pp")
    expect(grid.locator("a.cell").first).to_have_text("100 %")
    address = page.url
    first.locator(".by button").click()
    expect(page).to_have_url(re.compile("s=compare"))
    assert len(param(page, "ids").split(",")) == 2
    expect(page.locator(".side-head")).to_have_count(2)
    expect(page.locator(".side-head").first).to_contain_text("model-05")
    page.go_back()
    expect(page).to_have_url(address)
    expect(first.locator(".by")).to_have_text("−100 pp")
    assert page.wrong == []


def test_every_number_of_the_matrix_leads_to_its_rollouts(runs_site: Served, look: Look) -> None:
    page = look(f"{runs_site.url}/?s=matrix&q={LONG}&across=step")
    grid = page.get_by_role("grid", name="Tasks by step")
    expect(grid.get_by_role("columnheader")).to_have_count(3 + 20)  # 200 steps, as ranges
    told = grid.locator("a.cell").first.get_attribute("title")
    rollouts = re.search(r"([\d,]+) rollouts", told or "")
    assert rollouts
    grid.locator("a.cell").first.click()
    expect(page.get_by_role("search")).to_contain_text(f"{rollouts[1]} of")
    assert "step:0..9" in param(page, "q")
    page.go_back()
    # The keys alone: from cell to cell, and two of them to compare.
    grid.locator("a.cell").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("c")
    expect(grid.locator("a.cell.held")).to_have_count(1)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("c")
    expect(page).to_have_url(re.compile("s=compare"))
    assert len(param(page, "ids").split(",")) == 8
    page.keyboard.press("m")
    expect(grid).to_be_visible()
    assert page.wrong == []


def test_twenty_models_by_five_hundred_tasks_are_scrolled_both_ways(
    look: Look, shoot: Shoot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLSCOPE_SEAL", "off")
    many.models(tmp_path)
    with serving(tmp_path) as served:
        page = look(f"{served.url}/?s=matrix&sort=task")
        grid = page.get_by_role("grid", name="Tasks by run")
        expect(grid.get_by_role("link", name="task-000")).to_be_visible()
        assert grid.locator("a.cell").count() < 2000  # only what is near
        grid.evaluate("box => box.scrollTo(box.scrollWidth, box.scrollHeight)")
        expect(grid.get_by_role("link", name="task-499")).to_be_in_viewport()
        expect(grid.get_by_role("link", name="model-19")).to_be_in_viewport()
        shoot(page, "matrix-large")
        assert page.wrong == []


def test_most_of_a_small_screen_belongs_to_the_transcript(
    runs_site: Served, look: Look, shoot: Shoot
) -> None:
    page = ready(look(f"{runs_site.url}/?q={LONG}", width=1024, height=768))
    at_rest(page)
    expect(page.locator(".ribbon svg")).to_be_visible()
    height = page.locator(".cards").bounding_box()["height"]
    assert height >= 768 * 2 / 3
    shoot(page, "small")
    assert page.wrong == []


def test_the_ribbon_of_many_runs_can_be_read(runs_site: Served, look: Look, shoot: Shoot) -> None:
    page = ready(look(f"{runs_site.url}/?q={LONG}"))
    at_rest(page)
    ribbon = page.get_by_role("region", name="Steps")
    lanes = ribbon.locator(".lane .name")
    expect(lanes).to_have_count(5)
    expect(lanes.nth(0)).to_contain_text("qwen3-4b-grpo-lr1e-6-kl0-seed0")
    assert lanes.evaluate_all("all => all.every(one => one.scrollWidth <= one.clientWidth)")
    axis = ribbon.locator("svg text")
    assert {"0", "1", "100"} <= set(axis.all_text_contents())  # of both axes
    lines = ribbon.locator("path.mean")
    smooth = lines.first.get_attribute("d")
    ribbon.get_by_role("combobox", name="Smoothing").select_option("1")
    expect(page).to_have_url(re.compile("smooth=1"))
    expect(lines.first).not_to_have_attribute("d", smooth)
    plot = ribbon.get_by_role("slider")
    low = plot.bounding_box()["height"]
    ribbon.get_by_role("combobox", name="Smoothing").blur()
    page.keyboard.press("R")
    expect(page).to_have_url(re.compile("ribbon=tall"))
    eventually(lambda: plot.bounding_box()["height"] > 2 * low)
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    said = ribbon.get_by_text(re.compile(r"20 rollouts · .*dead groups"))
    expect(said).to_be_visible()
    covered = lines.evaluate_all(
        "all => Math.max(...all.map(l => l.getBoundingClientRect().bottom))"
    )
    assert said.bounding_box()["y"] >= covered  # below the lines
    expect(ribbon.locator(".here-value b")).to_have_count(5)
    shoot(page, "ribbon-tall")
    ribbon.get_by_role("button", name="Fold ribbon").click()
    expect(plot).to_have_count(0)
    ribbon.get_by_role("button", name=re.compile("steps 0 … 199")).click()
    expect(plot).to_be_visible()
    assert page.wrong == []


def test_panels_are_resized_and_fold(runs_site: Served, look: Look, shoot: Shoot) -> None:
    page = ready(look(f"{runs_site.url}/?q={LONG}"))
    at_rest(page)
    panel = page.get_by_role("complementary", name="Selection")
    width = panel.bounding_box()["width"]
    edge = page.get_by_role("separator", name="Size of list")
    edge.focus()
    page.keyboard.press("ArrowRight")
    eventually(lambda: abs(panel.bounding_box()["width"] - width - 24) < 2)
    facts = page.get_by_role("complementary", name="Facts")
    narrow = facts.bounding_box()["width"]
    box = page.get_by_role("separator", name="Size of facts").bounding_box()
    page.mouse.move(box["x"] + 3, box["y"] + 300)
    page.mouse.down()
    page.mouse.move(box["x"] - 77, box["y"] + 300, steps=4)
    page.mouse.up()
    eventually(lambda: abs(facts.bounding_box()["width"] - narrow - 80) < 4)
    page.reload()
    ready(page)
    eventually(lambda: abs(facts.bounding_box()["width"] - narrow - 80) < 4)  # it is kept
    page.get_by_role("separator", name="Size of facts").dblclick()
    eventually(lambda: abs(facts.bounding_box()["width"] - narrow) < 2)
    page.keyboard.press("|")
    expect(facts).to_have_count(0)
    page.get_by_role("button", name="Hide list and facets").click()
    expect(page).to_have_url(re.compile("list=no.*facts=no"))
    expect(panel).to_have_count(0)
    shoot(page, "folded")
    page.get_by_role("button", name="Show facts").click()
    page.get_by_role("button", name="Show list and facets").click()
    expect(facts).to_be_visible()
    expect(panel).to_be_visible()
    assert page.wrong == []


def test_rows_of_several_runs_say_which(runs_site: Served, look: Look) -> None:
    page = ready(look(f"{runs_site.url}/?q={LONG}"))
    rows = page.get_by_role("listbox", name="Rollouts").get_by_role("option")
    expect(rows.locator(".run").first).to_have_text(re.compile(r"^…lr\de-6-kl\d-seed\d$"))
    expect(page.get_by_role("button", name="5 runs ▾")).to_be_visible()
    page.goto(f"{runs_site.url}/?s=table&q={LONG}")
    head = page.get_by_role("group", name="Sort by")
    expect(head.get_by_role("button").first).to_have_text("run")
    one = "qwen3-4b-grpo-lr2e-6-kl1-seed1"
    page.goto(f"{runs_site.url}/?q=run:{one}")
    ready(page)
    expect(page.get_by_role("button", name=f"{one} ▾")).to_be_visible()
    expect(rows.first).to_be_visible()
    expect(rows.locator(".run")).to_have_count(0)
    assert page.wrong == []
