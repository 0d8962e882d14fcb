"""Damage in any region of any file costs at most what that file holds, and is named."""

from __future__ import annotations

import contextlib
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
from rollscope.store import small
from rollscope.store.engine import is_of_a_file
from rollscope.store.read.reader import Reader
from rollscope.store.seal.compact import compact
from rollscope.store.seal.segment import seal
from rollscope.store.units import INFO, UnitInfo, file_sum, write_info

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
    """'Out of buffer' names no file and has no kind of its own. All these were met."""
    assert is_of_a_file(duckdb.Error("Out of buffer"))
    assert is_of_a_file(duckdb.InvalidInputException("Map keys must be unique."))
    assert not is_of_a_file(duckdb.BinderException("no such column"))


def uncompressed(segment: Path, table: str) -> Path:
    """A table of a segment, written again so that its texts can be found in its bytes."""
    path, info = segment / f"{table}.parquet", small.load(segment / INFO, UnitInfo)
    plain = path.with_suffix(".plain")
    duckdb.execute(f"COPY (FROM '{path}') TO '{plain}' (FORMAT parquet, COMPRESSION uncompressed)")
    plain.rename(path)
    info.files[path.name] = file_sum(path)
    write_info(segment, info)
    return path


def test_a_text_that_became_no_utf8_is_damage(tmp_path: Path) -> None:
    """The engine checks the letters of texts, but not of JSON: Python cannot take them."""
    hurt, whole = LogFile(tmp_path, writer="w1"), LogFile(tmp_path, writer="w2")
    hurt.log(*rollouts(2, "lost", meta={"lang": "needle"}))
    whole.log(*rollouts(2, "kept"))
    for log in (hurt, whole):
        seal(log.directory, log.name)
    path = uncompressed(hurt.directory / "segments" / hurt.name, "rollouts")
    data = path.read_bytes()
    for ask in (
        lambda store: [row.id for row in store.rollouts()],
        lambda store: [row.id for some in store.search("answer") for row in some.rows],
        lambda store: [row[0] for row in store.sql("SELECT id, meta FROM rollouts").fetchall()],
        lambda store: [r.rollout.id for r in store.through(["lost0", "kept0", "kept1"])],
    ):
        path.write_bytes(data)
        store = rollscope.open(tmp_path)
        path.write_bytes(data.replace(b"needle", b"n\xb8edle"))
        assert store.rollouts().count() == 4
        try:
            found = ask(store)
        finally:
            store.close()
        assert sorted(found) == ["kept0", "kept1"]
    with Reader(tmp_path) as reader:
        assert any(str(path) in finding.text for finding in examine(reader, deep=True))


def test_a_file_that_was_replaced_under_an_open_reader_costs_only_itself(tmp_path: Path) -> None:
    """By one with other columns: the engine then speaks of columns, and of no file."""
    logs = [LogFile(tmp_path, writer=f"w{n}") for n in range(2)]
    for log in logs:
        log.log(*rollouts(2, log.name))
        seal(log.directory, log.name)
    segment = logs[0].directory / "segments" / logs[0].name
    with contextlib.closing(rollscope.open(tmp_path)) as store:
        assert store.rollouts().count() == 4
        shutil.copy(segment / "metrics.parquet", segment / "rollouts.parquet")
        assert [row.id for row in store.rollouts(order="id")] == ["w1-00", "w1-01"]
        assert str(segment / "rollouts.parquet") in str(store.reader.problems())
        with pytest.raises(duckdb.BinderException):
            store.sql("SELECT nothing FROM rollouts")


@pytest.mark.parametrize("table", ["rollouts", "messages", "facts"])
def test_the_doctor_tells_what_it_finds_damaged_while_it_asks(tmp_path: Path, table: str) -> None:
    """At first sight the file is good: its two ends are."""
    log, other = LogFile(tmp_path), LogFile(tmp_path, writer="other")
    for one in (log, other):
        one.log(*rollouts(2, one.name))
        one.facts(Fact(rollout=f"{one.name}0", name="advantage", value=2.0, time=1.0))
        seal(one.directory, one.name)
    path = log.directory / "segments" / log.name / f"{table}.parquet"
    data = path.read_bytes()
    path.write_bytes(data[:4] + bytes(200) + data[204:])
    with Reader(tmp_path) as reader:
        said = "\n".join(finding.text for finding in examine(reader) if finding.level == "error")
        assert str(path) in said and other.name not in said
