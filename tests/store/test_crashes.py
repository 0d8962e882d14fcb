"""Stop a sealer and a compactor at every file operation, and let several race: every rollout
is seen exactly once, always."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from store_logs import LogFile, rollouts

from rollscope.model import Fact
from rollscope.store import disk
from rollscope.store.read.reader import Reader
from rollscope.store.seal.compact import compact, sweep
from rollscope.store.seal.segment import seal
from rollscope.store.writers import WriterInfo, write_info

WRITERS, SEQS, EACH = 2, 2, 4


class Stopped(BaseException):
    """The process was killed here."""


class Killer:
    """Lets each thread do a given number of file operations and then nothing any more."""

    def __init__(self) -> None:
        self._local = threading.local()

    def allow(self, operations: int) -> None:
        self._local.left = operations

    def heal(self) -> None:
        self._local.__dict__.pop("left", None)

    def __call__(self, operation: str, path: Path) -> None:
        left = getattr(self._local, "left", None)
        if left is None:
            return
        if left <= 0:
            raise Stopped(f"{operation} {path}")
        self._local.left = left - 1


@pytest.fixture
def killer(monkeypatch: pytest.MonkeyPatch) -> Killer:
    killer = Killer()
    monkeypatch.setattr(disk, "before", killer)
    return killer


def make_store(root: Path) -> list[LogFile]:
    """Logs of finished writers: rollouts, and facts about the rollouts of the other writer."""
    logs = []
    for w in range(WRITERS):
        for seq in range(SEQS):
            log = LogFile(root, writer=f"w{w}", seq=seq)
            log.log(*rollouts(EACH, f"{w}-{seq}-"))
            other = f"{(w + 1) % WRITERS}-{seq}-"
            log.facts(
                *(Fact(rollout=f"{other}{i}", name="reward", value=9.0, time=1.0) for i in range(2))
            )
            logs.append(log)
        info = WriterInfo(
            writer=f"w{w}", project="p", run="r", launch="launch", host="h", pid=1, place="",
            started=1.0, finished=2.0,
        )  # fmt: skip
        write_info(logs[-1].directory, info)
    return logs


def assert_all_seen_once(reader: Reader) -> None:
    def look(db: object) -> list[tuple[object, ...]]:
        sql = (
            "SELECT (SELECT count(*) FROM rollouts), (SELECT count(DISTINCT id) FROM rollouts), "
            "(SELECT count(*) FROM messages), (SELECT count(*) FROM facts), "
            "(SELECT count(*) FROM rollouts WHERE reward = 9.0)"
        )
        found: list[tuple[object, ...]] = db.execute(sql).fetchall()  # type: ignore[attr-defined]
        return found

    reader.refresh()
    n = WRITERS * SEQS
    assert reader.reading(look) == [(n * EACH, n * EACH, 2 * n * EACH, 2 * n, 2 * n)]


def stopped_everywhere(
    killer: Killer, work: Callable[[], object], check: Callable[[], None]
) -> int:
    """Run `work` again and again, killed after 0, 1, 2, ... operations, until it ends."""
    operations = 0
    while True:
        killer.allow(operations)
        try:
            work()
            return operations
        except Stopped:
            killer.heal()
            check()
        finally:
            killer.heal()
        operations += 1


def test_a_sealer_stopped_at_every_operation(tmp_path: Path, killer: Killer) -> None:
    logs = make_store(tmp_path)
    with Reader(tmp_path) as reader:
        assert_all_seen_once(reader)
        for log in logs:
            operations = stopped_everywhere(
                killer,
                lambda log=log: seal(log.directory, log.name),
                lambda: assert_all_seen_once(reader),
            )
            assert operations > 5
            assert_all_seen_once(reader)
            assert not log.path.exists()
        assert reader.problems() == []


def test_a_compactor_stopped_at_every_operation(tmp_path: Path, killer: Killer) -> None:
    logs = make_store(tmp_path)
    directory = logs[0].directory
    for log in logs:
        seal(log.directory, log.name)
    with Reader(tmp_path) as reader:
        operations = stopped_everywhere(
            killer,
            lambda: compact(directory, grace=1000, part_bytes=10_000),
            lambda: assert_all_seen_once(reader),
        )
        assert operations > 20
        assert_all_seen_once(reader)
        # Facts that came late are folded into a part that is there already.
        log = LogFile(tmp_path, writer="late")
        log.facts(Fact(rollout="0-0-3", name="fate", value="trained", time=1.0))
        seal(directory, log.name)
        stopped_everywhere(
            killer,
            lambda: compact(directory, grace=1000, part_bytes=10_000),
            lambda: reader.refresh() and None,
        )
        reader.refresh()
        fates = reader.connection.execute("SELECT id FROM rollouts WHERE fate = 'trained'")
        assert fates.fetchall() == [("0-0-3",)]
        assert reader.connection.execute("SELECT count(*) FROM tail.patched").fetchone() == (0,)


def test_a_sweep_stopped_at_every_operation(tmp_path: Path, killer: Killer) -> None:
    whole = tmp_path / "whole"
    logs = make_store(whole)
    for log in logs:
        seal(log.directory, log.name)
        compact(log.directory, grace=1000)
    operations, done = 0, False
    while not done:
        root = tmp_path / str(operations)
        shutil.copytree(whole, root)
        directory = root / "p" / "r"
        with Reader(root) as reader:
            killer.allow(operations)
            try:
                sweep(directory, grace=0)
                done = True
            except Stopped:
                pass
            killer.heal()
            assert_all_seen_once(reader)
            sweep(directory, grace=0)  # and somebody else goes on
            assert_all_seen_once(reader)
            assert len(list((directory / "merged").iterdir())) == 1
            assert not list((directory / "segments").iterdir())
            assert reader.problems() == []
        operations += 1
    assert operations > 5


def test_what_a_crash_left_behind_is_swept_up_later(tmp_path: Path, killer: Killer) -> None:
    logs = make_store(tmp_path)
    killer.allow(4)
    with pytest.raises(Stopped):
        seal(logs[0].directory, logs[0].name)
    killer.heal()
    (left,) = (logs[0].directory / "segments").iterdir()
    compact(logs[0].directory, grace=0)
    assert left.exists()  # it might be somebody's who is still at work
    os.utime(left, (1, 1))
    compact(logs[0].directory, grace=0)
    assert not left.exists()


@pytest.mark.parametrize("attempt", range(2))
def test_sealers_and_compactors_race_while_readers_read(tmp_path: Path, attempt: int) -> None:
    logs = make_store(tmp_path)
    directory = logs[0].directory
    working = threading.Event()
    failures: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except FileNotFoundError:
                pass  # the other sealer was faster, and the compactor faster still
            except BaseException as error:
                failures.append(error)

        return run

    def seal_all() -> None:
        for log in logs:
            seal(directory, log.name)

    def compact_often() -> None:
        for _ in range(3):
            compact(directory, grace=0, part_bytes=4_000)

    def read() -> None:
        with Reader(tmp_path) as reader:
            while True:
                last = working.is_set()
                assert_all_seen_once(reader)
                whole = reader.get("0-0-0")
                assert whole is not None and len(whole.messages) == 2 and whole.reward == 9.0
                if last:
                    return

    workers = [threading.Thread(target=guarded(w)) for w in [seal_all, compact_often] * 2]
    readers = [threading.Thread(target=guarded(read)) for _ in range(2)]
    for thread in (*readers, *workers):
        thread.start()
    for thread in workers:
        thread.join()
    working.set()
    for thread in readers:
        thread.join()
    assert failures == []
    assert len(list((directory / "merged").glob("[0-9]*"))) == 1
    assert not list((directory / "live").iterdir())
