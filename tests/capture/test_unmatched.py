"""Facts whose rollout nobody has logged are told at the end, and only those."""

from __future__ import annotations

from pathlib import Path

import pytest

import rollscope
from rollscope import Rollout
from rollscope.capture import unmatched

from . import children


def last_line(capfd: pytest.CaptureFixture[str]) -> str:
    return capfd.readouterr().err.splitlines()[-1]


def test_facts_without_a_rollout_are_told(
    own_store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with rollscope.init(project="math", run="r1") as run:
        run.annotate(key="early", reward=1.0)
        run.log([Rollout(key="early"), Rollout(key="b")])
        with run.rollout(key="live") as live:
            live.message("user", "hello")
        for key in ("b", "live", "lost", "lost", "gone"):
            run.annotate(key=key, fate="trained")
    assert ", facts about 2 rollouts that nobody logged" in last_line(capfd)


def test_what_others_have_logged_is_not_lost(
    own_store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    logging = """
    with rollscope.init(project="math", run="r1") as run:
        run.log([Rollout(key=str(n)) for n in range(3)])
    """
    with rollscope.init(project="math", run="r1") as run:
        children.told(children.start(logging))
        for n in range(3):
            run.annotate(key=str(n), fate="trained")
    assert "nobody logged" not in last_line(capfd)
    with rollscope.init(project="math", run="r1") as run:
        for n in range(5):
            run.annotate(key=str(n), fate="trained")
    assert "facts about 2 rollouts that nobody logged" in last_line(capfd)


def test_while_others_write_nobody_can_tell(
    own_store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    writing = """
    with rollscope.init(project="math", run="r1") as run:
        run.log(Rollout(key="theirs"))
        run.flush()
        tell(begun=True)
        time.sleep(3600)
    """
    process = children.start(writing)
    assert process.stdout is not None
    process.stdout.readline()
    with rollscope.init(project="math", run="r1") as run:
        run.annotate(key="theirs", fate="trained")
    assert "nobody logged" not in last_line(capfd)
    process.kill()
    process.communicate()


def test_with_more_than_is_remembered_nobody_can_tell(
    own_store: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unmatched, "_MOST", 3)
    with rollscope.init(project="math", run="r1") as run:
        run.log([Rollout(key=str(n)) for n in range(5)])
        for n in range(5):
            run.annotate(key=str(n), fate="trained")
    assert "nobody logged" not in last_line(capfd)
