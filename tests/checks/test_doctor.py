"""The doctor tells what is missing, though nothing that is left looks wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import rollscope
from rollscope import Message, Rollout
from rollscope.adapters import _trainers
from rollscope.checks.doctor import examine
from rollscope.store.read.reader import Reader
from rollscope.store.seal.segment import seal

DOCS = Path(__file__).parents[2] / "docs" / "trainers"


def errors(store: Path) -> list[str]:
    with Reader(store) as reader:
        return [found.text for found in examine(reader) if found.level == "error"]


@pytest.mark.parametrize("how", ["cut", "emptied", "removed", "sealed"])
def test_a_log_that_lost_what_its_writer_had_written_is_told(own_store: Path, how: str) -> None:
    with rollscope.init(project="p", run="r") as run:
        for n in range(3):
            run.log(Rollout(task=str(n), messages=[Message(role="user", content="x")]))
            run.flush()
    assert errors(own_store) == []
    (log,) = own_store.rglob("live/*.zst")
    size = log.stat().st_size
    if how == "sealed":
        seal(run.directory, log.name.removesuffix(".jsonl.zst"))
        assert not log.exists()
        assert errors(own_store) == []
        return
    if how == "removed":
        log.unlink()
    else:
        log.write_bytes(log.read_bytes()[: size // 2] if how == "cut" else b"")
    words = "was removed" if how == "removed" else "was cut"
    assert any(words in text and f"{size:,} bytes" in text for text in errors(own_store))


def said(store: Path, level: str) -> list[str]:
    with Reader(store) as reader:
        return [found.text for found in examine(reader) if found.level == level]


def start(name: str, monkeypatch: pytest.MonkeyPatch, keys: str) -> None:
    """One start of a script that logs a rollout for each key."""
    monkeypatch.setenv("ROLLSCOPE_LAUNCH", name)
    with rollscope.init(project="p", run="r") as run:
        run.log([Rollout(key=k, step=1, task="t", index=int(k)) for k in keys])


def test_rollouts_that_had_one_id_are_counted(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start("a", monkeypatch, "0123")
    assert not said(own_store, "warning")
    start("b", monkeypatch, "0120123")
    assert said(own_store, "warning") == ["launch b logged 7 rollouts, and 4 are there"]


def test_what_each_launch_logged_and_what_of_it_is_shown_is_told(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start("a", monkeypatch, "0123")
    start("b", monkeypatch, "01")
    (note,) = said(own_store, "note")
    assert note.endswith("2 launches: a logged 4, 2 shown; b logged 2, 2 shown")
    with Reader(own_store) as reader:
        shown = reader.connection.execute("SELECT count(*) FROM rollouts WHERE NOT superseded")
        assert shown.fetchone() == (4,)


def test_a_script_that_ran_twice_is_not_said_to_be_shown_once(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("process-a", "process-b"):
        start(name, monkeypatch, "0123")
    (note,) = said(own_store, "note")
    assert note.endswith("process-a logged 4, 4 shown; process-b logged 4, 4 shown")
    store = rollscope.open(own_store)
    try:
        first = next(iter(store.rollouts()))
        assert [row.index for row in store.group(first.id)] == [0, 1, 2, 3]
    finally:
        store.close()


def test_an_empty_store_says_which_trainers_are_here_and_what_to_type(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {"trl": "0.9.2", "verl": "0.9.1", "tinker-cookbook": "0.7.0"}
    monkeypatch.setattr(_trainers, "installed", versions.get)
    with Reader(own_store) as reader:
        found = {finding.text: finding for finding in examine(reader)}
    assert set(found) == {
        "verl 0.9.1 is installed: supported (0.9)",
        "TRL 0.9.2 is installed: not supported: 0.21 is the first version that is",
        "tinker-cookbook 0.7.0 is installed: newer than what was tested (0.3 to 0.6)",
    }
    assert "ROLLSCOPE=on" in str(found["verl 0.9.1 is installed: supported (0.9)"].advice)
    monkeypatch.setattr(_trainers, "installed", lambda _: None)
    assert said(own_store, "note")[0].startswith("none of these is installed")


def test_every_trainer_of_the_table_has_its_module_and_page() -> None:
    """And it is there after `import rollscope`, as the pages show it."""
    for trainer in _trainers.TRAINERS:
        assert (DOCS / f"{trainer.page}.md").is_file()
        code = f"import rollscope; rollscope.adapters.{trainer.adapter}; rollscope.demo"
        if trainer.adapter != "skyrl":
            subprocess.run([sys.executable, "-c", code], check=True)


def test_a_log_that_is_removed_under_its_writer_is_told_with_the_next_heartbeat(
    own_store: Path,
) -> None:
    with rollscope.init(project="p", run="r") as run:
        run.log([Rollout(task=str(n)) for n in range(5)])
        run.flush()
        (log,) = own_store.rglob("live/*.zst")
        log.unlink()
        run._background._beat()
        with Reader(own_store) as reader:
            told = [found.text for found in examine(reader) if found.level == "warning"]
    assert any("was removed or moved" in text and "5 rollouts" in text for text in told)


def test_what_killed_workers_may_have_lost_is_told(own_store: Path) -> None:
    """`with Pool()` kills its workers."""
    code = """if True:
        import os, rollscope
        run = rollscope.init(project="p", run="r")
        run.log(rollscope.Rollout(task="t"))
        run.flush()
        os.kill(os.getpid(), 15)
    """
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], capture_output=True)
    with rollscope.init(project="p", run="r"), Reader(own_store) as reader:
        notes = [found.text for found in examine(reader) if found.level == "note"]
    assert any("2 processes ended without finishing" in text for text in notes)
