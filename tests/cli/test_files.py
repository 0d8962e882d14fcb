"""`rollscope files`: what other engines read, and what they will not see there."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

import rollscope
from rollscope.cli import main
from rollscope.model import Message, Rollout


def _rollouts(launch: str) -> list[Rollout]:
    message = Message(role="user", content="Why?")
    return [
        Rollout(id=f"{launch}{n}", step=0, task=f"t{n}", index=0, reward=0.0, messages=[message])
        for n in range(3)
    ]


def _record(folder: Path, launch: str, monkeypatch: pytest.MonkeyPatch) -> rollscope.Run:
    monkeypatch.setenv("ROLLSCOPE_LAUNCH", launch)
    return rollscope.init(project="p", run="r", dir=folder)


def _asked(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    capsys.readouterr()
    assert main(["files", "rollouts", "--dir", str(folder), *words]) == 0
    said = capsys.readouterr()
    return said.out, said.err


def test_files_says_what_stands_otherwise_in_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with _record(tmp_path, "one", monkeypatch) as run:
        run.log(_rollouts("a"))
    assert main(["compact", "--dir", str(tmp_path)]) == 0
    out, err = _asked(tmp_path, capsys)
    assert len(out.splitlines()) == 1 and err == ""

    run = _record(tmp_path, "two", monkeypatch)
    run.log(_rollouts("b")[:2])  # the slots of a0 and a1
    run.annotate("a2", reward=1.0)
    run.flush()
    out, err = _asked(tmp_path, capsys)
    assert "2 rollouts in logs" in err and "1 rollout older" in err
    assert "2 rollouts made again" in err and "export parquet" in err
    told = json.loads(_asked(tmp_path, capsys, "--json")[0])
    assert told == {
        "files": out.splitlines(), "logged": 2, "unfolded": 1, "superseded": 2,
    }  # fmt: skip

    run.finish()
    assert main(["compact", "--dir", str(tmp_path)]) == 0
    out, err = _asked(tmp_path, capsys)
    assert "2 rollouts made again" in err and "in logs" not in err and "older" not in err
    rows = duckdb.sql(f"SELECT id, reward FROM read_parquet({out.splitlines()!r}) ORDER BY id")
    assert rows.fetchall() == [("a0", 0.0), ("a1", 0.0), ("a2", 1.0), ("b0", 0.0), ("b1", 0.0)]


def test_nothing_sealed_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = rollscope.init(project="p", run="r", dir=tmp_path)
    run.log(_rollouts("a"))
    run.flush()
    assert main(["files", "rollouts", "--dir", str(tmp_path)]) == 1
    assert "3 rollouts in logs" in capsys.readouterr().err
    run.finish()
