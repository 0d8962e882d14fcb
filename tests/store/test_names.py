"""Names that reach the engine are names, never patterns; nothing unread is sealed and removed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb
import pytest
from store_logs import LogFile, rollouts

from rollscope.model import Fact
from rollscope.store import frames, lines
from rollscope.store.read.reader import Reader
from rollscope.store.seal.compact import compact
from rollscope.store.seal.segment import CannotSeal, seal

ANSWERS = ["answer 0", "answer 1", "answer 2"] * 2
NAMES = ["what?", "**", "a[1]", "x'y?", "[!a]*{b,c}"]


@pytest.mark.parametrize("name", NAMES)
def test_a_store_may_have_any_name(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, other = tmp_path / name, tmp_path / "a1"  # what some of them would match as patterns
    for folder in (other, root):
        folder.mkdir(parents=True)
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        for seq in range(2):
            log = LogFile(folder, writer="w*", seq=seq)
            log.log(*rollouts(3, f"{seq}-"))
            log.facts(Fact(rollout="0-1", name="reward", value=9.0, time=seq))
    other.rename(tmp_path / "b")
    directory = root / "p" / "r"
    with Reader(root) as reader:
        for seq in range(3):
            reader.refresh()
            found = reader.get_many([f"{n}-{i}" for n in range(2) for i in range(3)])
            assert [s.rollout.messages[1].content for s in found] == ANSWERS
            assert [s.rollout.reward for s in found].count(9.0) == 1
            if seq < 2:
                assert seal(directory, f"w*-{seq}")
            else:
                assert compact(directory, grace=0).merged == 2
        assert reader.refresh() and len(reader.get_many(["0-1", "1-2"])) == 2
        assert reader.problems() == []


def test_a_seal_that_did_not_read_every_line_keeps_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogFile(tmp_path)
    log.log(*rollouts(3))
    read = lines._read

    def none_read(db: duckdb.DuckDBPyConnection, *args: object) -> None:
        read(db, *args)  # type: ignore[arg-type]
        db.execute("CREATE OR REPLACE TEMP TABLE staged_lines AS FROM staged_lines LIMIT 0")

    monkeypatch.setattr(lines, "_read", none_read)
    with pytest.raises(CannotSeal, match="4 of its lines cannot be read"):
        seal(log.directory, log.name)
    assert compact(log.directory, grace=0).refused == []  # its writer may still be alive
    monkeypatch.undo()
    assert log.path.exists() and not list((log.directory / "segments").iterdir())
    assert seal(log.directory, log.name)
    with Reader(tmp_path) as reader:
        assert reader.get("r2") is not None


def test_records_that_the_engine_takes_for_damaged_are_not_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogFile(tmp_path)
    log.log(*rollouts(3))
    log.append([b"no JSON at all"])  # so that the lines are counted one by one
    read = lines._read

    def one_null(db: duckdb.DuckDBPyConnection, *args: object) -> None:
        read(db, *args)  # type: ignore[arg-type]
        db.execute("UPDATE staged_lines SET line = NULL, log = NULL WHERE line = 2")

    monkeypatch.setattr(lines, "_read", one_null)
    with pytest.raises(CannotSeal, match="1 of its lines"):
        seal(log.directory, log.name)
    assert log.path.exists()


def test_a_few_kilobytes_do_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "_LARGE", 1 << 20)
    log = LogFile(tmp_path)
    log.log(*rollouts(2))
    packed = frames.zstd.ZstdCompressor(options=frames._OPTIONS)
    bomb = b"".join(packed.compress(bytes(1 << 20)) for _ in range(2)) + packed.flush()
    with log.path.open("ab") as file:
        file.write(bomb)
    log.log(*rollouts(2, "after"))
    found = [frame.error for frame in frames.scan(log.path)]
    assert found == [None, None, frames.DAMAGED, None]
    with Reader(tmp_path) as reader:
        (problem,) = reader.problems()
        assert "damaged; skipped" in problem.text
        seal(log.directory, log.name)
        reader.refresh()
        assert reader.get("after1") is not None
