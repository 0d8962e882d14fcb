"""The doctor tells what is missing, though nothing that is left looks wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import rollscope
from rollscope import Message, Rollout
from rollscope.checks.doctor import examine
from rollscope.store.read.reader import Reader
from rollscope.store.seal.segment import seal


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
