"""Many runs, many parts: the user's own keys, tasks against runs, and rows that name their run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from server import many
from server.conftest import Served, serving

from .pages import Look, Shoot, at_rest, param, ready


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
