"""`rollscope export SINK QUERY`: the same journal, so that nothing is sent twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rollscope
from rollscope import Rollout, cli
from rollscope.model.facts import FIELD_FACTS
from rollscope.sinks import lock

from . import notebook
from .conftest import run_dir, sent, wait_complete


def record(step: int, count: int = 4, **fields: object) -> list[str]:
    with rollscope.init(project="p", run="r") as run:
        return run.log(
            [Rollout(step=step, task=f"q{n}", index=0, reward=1.0, **fields) for n in range(count)]  # type: ignore[arg-type]
        )


def export(store: Path, *words: str) -> int:
    return cli.main(["export", *words, "--dir", str(store)])


def test_what_is_stored_is_sent_and_a_second_time_only_what_is_new(
    own_store: Path, book: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = record(1)
    assert export(own_store, f"notebook:path={book}", "step:1") == 0
    assert sorted(sent(book)) == sorted(first)
    second = record(2)
    assert export(own_store, "notebook", "--option", f"path={book}") == 0
    assert sorted(sent(book)) == sorted(first + second)
    assert "4 were there already (--again sends them again)" in capsys.readouterr().err
    assert export(own_store, f"notebook:path={book}", "step:1", "--again", "--json") == 0
    assert json.loads(capsys.readouterr().out)["exported"] == 4
    assert len(sent(book)) == 12


def test_what_was_forwarded_live_is_not_exported_again(own_store: Path, book: Path) -> None:
    with rollscope.init(project="p", run="r", sinks=[f"notebook:path={book}"]) as run:
        ids = run.log([Rollout(step=1, task="q", reward=1.0)])
    wait_complete(own_store)
    assert export(own_store, f"notebook:path={book}") == 0
    assert sent(book) == ids


def test_later_facts_of_what_was_sent_are_told(own_store: Path, book: Path) -> None:
    (id, *_) = record(1)
    assert export(own_store, f"notebook:path={book}") == 0
    with rollscope.init(project="p", run="r") as run:
        run.annotate(id, reward=0.5)
    assert export(own_store, f"notebook:path={book}") == 0
    updates = [line for line in notebook.read(book) if line["call"] == "update"]
    assert [(line["id"], line["reward"]) for line in updates] == [(id, 0.5)]


@pytest.mark.parametrize("name", [name for name in FIELD_FACTS if name != "error"])
def test_a_later_fact_is_told_whichever_field_it_is_about(
    own_store: Path, book: Path, name: str
) -> None:
    (id, *_) = record(1)
    assert export(own_store, f"notebook:path={book}") == 0
    fate = {"fate": "trained", "truncated": True}
    with rollscope.init(project="p", run="r") as run:
        run.annotate(id, **{name: fate.get(name, 7)})
    assert export(own_store, f"notebook:path={book}") == 0
    assert [line["id"] for line in notebook.read(book) if line["call"] == "update"] == [id]


def test_caps_and_redaction_hold_for_exports(
    own_store: Path, book: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(1, meta={"mail": "ada@example.org"})
    asked = f"notebook:path={book},groups_per_step=2"
    assert export(own_store, asked, "--redact", "emails") == 0
    assert len(sent(book)) == 2
    assert "2 left out by the cap" in capsys.readouterr().err
    assert "ada@" not in (book / "calls.jsonl").read_text()


def test_a_failing_back_end_is_told_and_the_same_command_goes_on(
    own_store: Path, book: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = record(1)
    monkeypatch.setattr("rollscope.sinks.export.TRIES", 2)
    (book / "raise-in-send").write_text("q2")
    assert export(own_store, f"notebook:path={book}") == 1
    assert "nobody answers" in capsys.readouterr().err
    (book / "raise-in-send").unlink()
    assert export(own_store, f"notebook:path={book}") == 0
    assert sorted(sent(book)) == sorted(ids)


def test_while_a_process_forwards_an_export_says_so(
    own_store: Path, book: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(1)
    held = lock.take(run_dir(own_store), "notebook")
    assert held is not None
    assert export(own_store, f"notebook:path={book}") == 1
    assert "a process is sending p/r to notebook now" in capsys.readouterr().err
    assert sent(book) == []


def test_an_unknown_name_lists_sinks_and_formats(
    own_store: Path, book: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(1)
    assert export(own_store, "nonsense") == 2
    said = capsys.readouterr().err
    assert "trackio, mlflow, weave, otlp, diary, notebook" in said
    assert "jsonl" in said
