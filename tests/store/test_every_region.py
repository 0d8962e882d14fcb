"""Damage in any region of any file costs at most what that file holds, and is named."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import duckdb
import msgspec
import pytest
from store_logs import LogFile, rollouts
from test_foreign import make_store

import rollscope
from rollscope.checks import scan
from rollscope.checks.doctor import examine
from rollscope.model import Fact
from rollscope.model.schema import DERIVED, TABLES
from rollscope.store.read.reader import Reader
from rollscope.store.seal.compact import compact
from rollscope.store.seal.segment import seal

FILES = [
    *(f"merged/1/*/{table}.parquet" for table in TABLES),
    "merged/1/*/segment.json",
    "merged/1/covers.json",
    *(f"segments/w-1/{table}.parquet" for table in TABLES),
    "segments/w-1/segment.json",
    *(f"derived/*/{table}.parquet" for table in DERIVED),
    "derived/*/derived.json",
    "live/w-2.jsonl.zst",
    "writers/w.json",
    "run.json",
]
REGIONS = 3


class Shown(NamedTuple):
    """All that a store shows."""

    rollouts: dict[str, bytes]
    """Whole, by id."""
    rows: dict[str, list[str]]
    """Of every table."""
    said: str
    """What the doctor says is wrong."""


def shown(root: Path) -> Shown:
    with Reader(root) as reader:

        def ask(sql: str) -> list[tuple[object, ...]]:
            return reader.reading(lambda db: db.execute(sql).fetchall())

        ids = [str(id) for (id,) in ask("SELECT id FROM rollouts")]
        assert len(ids) == len(set(ids))
        whole = {id: msgspec.json.encode(reader.get(id)) for id in ids}
        rows = {t: sorted(map(repr, ask(f"SELECT * FROM {t}"))) for t in (*TABLES, *DERIVED)}
        found = [f for f in examine(reader, deep=True) if f.level in ("error", "warning")]
    return Shown(whole, rows, "\n".join(finding.text for finding in found))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Shown]:
    """A store of which every kind of file is there, with something in it."""
    root = tmp_path_factory.mktemp("good") / "store"
    run = make_store(root)
    log = LogFile(root, writer="facts")
    log.facts(Fact(rollout="merged0", name="advantage", value=2.0, time=1.0))
    log.metrics(1, {"loss": 0.5})
    seal(run, log.name)
    scan(rollscope.open(root))
    before = shown(root)
    assert before.said == "" and len(before.rollouts) == len(rollouts(8))
    assert all(before.rows[table] for table in (*TABLES, "checked") if table != "spans")
    return root, before


def damaged(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The file with one bit flipped, and with zeros, in each of its regions."""
    for region in range(REGIONS):
        at = (2 * region + 1) * len(data) // (2 * REGIONS)
        yield f"bit at {at}", data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        yield f"zeros at {at}", data[:at] + bytes(min(64, len(data) - at)) + data[at + 64 :]


@pytest.mark.parametrize("name", FILES)
def test_damage_in_any_region_of_a_file_is_named_and_costs_only_that_file(
    good: tuple[Path, Shown], tmp_path: Path, name: str
) -> None:
    whole, before = good
    path = next((whole / "p" / "r").glob(name)).relative_to(whole)
    for what, data in damaged((whole / path).read_bytes()):
        root = tmp_path / "store"
        shutil.copytree(whole, root)
        (root / path).write_bytes(data)
        after = shown(root)
        place = next(p for p in (path.parent.name, path.name) if p in name or "*" in name)
        is_told = place in after.said or path.name in after.said
        assert is_told or after[:2] == before[:2], f"{what}: untold"
        if path.suffix == ".parquet":
            assert is_told, f"{what}: the checksum does not fit, and nobody says so"
        for run in (root / "p").iterdir():
            compact(run, grace=0)
        later = shown(root)
        assert later.rollouts.items() >= {
            (id, text) for id, text in after.rollouts.items() if before.rollouts[id] == text
        }, f"{what}: compaction lost what was there"
        shutil.rmtree(root)


def test_an_error_of_a_library_below_the_engine_is_of_a_file() -> None:
    """'Out of buffer' names no file and has no kind of its own."""
    from rollscope.store.engine import is_of_a_file

    assert is_of_a_file(duckdb.Error("Out of buffer"))
    assert not is_of_a_file(duckdb.BinderException("no such column"))
