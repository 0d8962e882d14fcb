"""Sealers, compactors and readers as processes of their own, all at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from test_crashes import assert_all_seen_once, make_store

from rollscope.store.read.reader import Reader
from rollscope.store.seal.compact import compact
from rollscope.store.seal.segment import seal

LIMIT = 600.0


def seal_all(root: Path) -> None:
    for log in sorted((root / "p" / "r" / "live").glob("*.zst")):
        with suppress(FileNotFoundError):  # the other sealer was faster, and the compactor, too
            seal(root / "p" / "r", log.name.partition(".")[0])


def compact_often(root: Path) -> None:
    for _ in range(2):
        compact(root / "p" / "r", grace=0, part_bytes=4_000)


def read(root: Path) -> None:
    end = time.monotonic() + LIMIT
    with Reader(root) as reader:
        while time.monotonic() < end:
            is_last = (root / "done").exists()
            assert_all_seen_once(reader)
            if is_last:
                return
            time.sleep(0.05)  # the others want to get on
    raise TimeoutError("nobody said that the work is done")


def start(root: Path, work: str, number: int) -> subprocess.Popen[bytes]:
    """One of them, ready to begin with the others."""
    code = (
        "import sys, time, pathlib, test_races\n"
        "root = pathlib.Path(sys.argv[1])\n"
        "(root / sys.argv[3]).touch()\n"
        "while not (root / 'go').exists(): time.sleep(0.001)\n"
        "getattr(test_races, sys.argv[2])(root)\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, str(root), work, f"{work}-{number}"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )


def test_processes_that_seal_and_compact_race_while_others_read(tmp_path: Path) -> None:
    directory = make_store(tmp_path)[0].directory
    jobs = [(work, n) for work in ("read", "seal_all", "compact_often") for n in range(2)]
    processes = [start(tmp_path, *job) for job in jobs]
    try:
        end = time.monotonic() + LIMIT
        while not all((tmp_path / f"{work}-{n}").exists() for work, n in jobs):
            assert time.monotonic() < end
            time.sleep(0.01)
        (tmp_path / "go").touch()
        assert [process.wait(LIMIT) for process in processes[2:]] == [0] * 4
        (tmp_path / "done").touch()
        assert [process.wait(LIMIT) for process in processes[:2]] == [0] * 2
    finally:
        for process in processes:
            process.kill()
            process.wait()
    with Reader(tmp_path) as reader:
        assert_all_seen_once(reader)
    assert len(list((directory / "merged").glob("[0-9]*"))) == 1
    assert not list((directory / "live").iterdir())
