"""What checks found, on the page: counts are links, and a finding leads to its message."""

from __future__ import annotations

import re
from itertools import accumulate
from pathlib import Path

import pytest
from playwright.sync_api import expect

import rollscope
from rollscope import Message, Rollout
from rollscope.checks import scan
from rollscope.model import Tokens
from server.conftest import serving

from .pages import Look, Shoot, ready, until

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


THOUGHT = "So *one* thing, `two` things and [three](https://example.org/a/long/way). " * 900
ROUND = "I go **round** and round.\n\n"


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Findings far down in long messages: of characters, in markdown, and of tokens."""
    folder = tmp_path_factory.mktemp("deep")
    words = [f"word{n} " for n in range(8_000)]
    ends = list(accumulate(map(len, words)))
    drawn = [-1.0 - n % 3 for n in range(8_000)]
    drawn[4_000:7_100] = [-1e-6] * 3_100
    tokens = Tokens(list(range(8_000)), ends=ends, streams={"logprob": drawn})
    said = {
        "loop": Message(role="assistant", content=THOUGHT + ROUND * 40, sampled=True),
        "sure": Message(role="assistant", content="".join(words), tokens=tokens, sampled=True),
    }
    ask = Message(role="user", content="how many?")
    with rollscope.init(project="p", run="r", dir=folder) as run:
        for n, (id, message) in enumerate(said.items()):
            run.log(Rollout(id=id, step=0, task=id, index=n, messages=[ask, message]))
    scan(rollscope.open(folder))
    return folder


MARKED = """() => {
    const box = document.querySelector('.scroll.cards').getBoundingClientRect();
    const ranges = [...(CSS.highlights.get('hit-now') ?? [])];
    const [at] = ranges.map(range => range.getBoundingClientRect());
    const seen = at && at.height > 0 && at.top >= box.top - 1 && at.top < box.bottom;
    return seen ? ranges.map(range => range.toString()).join('') : '';
}"""
ROUNDS = "() => /^(I go round and round\\.\\s*)+$/.test(({})())".replace("{}", MARKED)
SURE = "() => /^word4000\\W(?!.*word7100)/s.test(({})())".replace("{}", MARKED)


def test_what_a_finding_is_about_is_marked_far_down_in_a_long_message(
    deep: Path, look: Look, shoot: Shoot
) -> None:
    with serving(deep) as site:
        page = ready(look(f"{site.url}/?id=loop"))
        assert page.evaluate(MARKED) == ""
        page.locator("a.finding", has_text="reply.loop").click()
        until(page, ROUNDS)
        shoot(page, "finding-deep")
        page.evaluate("() => document.activeElement.blur()")  # the keys mean the transcript
        page.keyboard.press("Home")
        expect(page.get_by_text("how many?")).to_be_in_viewport()
        page.locator("article .chip", has_text="reply.loop").click()
        until(page, ROUNDS)
        shared = ready(look(page.url))
        until(shared, ROUNDS)
        asked = ready(look(f"{site.url}/?q=flag:reply.loop"))
        until(asked, ROUNDS)
        assert page.wrong == []


@pytest.mark.parametrize("view", ["text", "tokens", "raw"])
def test_the_tokens_that_a_finding_is_about_are_marked(deep: Path, look: Look, view: str) -> None:
    with serving(deep) as site:
        page = ready(look(f"{site.url}/?id=sure&view={view}&stream=logprob"))
        page.locator("a.finding", has_text="reply.certain").click()
        until(page, SURE)
        assert page.wrong == []


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rollouts with no flag, with one, and with four."""
    folder = tmp_path_factory.mktemp("many")
    with rollscope.init(project="p", run="r", dir=folder) as run:
        for n, names in enumerate(["", "reply.loop", "a.one b.two c.three reply.loop"]):
            run.log(Rollout(id=f"r{n}", step=0, task=f"t{n}"))
            run.annotate(f"r{n}", **{f"flag.{name}": True for name in names.split()})
    return folder


@pytest.mark.parametrize("screen", ["read", "table"])
def test_rows_name_two_flags_and_are_no_higher_for_it(
    many: Path, look: Look, shoot: Shoot, screen: str
) -> None:
    with serving(many) as site:
        page = look(f"{site.url}/?s={screen}&id=r0")
        rows = page.get_by_role("listbox", name="Rollouts").get_by_role("option")
        expect(rows).to_have_count(3)
        full = rows.filter(has_text="t2")
        expect(full.locator(".chip")).to_have_text(["⚑ one", "⚑ two"])
        expect(full.get_by_title("a.one, b.two, c.three, reply.loop")).to_contain_text("+2")
        expect(rows.filter(has_text="t1").locator(".chip")).to_have_text("⚑ loop")
        expect(rows.filter(has_text="t0").locator(".chip")).to_have_count(0)
        assert len({rows.nth(n).bounding_box()["height"] for n in range(3)}) == 1
        assert page.evaluate("() => [...document.querySelectorAll('[role=option]')].every("
                             "row => row.scrollHeight <= row.clientHeight)")  # fmt: skip
        shoot(page, f"flags-{screen}")
        assert page.wrong == []


def test_the_facet_of_flags_selects(many: Path, look: Look) -> None:
    with serving(many) as site:
        page = look(f"{site.url}/?id=r0")
        facet = page.locator(".facet", has=page.get_by_text("flag", exact=True))
        loops = facet.get_by_role("link", name=re.compile(r"reply\.loop"))
        expect(loops).to_contain_text("2")
        loops.click()
        expect(page).to_have_url(re.compile(r"q=flag:reply\.loop"))
        expect(page.get_by_role("search")).to_contain_text("2 of 3")
        rows = page.get_by_role("listbox", name="Rollouts").get_by_role("option")
        expect(rows).to_have_count(2)
        expect(loops).to_have_attribute("aria-current", "true")
        loops.click()
        expect(rows).to_have_count(3)
        assert page.wrong == []
