"""A running job opens as fast as a finished one: what a reader must hold in memory stays small."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from store_logs import LogFile, rollouts

from rollscope.model import Fact, wire
from rollscope.store import frames, paths
from rollscope.store.listing import list_run
from rollscope.store.read.reader import Reader
from rollscope.store.seal import __main__ as helper
from rollscope.store.seal import compact
from rollscope.store.seal.segment import seal
from rollscope.store.sealing import Sealer
from rollscope.store.write import log as logs
from rollscope.store.write.log import Entry, Limits, LogWriter
from rollscope.store.writers import WriterInfo, place, write_info


def running(name: str) -> WriterInfo:
    """A writer on another machine, of which nobody here can tell whether it lives."""
    return WriterInfo(
        writer=name, project="p", run="r", launch="l", host="h", pid=1, place=f"not {place()}",
        started=time.time(),
    )  # fmt: skip


@pytest.mark.parametrize("others", [0, 3, 100])
def test_the_live_logs_of_a_run_share_what_may_lie_unsealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """However many writers there are, and however small their rollouts."""
    finished = list[str]()
    monkeypatch.setattr(Sealer, "add", lambda self, log: finished.append(log))
    monkeypatch.setattr(logs, "UNSEALED", 800)
    monkeypatch.setattr(logs, "LEAST", 50)
    for number in range(others):
        LogFile(tmp_path, writer=f"other{number}")
    writer = LogWriter(paths.run_dir(tmp_path, "p", "r"), running("w"), Limits(seal=True))
    share = max(800 // (others + 1), 50)
    for _ in range(100):
        made = rollouts(25)
        lines = (wire.rollout_line(r) for r in made)
        entries = zip(lines, made, strict=True)
        writer.write([Entry(line, "rollouts", r.id, "whole") for line, r in entries])
    assert 2500 // (share + 75) <= len(finished) <= 2500 // share
    for log in tmp_path.rglob("live/w-*"):
        text = b"".join(f.data or b"" for f in frames.scan(log))
        assert text.count(b'{"rollout"') < share + 75


def annotated(root: Path, writer: str) -> LogFile:
    """A sealed log of rollouts, and one of facts about them; returns the latter."""
    log = LogFile(root, writer=writer)
    made = rollouts(20, prefix=writer)
    log.log(*made)
    seal(log.directory, log.name)
    facts = LogFile(root, writer=writer, seq=1)
    facts.facts(*(Fact(rollout=r.id or "", name="advantage", value=2.0, time=1.0) for r in made))
    write_info(log.directory, running(writer))
    return facts


def test_late_facts_are_folded_while_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.nice", lambda _: 0)
    monkeypatch.setattr(compact, "UNFOLDED", 50)
    with Reader(tmp_path) as reader:
        unfolded = []
        for number in range(6):
            facts = annotated(tmp_path, f"w{number}")
            assert helper.main([str(facts.directory), facts.name]) == 0
            reader.refresh()
            unfolded.append(sum(unit.info.late_facts for unit in reader.units))
            assert reader.connection.execute(
                "SELECT count(*), sum(advantage) FROM rollouts"
            ).fetchone() == (20 * (number + 1), 40.0 * (number + 1))
        assert unfolded == [20, 40, 0, 20, 40, 0]


def test_one_helper_merges_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.nice", lambda _: 0)
    monkeypatch.setattr(compact, "UNFOLDED", 0)
    facts = annotated(tmp_path, "w")
    (facts.directory / "merged" / ".1-0a0b0c0d").mkdir(parents=True)
    assert helper.main([str(facts.directory), facts.name]) == 0
    assert list_run(facts.directory).number is None
    (facts.directory / "merged" / ".1-0a0b0c0d").rmdir()
    assert helper.main([str(facts.directory), facts.name]) == 0
    assert list_run(facts.directory).number == 1
