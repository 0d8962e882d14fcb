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
