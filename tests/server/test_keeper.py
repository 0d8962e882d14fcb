"""The server seals what dead writers left behind."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import rollscope
from rollscope.server.keeper import Keeper, tend
from rollscope.store.writers import Watch

KILLED = """
import os, sys, rollscope
run = rollscope.init(project="p", run="r", dir=sys.argv[1])
run.log([rollscope.Rollout(step=step) for step in range(20)])
run.flush()
os.kill(os.getpid(), 9)
"""


def test_the_log_of_a_killed_writer_is_sealed_and_nothing_is_lost(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True)
    directory = tmp_path / "p" / "r"
    assert len(list((directory / "live").iterdir())) == 1
    store = rollscope.open(tmp_path)
    assert store.rollouts().count() == 20
    keeper = Keeper(store.reader, every=0.05)
    keeper.start()
    deadline = time.monotonic() + 300
    while any((directory / "live").iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    keeper.stop()
    assert not any((directory / "live").iterdir())
    assert store.rollouts().count() == 20


def test_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    run = rollscope.init(project="p", run="r", dir=tmp_path)
    run.log(rollscope.Rollout(step=1))
    run.flush()
    assert not tend(run.directory, Watch())
    run.finish()
    assert any((run.directory / "live").iterdir())
