"""What checks found, on the page: counts are links, and a finding leads to its message."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

import rollscope
from rollscope import Message, Rollout
from rollscope.checks import scan
from server.conftest import serving

from .pages import Look

LOOP = "and then I check it once more, " * 60


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("found")
    with rollscope.init(project="p", run="r", dir=folder) as run:
        for n in range(6):
            said = LOOP if n == 2 else f"It is {n}, because {n} comes after {n - 1}."
            messages = [Message(role="user", content="how many?"),
                        Message(role="assistant", content=said, sampled=True)]  # fmt: skip
            run.log(Rollout(id=f"r{n}", step=0, task="t", index=n, messages=messages))
    return folder


def test_before_anybody_looked_the_page_says_so(store: Path, look: Look) -> None:
    with serving(store) as site:
        page = look(f"{site.url}/?s=findings")
        expect(page.get_by_role("heading", name="Nobody has looked yet")).to_be_visible()
        row = page.locator("tr", has_text="reply.loop")
        expect(row.locator("td.unlooked")).to_have_text("6")
        expect(row.locator("td.found")).to_have_text("0")
        assert page.wrong == []


def test_each_number_is_a_link_and_a_finding_leads_to_its_message(store: Path, look: Look) -> None:
    scan(rollscope.open(store))
    with serving(store) as site:
        page = look(f"{site.url}/?s=findings")
        row = page.locator("tr", has_text="reply.loop")
        expect(row.locator("td.found")).to_have_text("1")
        expect(row.locator("td.clear")).to_have_text("5")
        row.locator("td.clear a").click()
        expect(page.get_by_role("search")).to_contain_text("5 of 6")
        page.go_back()
        row.locator("td.found a").click()
        expect(page.get_by_role("search")).to_contain_text("1 of 6")
        finding = page.locator("a.finding", has_text="reply.loop")
        expect(finding).to_contain_text("#1")
        finding.click()
        expect(page).to_have_url(re.compile(r"id=r2.*m=1|m=1.*id=r2"))
        card = page.get_by_role("article", name="assistant, message 1")
        expect(card.locator(".chip", has_text="reply.loop")).to_be_visible()
        board = look(f"{site.url}/?s=group&id=r2").locator(".board")
        expect(board.locator("article.on .chip", has_text="reply.loop")).to_be_visible()
        expect(board.locator(".chip", has_text="reply.loop")).to_have_count(1)
        compared = look(f"{site.url}/?s=compare&ids=r2,r3")
        expect(compared.locator(".side-head .chip", has_text="reply.loop")).to_have_count(1)
        assert page.wrong == []
