"""Files of older versions lie beside new ones, and cost no more than they do."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
from store_logs import LogFile, rollouts

from rollscope.store.read.reader import Reader
from rollscope.store.seal.compact import compact
from rollscope.store.seal.segment import seal


def make_older(segment: Path, *missing: str) -> None:
    """As a version wrote it that did not know these columns."""
    path = segment / "rollouts.parquet"
    older = path.with_suffix(".old")
    duckdb.execute(
        f"COPY (SELECT * EXCLUDE ({', '.join(missing)}) FROM read_parquet('{path}')) "
        f"TO '{older}' (FORMAT parquet)"
    )
    older.rename(path)
    info = json.loads((segment / "segment.json").read_text())
    del info["files"]  # older versions knew no checksums
    info["columns"] = f"without {missing}"
    (segment / "segment.json").write_text(json.dumps(info))


def scans(reader: Reader, table: str) -> int:
    """How often a query of all rows scans files."""
    ((_, plan),) = reader.connection.execute(f"EXPLAIN SELECT * FROM {table}").fetchall()
    return int(plan.count("READ_PARQUET"))


def test_files_with_the_same_columns_are_one_scan_and_missing_values_are_null(
    tmp_path: Path,
) -> None:
    kinds: list[tuple[str, ...]] = [(), ("dataset",), ("dataset", "environment")]
    expected = []
    for number in range(9):
        missing = kinds[number % 3]
        log = LogFile(tmp_path, writer=f"w{number}")
        log.log(*rollouts(1, f"{number}-", dataset="d", environment="e"))
        seal(log.directory, log.name)
        if missing:
            make_older(log.directory / "segments" / log.name, *missing)
        values = (None if name in missing else name[0] for name in ("dataset", "environment"))
        expected.append((f"{number}-0", *values, 0.0))
    sql = "SELECT id, dataset, environment, reward FROM rollouts ORDER BY id"
    with Reader(tmp_path) as reader:
        assert reader.connection.execute(sql).fetchall() == expected
        assert scans(reader, "rollouts") == 3
        assert scans(reader, "messages") == 1, "nothing is missing there"
        stored = reader.get_many([row[0] for row in expected])
        assert [s.rollout.environment for s in stored] == [row[2] for row in expected]
        assert reader.problems() == []
        compact(log.directory, grace=0.0)
        reader.refresh()
        assert reader.connection.execute(sql).fetchall() == expected
        assert scans(reader, "rollouts") == 1
