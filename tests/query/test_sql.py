"""`Store.sql`: anything may be asked, nothing can be changed, no other file be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollscope.query import SqlRefused, Store

from .tables import Tables


@pytest.fixture
def store() -> Store:
    return Store(reader=Tables([{"id": "a", "reward": 1.0, "step": 1}, {"id": "b", "step": 2}]))


GOOD = {
    "SELECT count(*) FROM rollouts": [(2,)],
    "FROM rollouts SELECT id ORDER BY id": [("a",), ("b",)],
    "WITH x AS (SELECT id FROM rollouts) SELECT count(*) FROM x": [(2,)],
    "SELECT id FROM rollouts UNION ALL SELECT rollout FROM messages ORDER BY 1": [("a",), ("b",)],
    "SELECT max(step) OVER () FROM rollouts r JOIN range(1) ON true LIMIT 1": [(2,)],
    "SELECT (SELECT max(reward) FROM rollouts), a FROM (VALUES (1)) t(a)": [(1.0, 1)],
    "WITH RECURSIVE n AS (SELECT 1 a UNION ALL SELECT a + 1 FROM n WHERE a < 3) "
    "SELECT max(a) FROM n": [(3,)],
    "SELECT unnest([1, 2])": [(1,), (2,)],
}


@pytest.mark.parametrize("statement", GOOD)
def test_one_select_is_run(store: Store, statement: str) -> None:
    assert store.sql(statement).fetchall() == GOOD[statement]


def test_parameters_are_bound(store: Store) -> None:
    assert store.sql("SELECT id FROM rollouts WHERE step = ?", [2]).fetchall() == [("b",)]


BAD = [
    "SELECT 1; SELECT 2",
    "DELETE FROM rollouts",
    "COPY rollouts TO '{}'",
    "COPY (SELECT 1) TO '{}'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{}'",
    "WITH x AS (COPY (SELECT 1) TO '{}') SELECT * FROM x",
    "SELECT * FROM (WITH x AS (COPY (SELECT 1) TO '{}') SELECT * FROM x)",
    "SELECT (WITH x AS (COPY (SELECT 1 AS a) TO '{}') SELECT * FROM x)",
    "WITH x AS (DELETE FROM rollouts RETURNING id) SELECT * FROM x",
    "WITH x AS (INSERT INTO rollouts (id) VALUES ('z') RETURNING id) SELECT * FROM x",
    "WITH x AS (UPDATE rollouts SET reward = 0 RETURNING id) SELECT * FROM x",
    "EXPORT DATABASE '{}'",
    "ATTACH '{}' AS x",
    "CREATE TABLE x AS SELECT 1",
    "CREATE OR REPLACE VIEW rollouts AS SELECT 1",
    "SET threads = 1",
    "PRAGMA enable_profiling",
    "CALL checkpoint()",
    "INSTALL httpfs",
    "SELECT * FROM read_text('/etc/hostname')",
    "SELECT * FROM read_csv('/etc/hostname')",
    "SELECT * FROM '/etc/hostname'",
    "SELECT * FROM read_parquet('/etc/hostname')",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM pandas_scan(1)",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM information_schema.tables",
    'WITH "/etc/hostname" AS (SELECT 1) SELECT * FROM "/etc/hostname"',
    "SELECT sleep_ms(10)",
    "this is no SQL",
    "",
]


@pytest.mark.parametrize("statement", BAD)
def test_anything_else_is_refused(store: Store, statement: str, tmp_path: Path) -> None:
    before = store.sql("SELECT * FROM rollouts ORDER BY id").fetchall()
    with pytest.raises(SqlRefused):
        store.sql(statement.replace("{}", str(tmp_path / "out")))
    assert not any(tmp_path.iterdir())
    assert store.sql("SELECT * FROM rollouts ORDER BY id").fetchall() == before
