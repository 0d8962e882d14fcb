"""Real rollouts of others, a running job, and a person who labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import rollscope
from rollscope.cli import main
from rollscope.model import Message, Rollout
from server.conftest import Served, serving

from .pages import Look, Shoot, eventually, left, until

DATA = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    if not DATA.is_dir():
        pytest.skip("the shared data is not here")
    directory = tmp_path_factory.mktemp("imported")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROLLSCOPE_SEAL", "off")
        for name in ("swe-agent", "inspect-reward-hacking", "nemo-gym"):
            assert main(["import", str(DATA / name), "--dir", str(directory)]) == 0
    with serving(directory) as served:
        yield served


@pytest.mark.parametrize("run", ["swe-agent", "inspect-reward-hacking", "nemo-gym"])
def test_what_others_wrote_can_be_read(
    imported: Served, look: Look, shoot: Shoot, run: str
) -> None:
    page = look(f"{imported.url}/?q=run:{run}")
    expect(page.locator("article.card").first).to_be_visible()
    shoot(page, f"imported-{run}")
    before = page.url
    page.keyboard.press("j")
    until(page, "url => location.href !== url", before)
    for screen, text in (("table", "last words"), ("group", "compare all"), ("tasks", "never")):
        page.goto(f"{imported.url}/?s={screen}&q=run:{run}")
        expect(page.get_by_text(text).first).to_be_visible()
    assert page.wrong == []


def test_tokens_of_others_are_shown(imported: Served, look: Look) -> None:
    page = look(f"{imported.url}/?q=run:nemo-gym response_tokens:>0&view=tokens&stream=logprob")
    expect(page.locator(".strip .head b")).to_have_text("logprob")
    expect(page.get_by_role("button", name=re.compile("lowest"))).to_be_visible()
    assert page.wrong == []


def test_tasks_of_one_name_are_told_apart_by_their_dataset(imported: Served, look: Look) -> None:
    page = look(f"{imported.url}/?s=tasks&q=run:nemo-gym task:0")
    names = page.locator("tbody td:first-child")
    expect(names.nth(1)).to_contain_text("/data/")
    shown = names.all_inner_texts()
    assert len(shown) == len(set(shown))
    assert page.wrong == []


def some(first: int, count: int) -> list[Rollout]:
    return [
        Rollout(
            key=f"{n}-{i}",
            step=n,
            split="train",
            task=f"t{n}",
            group=f"g{n}",
            index=i,
            reward=float(i),
            messages=[
                Message(role="user", content=f"question {n}"),
                Message(role="assistant", content=f"answer {i}", sampled=True),
            ],
        )
        for n in range(first, first + count)
        for i in range(2)
    ]


@contextmanager
def recorded(folder: Path, steps: int) -> Iterator[Served]:
    """A run of so many steps that has ended, served."""
    with rollscope.init(project="p", run="r", dir=folder) as run:
        run.log(some(0, steps))
    with serving(folder) as site:
        yield site


def test_new_rollouts_appear_without_losing_place(tmp_path: Path, look: Look) -> None:
    run = rollscope.init(project="p", run="r", dir=tmp_path)
    run.log(some(0, 3))
    run.flush()
    with serving(tmp_path) as site:
        page = look(f"{site.url}/?q=project:p")
        expect(page.locator("article.card").first).to_contain_text("question 2")
        expect(page.get_by_role("search")).to_contain_text("6 of 6")
        before = page.url
        run.log(some(3, 2))
        expect(page.get_by_role("search")).to_contain_text("10 of 10")
        expect(page.get_by_text("+4 new")).to_be_visible()
        rows = page.get_by_role("listbox", name="Rollouts")
        expect(rows).to_contain_text("t4")
        expect(page.locator("article.card").first).to_contain_text("question 2")
        assert page.url == before
        page.get_by_text("+4 new").click()
        expect(page.locator("article.card").first).to_contain_text("question 4")
        expect(page.get_by_text("+4 new")).to_have_count(0)
        run.finish()
        assert page.wrong == []


def test_many_tabs_can_be_open_and_all_are_live(tmp_path: Path, browser: Any) -> None:
    """A browser opens six lines to a server at most: tabs share the one that tells what is new."""
    run = rollscope.init(project="p", run="r", dir=tmp_path)
    run.log(some(0, 3))
    run.flush()
    with serving(tmp_path) as site, closing(browser.new_context()) as tabs:
        pages = [tabs.new_page() for _ in range(8)]
        for page in pages:
            page.goto(site.url, timeout=120_000)
            expect(page.locator("article.card").first).to_be_visible()
        run.log(some(3, 2))
        for page in pages:
            expect(page.get_by_text("+4 new")).to_be_visible()
    run.finish()


def test_a_server_that_is_gone_is_told(tmp_path: Path, look: Look) -> None:
    with recorded(tmp_path, 3) as site:
        page = look(f"{site.url}/?q=project:p")
        expect(page.locator("article.card").first).to_be_visible()
    page.keyboard.press("f")
    expect(page.get_by_role("alert")).to_contain_text("does not answer")
    page.keyboard.press("r")
    expect(page.locator(".said")).to_contain_text("does not answer")


def test_one_key_labels_and_goes_on(tmp_path: Path, look: Look) -> None:
    with recorded(tmp_path, 3) as site:
        first = site.get("rollouts")["rows"][0]["id"]
        page = look(f"{site.url}/?id={first}")
        expect(page.locator("article.card").first).to_be_visible()
        page.keyboard.press("2")
        left(page, first)
        assert site.get("rollouts", q="label:bad")["rows"][0]["id"] == first
        page.goto(f"{site.url}/?q=label:bad")
        expect(page.get_by_role("complementary", name="Facts")).to_contain_text("★ bad")
        assert page.wrong == []


def test_a_label_goes_on_to_the_next_also_before_the_list_is_here(
    tmp_path: Path, look: Look
) -> None:
    with recorded(tmp_path, 3) as site:
        first = site.get("rollouts")["rows"][0]["id"]
        page = look("about:blank")
        held: list[Any] = []
        page.route("**/api/rollouts?*", lambda route: held.append(route))
        page.goto(f"{site.url}/?id={first}")
        expect(page.locator("article.card").first).to_be_visible()
        page.keyboard.press("2")
        eventually(lambda: site.get("rollouts", q="label:bad")["rows"])
        page.route("**/api/rollouts?*", lambda route: route.continue_())
        for route in held:
            route.continue_()
        left(page, first)
        assert page.wrong == []


def test_a_label_of_ones_own_and_a_note_are_kept(tmp_path: Path, look: Look) -> None:
    with recorded(tmp_path, 3) as site:
        first = site.get("rollouts")["rows"][0]["id"]
        page = look(f"{site.url}/?id={first}")
        expect(page.locator("article.card").first).to_be_visible()
        page.keyboard.press("l")
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Another label").fill("odd-units")
        dialog.get_by_label("Note").fill("counts in dozens")
        dialog.get_by_role("button", name="Keep").click()
        left(page, first)
        assert site.get("rollouts", q="label:odd-units")["rows"][0]["id"] == first
        notes = site.get(f"rollouts/{first}")["notes"]
        assert "counts in dozens" in {note["value"] for note in notes}
        assert all(note["author"] and note["time"] for note in notes)
