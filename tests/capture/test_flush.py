"""`run.flush` waits until everything handed over lies in the log."""

from __future__ import annotations

from pathlib import Path

import rollscope
from rollscope.store.frames import scan


def test_flush_returns_once_everything_is_on_disk(tmp_path: Path) -> None:
    run = rollscope.init(project="p", run="r", dir=tmp_path)
    run.log([rollscope.Rollout(step=step) for step in range(500)])
    assert run.flush()
    lines = [
        line
        for log in (run.directory / "live").iterdir()
        for frame in scan(log)
        for line in (frame.data or b"").splitlines()
    ]
    assert sum(b'"rollout"' in line for line in lines) == 500
    run.finish()
    assert run.flush(), "after the end there is nothing to wait for"
