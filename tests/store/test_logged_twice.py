"""One key that two processes logged is one rollout, wherever the two logs have got to."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from store_logs import LogFile

from rollscope.model import Message, Rollout
from rollscope.store import disk
from rollscope.store.read.reader import Reader
from rollscope.store.seal.compact import compact
from rollscope.store.seal.segment import remove_log, seal, write_segment

STATES = ("live", "sealed", "merged")


def logged(root: Path, writer: str, *texts: str, step: int | None = 3) -> LogFile:
    """A log with a rollout `same` and one of the writer's own."""
    log = LogFile(root, writer=writer)
    messages = [Message(role="user", content=text) for text in texts]
    for id in ("same", writer):
        log.log(Rollout(id=id, key=id, step=step, time=1.0, messages=messages))
    return log


def moved(log: LogFile, state: str) -> None:
    if state != "live":
        seal(log.directory, log.name)
    if state == "merged":
        # One part for each log.
        compact(log.directory, grace=0, part_bytes=1)


def shown(reader: Reader) -> list[tuple[str, int]]:
    reader.refresh()
    found = reader.connection.execute("SELECT id, messages FROM rollouts ORDER BY id").fetchall()
    whole = reader.get("same")
    assert whole is not None and len(whole.messages) == 2
    return found


@pytest.mark.parametrize(("first", "second"), list(product(STATES, STATES)))
@pytest.mark.parametrize("step", [3, None])
def test_a_key_logged_by_two_processes_counts_once(
    tmp_path: Path, first: str, second: str, step: int | None
) -> None:
    a = logged(tmp_path, "a", "question", "answer", step=step)
    b = logged(tmp_path, "b", "question", "answer", step=step)
    once = [("a", 2), ("b", 2), ("same", 2)]
    with Reader(tmp_path) as following:
        moved(a, first)
        assert shown(following) == once
        moved(b, second)
        assert shown(following) == once
    with Reader(tmp_path) as reader:
        assert shown(reader) == once
        compact(a.directory, grace=0)
        assert shown(reader) == once


def test_of_two_logs_that_are_sealed_at_once_one_finds_the_other(tmp_path: Path) -> None:
    logs = [logged(tmp_path, writer, "question", "answer") for writer in "ab"]
    segments = logs[0].directory / "segments"
    made = []
    for log in logs:
        disk.make_dir(segments / f".{log.name}-00000000")
        made.append(write_segment(log.directory, log.name, segments / f".{log.name}-00000000"))
    for log, sealed in zip(logs, made, strict=True):
        disk.commit(segments / f".{log.name}-00000000", segments / log.name)
        remove_log(log.path, sealed)
    with Reader(tmp_path) as reader:
        assert shown(reader) == [("a", 2), ("b", 2), ("same", 2)]


def test_a_log_that_comes_to_an_open_reader_finds_what_is_sealed(tmp_path: Path) -> None:
    moved(logged(tmp_path, "a", "question", "answer"), "sealed")
    with Reader(tmp_path) as reader:
        logged(tmp_path, "b", "question", "answer")
        assert shown(reader) == [("a", 2), ("b", 2), ("same", 2)]
