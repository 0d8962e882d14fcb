"""Small files that are asked often are copied together: what is shown stays the same."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from store_logs import LogFile, rollouts
from test_versions import make_older

from rollscope.model import Fact
from rollscope.store.read.reader import Reader
from rollscope.store.seal.compact import compact
from rollscope.store.seal.segment import seal

FILES = 40


def store(root: Path, *, facts: bool = True) -> list[Path]:
    """Segments of two launches, a third of them of an older version, with a row logged twice, late
    facts and restarts; returns their directories."""
    made = []
    for number in range(FILES):
        launch = "first" if number < FILES - 4 else "second"
        started = 0.0 if launch == "first" else 1e6
        log = LogFile(root, writer=f"w{number}", launch=launch, started=started)
        slot = number if launch == "first" else number - FILES + 4
        more = {"dataset": "d", "step": slot, "meta": {"of": number}, "time": 100.0 + 2 * started}
        log.log(*rollouts(3, f"{number}-", **more))
        if number == 7:
            log.log(*rollouts(1, "6-", dataset="d", step=6, reward=0.0))
        if number and facts:
            log.facts(Fact(rollout=f"{number - 1}-0", name="advantage", value=0.5, time=200.0))
        seal(log.directory, log.name)
        made.append(log.directory / "segments" / log.name)
        if number % 3 == 0:
            make_older(made[-1], "dataset")
    return made


def shown(reader: Reader) -> list[tuple[Any, ...]]:
    sql = "SELECT * FROM rollouts ORDER BY id"
    return reader.reading(lambda db: db.execute(sql).fetchall())


def read(reader: Reader) -> int:
    """How many files a question of all rows opens."""
    sql = "SELECT sql FROM duckdb_views() WHERE view_name = 'rollouts'"
    ((text,),) = reader.connection.execute(sql).fetchall()
    return int(text.count(".parquet'"))


def ask(reader: Reader, times: int = 20) -> None:
    for _ in range(times):
        reader.reading(lambda db: db.execute("SELECT 1").fetchall())
    reader.refresh()


def whole(reader: Reader, ids: Sequence[str]) -> list[object]:
    found = [reader.get(id) for id in ids]
    assert [one.rollout for one in reader.get_many(ids)] == found
    return list(found)


def test_what_is_shown_stays_the_same(tmp_path: Path) -> None:
    store(tmp_path)
    with Reader(tmp_path) as reader:
        before, version = shown(reader), reader.version
        types = reader.connection.execute("DESCRIBE rollouts").fetchall()
        ids = [f"{number}-{index}" for number in (0, 6, 7, 39) for index in range(3)]
        bodies = whole(reader, ids)
        assert read(reader) == FILES
        ask(reader)
        assert read(reader) == 1
        assert shown(reader) == before
        assert reader.connection.execute("DESCRIBE rollouts").fetchall() == types
        assert whole(reader, ids) == bodies
        assert reader.get("nobody") is None
        assert reader.version == version, "nothing is new"
        assert any(row[-1] for row in before), "some are superseded"


def test_few_questions_and_few_files_are_not_worth_it(tmp_path: Path) -> None:
    made = store(tmp_path)
    with Reader(tmp_path) as reader:
        ask(reader, 2)
        assert read(reader) == FILES
        for segment in made[16:]:
            shutil.rmtree(segment)
        ask(reader, 100)
        assert read(reader) == 16


def test_what_comes_and_goes_later_is_seen(tmp_path: Path) -> None:
    made = store(tmp_path)
    with Reader(tmp_path) as reader:
        ask(reader)
        log = LogFile(tmp_path, writer="late", launch="first")
        log.log(*rollouts(2, "late-"))
        log.facts(Fact(rollout="3-1", name="advantage", value=0.25, time=300.0))
        ask(reader)
        assert {"late-0", "late-1"} < {row[0] for row in shown(reader)}
        assert [one.rollout.advantage for one in reader.get_many(["3-1"])] == [0.25]
        seal(log.directory, log.name)
        reader.refresh()
        assert read(reader) == 2
        with Reader(tmp_path) as other:
            assert shown(other) == shown(reader)
        shutil.rmtree(made[5])
        reader.refresh()
        assert read(reader) == FILES, "one of the copied is gone, and one has come"
        assert "5-0" not in {row[0] for row in shown(reader)}
        ask(reader)
        assert read(reader) == 1
        assert compact(log.directory, grace=0.0).merged
        reader.refresh()
        with Reader(tmp_path) as other:
            assert shown(other) == shown(reader)


def test_a_question_goes_on_while_the_files_are_copied(tmp_path: Path) -> None:
    store(tmp_path)
    with Reader(tmp_path) as reader:
        cursor = reader.cursor()
        cursor.begin()
        sql = "SELECT count(*) FROM rollouts"
        before = cursor.execute(sql).fetchall()
        ask(reader)
        assert read(reader) == 1
        assert cursor.execute(sql).fetchall() == before
        cursor.commit()
        assert cursor.execute(sql).fetchall() == before


@pytest.mark.parametrize("trouble", ["damaged", "no room"])
def test_without_copies_it_goes_on(
    tmp_path: Path, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = store(tmp_path, facts=False)  # a file with late ones is read at once
    path = made[1] / "rollouts.parquet"
    if trouble == "damaged":  # in a column that the questions below do not ask for
        ((at, size),) = duckdb.execute(
            "SELECT min(coalesce(dictionary_page_offset, data_page_offset)), "
            f"sum(total_compressed_size) FROM parquet_metadata('{path}') "
            "WHERE path_in_schema = 'meta'"
        ).fetchall()
        data = path.read_bytes()
        path.write_bytes(data[:at] + bytes(int(size)) + data[at + int(size) :])
    with Reader(tmp_path) as reader:
        sql = "SELECT id, reward FROM rollouts ORDER BY id"
        before = reader.reading(lambda db: db.execute(sql).fetchall())
        if trouble == "no room":
            monkeypatch.setattr(Path, "mkdir", full)
        ask(reader)
        ask(reader)
        assert read(reader) == FILES
        assert reader.reading(lambda db: db.execute(sql).fetchall()) == before


def full(self: Path) -> None:
    raise OSError(28, "No space left on device")
