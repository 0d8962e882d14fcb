"""Alarms of checks over steps are marks in the ribbon, in a bundle too."""

from __future__ import annotations

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import rollscope
from rollscope import Message, Rollout
from rollscope.checks import scan
from rollscope.cli import main
from server.conftest import serving

from .pages import Look, Shoot

BROKE = 20
"""The step from which nearly everything is rewarded."""
SIBLINGS = 4


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alarmed")
    with rollscope.init(project="p", run="r <b>1</b>", dir=folder) as run:
        for step in range(30):
            for n in range(SIBLINGS):
                reward = 0.2 + 0.02 * (step % 2) + 0.6 * (step >= BROKE) + n / 100
                said = Message(role="assistant", content=f"Mine is {n} in {step}.", sampled=True)
                run.log(Rollout(step=step, split="train", task=f"t{step}", index=n, reward=reward,
                                messages=[Message(role="user", content="?"), said]))  # fmt: skip
    scan(rollscope.open(folder))
    (alarm,) = rollscope.open(folder).alarms("r <b>1</b>", "p")
    assert (alarm.check, alarm.split) == ("run.reward_jump", "train")
    assert alarm.step is not None and alarm.step >= BROKE
    return folder


def _opens_its_rollouts(page: Page, store: Path) -> None:
    found = rollscope.open(store)
    (alarm,) = found.alarms("r <b>1</b>", "p")
    ribbon = page.get_by_role("region", name="Steps")
    mark = ribbon.get_by_role("list", name="Alarms").locator("a.mark")
    expect(mark).to_have_count(1)
    sentence = ribbon.locator(".told a", has_text=alarm.text)
    expect(sentence).to_be_hidden()
    mark.focus()
    expect(sentence).to_be_visible()
    expect(sentence).to_contain_text("run.reward_jump")
    mark.blur()
    expect(sentence).to_be_hidden()
    mark.hover()
    expect(sentence).to_be_visible()
    # It stands where its step is: the plot says which that is.
    plot = ribbon.get_by_role("slider").bounding_box()
    here = mark.bounding_box()
    assert plot and here and alarm.step is not None
    axis, middle = 36, here["x"] + here["width"] / 2 - plot["x"]
    assert int((middle - axis) / (plot["width"] - axis) * 30) == alarm.step
    sentence.click()
    made_of = found.rollouts(alarm.query or "").count()
    assert 0 < made_of < 30 * SIBLINGS
    expect(page.get_by_role("search")).to_contain_text(f"{made_of} of {30 * SIBLINGS}")
    expect(page.get_by_text(f"Mine is 0 in {alarm.step}").first).to_be_visible()


def test_an_alarm_is_a_mark_at_its_step_and_opens_its_rollouts(
    store: Path, look: Look, shoot: Shoot
) -> None:
    with serving(store) as site:
        page = look(f"{site.url}/")
        page.locator("a.mark").hover()
        shoot(page, "ribbon-alarm")
        page.mouse.move(0, 0)
        _opens_its_rollouts(page, store)
        assert page.wrong == []


def test_a_folded_ribbon_says_that_there_are_alarms(store: Path, look: Look) -> None:
    with serving(store) as site:
        page = look(f"{site.url}/?ribbon=folded")
        expect(page.get_by_role("region", name="Steps")).to_contain_text("1 alarm")
        narrow = look(f"{site.url}/?q=step:0..5")
        expect(narrow.locator("a.mark")).to_have_count(1)  # the ribbon shows all steps
        other = look(f"{site.url}/?q=split:eval")
        expect(other.get_by_role("search")).to_contain_text("0 of")
        expect(other.locator("a.mark")).to_have_count(0)
        assert page.wrong == []


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


def test_a_bundle_has_them_too(store: Path, look: Look, tmp_path: Path) -> None:
    assert main(["bundle", "split:train", "--dir", str(store), "--out", str(tmp_path / "b")]) == 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(tmp_path / "b")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        page = look(f"http://127.0.0.1:{server.server_port}/")
        _opens_its_rollouts(page, store)
        assert page.wrong == []
    finally:
        server.shutdown()
        server.server_close()
