"""A restart repeats steps: each slot is shown once, from the later launch; nothing else hides."""

from __future__ import annotations

from pathlib import Path

import pytest
from store_logs import LogFile

from rollscope.model import Fact, Rollout
from rollscope.store.read.reader import Reader
from rollscope.store.seal.compact import compact
from rollscope.store.seal.segment import seal
from rollscope.store.writers import WriterInfo, write_info


def superseded(reader: Reader) -> list[str]:
    reader.refresh()
    found = reader.connection.execute("SELECT id FROM rollouts WHERE superseded ORDER BY id")
    return [id for (id,) in found.fetchall()]


def launch(
    root: Path, name: str, begin: float, last: float, steps: range, **fields: object
) -> LogFile:
    """One launch of a run: a rollout a step, logged between `begin` and `last`."""
    log = LogFile(root, writer=f"writer-{name}", launch=name, started=begin)
    for step in steps:
        slot: dict[str, object] = {"step": step, "task": "q", "index": 0, "split": "train"}
        log.log(Rollout(id=f"{name}{step}", time=last, **{**slot, **fields}))  # type: ignore[arg-type]
    return log


@pytest.mark.parametrize("kept", ["live", "sealed", "merged"])
def test_a_restart_supersedes_the_steps_it_repeats(tmp_path: Path, kept: str) -> None:
    logs = [launch(tmp_path, "a", 0, 10, range(8)), launch(tmp_path, "b", 20, 30, range(5, 10))]
    with Reader(tmp_path) as reader:
        if kept != "live":
            for log in logs:
                seal(log.directory, log.name)
        if kept == "merged":
            compact(logs[0].directory, grace=0)
        assert superseded(reader) == ["a5", "a6", "a7"]
        assert reader.connection.execute("SELECT count(*) FROM rollouts").fetchone() == (13,)
        whole = reader.get("a5")
        assert whole is not None and whole.launch == "a"


def test_processes_at_once_never_hide_each_other(tmp_path: Path) -> None:
    for n, name in enumerate("abcd"):
        launch(tmp_path, name, begin=float(n), last=100.0 + n, steps=range(3))
    with Reader(tmp_path) as reader:
        assert superseded(reader) == []


@pytest.mark.parametrize("missing", ["step", "task", "index"])
def test_a_slot_that_is_not_wholly_known_hides_nothing(tmp_path: Path, missing: str) -> None:
    launch(tmp_path, "a", 0, 10, range(3), **{missing: None})
    launch(tmp_path, "b", 20, 30, range(3), **{missing: None})
    with Reader(tmp_path) as reader:
        assert superseded(reader) == []


def test_another_split_data_set_or_attempt_is_another_slot(tmp_path: Path) -> None:
    launch(tmp_path, "a", 0, 10, range(1), split=None)
    launch(tmp_path, "b", 20, 30, range(1), attempt=1)
    launch(tmp_path, "c", 40, 50, range(1), split="eval")
    launch(tmp_path, "d", 60, 70, range(1), split=None)
    launch(tmp_path, "e", 80, 90, range(1), split=None, dataset="gsm8k")
    with Reader(tmp_path) as reader:
        assert superseded(reader) == ["a0"]


def test_a_launch_that_still_wrote_when_the_next_began_is_not_hidden(tmp_path: Path) -> None:
    """Its rollouts were logged early, but its writer's file says that it went on."""
    log = launch(tmp_path, "a", 0, 10, range(2))
    launch(tmp_path, "b", 20, 30, range(2))
    with Reader(tmp_path) as reader:
        assert superseded(reader) == ["a0", "a1"]
    info = WriterInfo(
        writer="writer-a", project="p", run="r", launch="a", host="h", pid=1, place="",
        started=0.0, last_write=25.0,
    )  # fmt: skip
    write_info(log.directory, info)
    with Reader(tmp_path) as reader:
        assert superseded(reader) == []


def test_other_runs_are_not_touched(tmp_path: Path) -> None:
    launch(tmp_path, "a", 0, 10, range(2))
    other = LogFile(tmp_path, run="other", writer="x", launch="b", started=20.0)
    other.log(Rollout(id="x", step=0, task="q", index=0, split="train", time=30.0))
    with Reader(tmp_path) as reader:
        assert superseded(reader) == []


def test_a_task_that_became_known_late_makes_the_slot(tmp_path: Path) -> None:
    launch(tmp_path, "a", 0, 10, range(1))
    log = launch(tmp_path, "b", 20, 30, range(1), task=None)
    with Reader(tmp_path) as reader:
        assert superseded(reader) == []
        log.facts(Fact(rollout="b0", name="task", value="q", time=31.0))
        assert superseded(reader) == ["a0"]


def test_the_last_launch_of_three_is_shown(tmp_path: Path) -> None:
    for n, name in enumerate("abc"):
        launch(tmp_path, name, begin=20.0 * n, last=20.0 * n + 10, steps=range(n, 3))
    with Reader(tmp_path) as reader:
        assert superseded(reader) == ["a1", "a2", "b2"]
