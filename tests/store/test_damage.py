"""Damaged, foreign and newer files: skipped, counted and named; the rest is read."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from store_logs import LogFile, header, rollouts

import rollscope
from rollscope.model import Rollout
from rollscope.model.schema import TABLES, VERSION
from rollscope.store import frames
from rollscope.store.read.reader import Reader
from rollscope.store.seal.compact import compact
from rollscope.store.seal.segment import CannotSeal, remove_log, seal
from rollscope.store.writers import WriterInfo, write_info


def count(reader: Reader, table: str = "rollouts") -> int:
    reader.refresh()
    sql = f"SELECT count(*) FROM (SELECT DISTINCT * FROM {table})"
    return int(reader.reading(lambda db: db.execute(sql).fetchall())[0][0])


def named(reader: Reader) -> str:
    return "\n".join(f"{problem.path}: {problem.text}" for problem in reader.problems())


def two_logs(root: Path) -> tuple[LogFile, LogFile]:
    logs = LogFile(root, writer="w1"), LogFile(root, writer="w2")
    for n, log in enumerate(logs):
        log.log(*rollouts(3, f"{n}-"))
    return logs


# -- live logs --------------------------------------------------------------------------


def damage(path: Path, kind: str) -> None:
    """Hurt the second frame of a log of three frames (or its end)."""
    data = path.read_bytes()
    spots = [frame.offset for frame in frames.scan(path)]
    middle = spots[1] + (spots[2] - spots[1]) // 2
    if kind == "bit flipped":
        data = data[:middle] + bytes([data[middle] ^ 16]) + data[middle + 1 :]
    elif kind == "zero filled":
        data = data[: spots[1]] + bytes(spots[2] - spots[1]) + data[spots[2] :]
    elif kind == "hole":
        data = data[:middle] + data[spots[2] :]
    elif kind == "checksum":  # all of it can be unpacked, and is not what was written
        last = spots[2] - 1
        data = data[:last] + bytes([data[last] ^ 16]) + data[last + 1 :]
    elif kind == "text inside":
        data = data[: spots[1]] + b"hello\n" * 100 + data[spots[2] :]
    path.write_bytes(data)


@pytest.mark.parametrize("kind", ["bit flipped", "checksum", "zero filled", "hole", "text inside"])
def test_a_damaged_frame_costs_only_itself(tmp_path: Path, kind: str) -> None:
    log = LogFile(tmp_path)
    log.log(*rollouts(3, "lost-"))
    log.log(*rollouts(4, "kept-"))
    damage(log.path, kind)
    with Reader(tmp_path) as reader:
        assert count(reader) == 4
        assert str(log.path) in named(reader) and "damaged" in named(reader)
        seal(log.directory, log.name)
        assert count(reader) == 4
        assert "kept aside" in named(reader)
        (aside,) = (log.directory / "segments" / log.name / "damaged").iterdir()
        assert aside.stat().st_size > 0
        other = LogFile(tmp_path, writer="other")
        other.log(*rollouts(2, "more-"))
        seal(other.directory, other.name)
        compact(log.directory, grace=0)
        assert count(reader) == 6
        assert "kept aside" in named(reader)
        assert len(list(log.directory.glob("merged/1/*/damaged/*"))) == 1


def test_a_lost_header_is_worked_out(tmp_path: Path) -> None:
    log = LogFile(tmp_path, run="step=5")
    log.log(*rollouts(2))
    log.log(*rollouts(2, "more"))
    data = log.path.read_bytes()
    first = next(iter(frames.scan(log.path)))
    log.path.write_bytes(bytes(first.end) + data[first.end :])
    with Reader(tmp_path) as reader:
        for sealed in (False, True):
            if sealed:
                seal(log.directory, log.name)
                reader.refresh()
            names = "SELECT DISTINCT project, run, writer FROM rollouts"
            assert reader.connection.execute(names).fetchall() == [("p", "step=5", "w")]
            assert count(reader) == 4


def test_a_last_frame_that_is_being_written_is_no_problem(tmp_path: Path) -> None:
    log = LogFile(tmp_path)
    log.log(*rollouts(2))
    whole = log.path.read_bytes()
    log.log(*rollouts(2, "next"))
    grown = log.path.read_bytes()
    log.path.write_bytes(grown[: len(whole) + 20])
    with Reader(tmp_path) as reader:
        assert count(reader) == 2
        assert reader.problems() == []
        log.path.write_bytes(grown)
        assert count(reader) == 4


def test_a_log_shorter_than_its_writer_wrote_is_not_sealed(tmp_path: Path) -> None:
    log = LogFile(tmp_path)
    log.log(*rollouts(2))
    seen = log.path.read_bytes()
    log.log(*rollouts(2, "late"))
    whole = log.path.read_bytes()
    info = WriterInfo(
        writer="w", project="p", run="r", launch="launch", host="h", pid=1, place="",
        started=1.0, finished=2.0, ends={log.name: len(whole)},
    )  # fmt: skip
    write_info(log.directory, info)
    log.path.write_bytes(seen)  # a file system that does not show the rest yet
    with Reader(tmp_path) as reader:
        with pytest.raises(CannotSeal, match=r"of the .* bytes that its writer wrote"):
            seal(log.directory, log.name)
        (told,) = compact(log.directory, grace=0).refused
        assert log.name in told
        assert log.path.exists() and count(reader) == 2
        log.path.write_bytes(whole)
        assert seal(log.directory, log.name)
        assert not log.path.exists() and count(reader) == 4


def test_a_sealed_log_of_which_more_was_written_stays(tmp_path: Path) -> None:
    log = LogFile(tmp_path)
    log.log(*rollouts(2))
    size = log.path.stat().st_size
    info = WriterInfo(
        writer="w", project="p", run="r", launch="launch", host="h", pid=1, place="",
        started=1.0, ends={log.name: size + 1},
    )  # fmt: skip
    write_info(log.directory, info)
    remove_log(log.path, size)
    assert log.path.exists()


def test_lines_that_are_no_json_are_counted(tmp_path: Path) -> None:
    log = LogFile(tmp_path)
    log.append([b"garbage", b'{"rollout":{"id":"a"}}', b'{"rollout": {', b"[1]"])
    with Reader(tmp_path) as reader:
        assert count(reader) == 1
        assert "3 lines" in named(reader)
        seal(log.directory, log.name)
        assert count(reader) == 1
        assert "3 lines" in named(reader)


def test_of_thousands_of_lines_the_last_of_each_rollout_counts(tmp_path: Path) -> None:
    log = LogFile(tmp_path)
    for turn in range(5):
        log.append(
            b'{"rollout":{"id":"r%d","reward":%d,"meta":{"pad":"%b"}},"open":true}'
            % (i, turn, b"x" * 500)
            for i in range(4000)
        )
    seal(log.directory, log.name)
    with Reader(tmp_path) as reader:
        found = reader.connection.execute("SELECT DISTINCT reward FROM rollouts").fetchall()
        assert found == [(4.0,)]
        assert count(reader) == 4000


def test_values_that_do_not_fit_cost_only_themselves(tmp_path: Path) -> None:
    log = LogFile(tmp_path)
    log.append([b'{"rollout":{"id":"a","step":"x","reward":"good","task":7,"messages":3}}'])
    with Reader(tmp_path) as reader:
        assert reader.get("a") == Rollout(
            id="a", task="7", project="p", run="r", launch="launch", worker="worker-0"
        )


ODD_JSON = [
    b"5", b'"x"', b"[1]", b"[null]", b'{"a":1}', b'[{"type":5,"end":"x"}]', b'[{"name":[],"id":1}]',
    b'[{"type":"text","end":-1,"call":"x"}]', b'{"x":%b}' % (b"[" * 5000 + b"]" * 5000),
]  # fmt: skip


def test_json_of_any_shape_costs_only_itself(tmp_path: Path) -> None:
    """As other programs may write it. What we record is not nested deeper than 100."""
    log = LogFile(tmp_path)
    keys = b"parts", b"tool_calls", b"state", b"meta"
    messages = [b'{"role":"user","%b":%b}' % (key, odd) for key in keys for odd in ODD_JSON]
    spans = [b'{"inputs":%b,"meta":%b}' % (odd, odd) for odd in ODD_JSON]
    for n, odd in enumerate(ODD_JSON):
        log.append([b'{"rollout":{"id":"r%d","meta":%b,"environment":%b}}' % (n, odd, odd)])
    log.append([b'{"rollout":{"id":"m","messages":[%b],"spans":[%b]}}'
                % (b",".join(messages), b",".join(spans))])  # fmt: skip
    log.append([b'{"facts":[{"rollout":"m","name":"note","value":%b,"time":1}]}' % odd
                for odd in ODD_JSON])  # fmt: skip
    with closing(rollscope.open(tmp_path)) as store:
        ids = [row.id for row in store.rollouts()]
        assert len(ids) == len(ODD_JSON) + 1
        assert [one.rollout for one in store.through(ids)] == [store.get(id) for id in ids]
        whole = store.get("m")
        assert (len(whole.messages), len(whole.spans)) == (len(messages), len(spans))
        assert all(isinstance(m.meta, dict) for m in (*whole.messages, *whole.spans))
        assert len(store.notes("m")) == len(ODD_JSON) and store.outline("m")
        store.named_keys()
        list(store.search("nothing"))


@pytest.mark.parametrize("name", ["notes.txt", "x.jsonl.zst", ".hidden"])
def test_foreign_files_are_named_and_ignored(tmp_path: Path, name: str) -> None:
    log, _ = two_logs(tmp_path)
    for part in ("live", "segments", "merged"):
        (log.directory / part / name).write_bytes(b"what is this?")
    with Reader(tmp_path) as reader:
        assert count(reader) == 6
        assert len(reader.problems()) == (0 if name.startswith(".") else 3)
        compact(log.directory, grace=0)
        assert count(reader) == 6


def test_an_empty_or_foreign_log_does_no_harm(tmp_path: Path) -> None:
    log, _ = two_logs(tmp_path)
    (log.directory / "live" / "w9-0.jsonl.zst").write_bytes(b"")
    (log.directory / "live" / "w8-0.jsonl.zst").write_bytes(b"no zstd at all" * 100)
    with Reader(tmp_path) as reader:
        assert count(reader) == 6
        for name in ("w8-0", "w9-0"):
            seal(log.directory, name)
        assert count(reader) == 6
        assert "w8-0" in named(reader)


# -- sealed files -----------------------------------------------------------------------


@pytest.mark.parametrize("place", ["segments", "merged"])
@pytest.mark.parametrize("kind", ["cut off", "zero filled", "empty", "missing", "foreign"])
def test_a_damaged_table_costs_only_itself(tmp_path: Path, place: str, kind: str) -> None:
    logs = two_logs(tmp_path)
    for log in logs:
        seal(log.directory, log.name)
    if place == "merged":
        compact(logs[0].directory, grace=0, part_bytes=1)
        third = LogFile(tmp_path, writer="w3")
        third.log(*rollouts(3, "2-"))
        seal(third.directory, third.name)
        compact(logs[0].directory, grace=0, part_bytes=1)
    with Reader(tmp_path) as reader:
        before = count(reader), count(reader, "messages")
        victim = Path(reader.files("messages")[0])
        size = victim.stat().st_size
        data = {
            "cut off": victim.read_bytes()[: size // 2],
            "zero filled": bytes(size),
            "empty": b"",
            "foreign": b"PNG" * 100,
        }
        victim.unlink()
        if kind != "missing":
            victim.write_bytes(data[kind])
    with Reader(tmp_path) as reader:
        assert count(reader) == before[0]
        assert count(reader, "messages") < before[1]
        assert str(victim) in named(reader)
        kept = victim.exists()
        compact(logs[0].directory, grace=0)
        assert victim.exists() == kept  # nothing damaged is ever merged or swept away
        assert count(reader) == before[0]


def test_a_bit_flip_inside_a_table_is_found_when_it_is_read(tmp_path: Path) -> None:
    logs = two_logs(tmp_path)
    for log in logs:
        seal(log.directory, log.name)
    victim = logs[0].directory / "segments" / logs[0].name / "messages.parquet"
    data = bytearray(victim.read_bytes())
    data[4:200] = bytes(196)
    victim.write_bytes(data)
    with Reader(tmp_path) as reader:
        assert count(reader, "messages") == 6
        assert str(victim) in named(reader)
        assert count(reader) == 6


def test_a_lost_segment_json_is_worked_out(tmp_path: Path) -> None:
    logs = two_logs(tmp_path)
    for log in logs:
        seal(log.directory, log.name)
    (logs[0].directory / "segments" / logs[0].name / "segment.json").write_bytes(b"{")
    with Reader(tmp_path) as reader:
        assert count(reader) == 6
        assert "segment.json" in named(reader)
        assert reader.get("0-1") is not None


def test_a_lost_covers_json_is_worked_out(tmp_path: Path) -> None:
    logs = two_logs(tmp_path)
    for log in logs:
        seal(log.directory, log.name)
    spare = shutil.copytree(logs[0].directory / "segments", tmp_path / "spare")
    compact(logs[0].directory, grace=0)
    (logs[0].directory / "merged" / "1" / "covers.json").unlink()
    shutil.rmtree(logs[0].directory / "segments")
    shutil.copytree(spare, logs[0].directory / "segments")  # leftovers must not count twice
    with Reader(tmp_path) as reader:
        assert count(reader) == 6
        assert reader.connection.execute("SELECT count(*) FROM rollouts").fetchone() == (6,)
        assert "covers.json" in named(reader)
        compact(logs[0].directory, grace=0)
        assert count(reader) == 6


# -- other versions ----------------------------------------------------------------------


def make_newer(segment: Path) -> None:
    """As a later version might write it: a column more, one fewer, one of another type."""
    path = segment / "rollouts.parquet"
    other = path.with_suffix(".new")
    duckdb.execute(
        f"COPY (SELECT * EXCLUDE (dataset) REPLACE (step::VARCHAR AS step), 7 AS mood "
        f"FROM read_parquet('{path}')) TO '{other}' (FORMAT parquet)"
    )
    other.rename(path)
    info = json.loads((segment / "segment.json").read_text())
    del info["files"]  # nobody knows their checksums
    info |= {"version": VERSION + 1, "columns": "other", "news": [1]}
    (segment / "segment.json").write_text(json.dumps(info))


def test_a_newer_segment_is_read_as_it_lies_and_left_alone(tmp_path: Path) -> None:
    logs = two_logs(tmp_path)
    for log in logs:
        seal(log.directory, log.name)
    segment = logs[0].directory / "segments" / logs[0].name
    make_newer(segment)
    with Reader(tmp_path) as reader:
        sql = "SELECT id, step, dataset FROM rollouts ORDER BY id LIMIT 1"
        assert reader.connection.execute(sql).fetchall() == [("0-0", 0, None)]
        assert count(reader) == 6
        assert "mood" in named(reader) and str(VERSION + 1) in named(reader)
        report = compact(logs[0].directory, grace=0)
        assert "newer" in report.refused[0] and segment.is_dir()
        assert count(reader) == 6


def test_a_newer_log_is_read_and_never_sealed(tmp_path: Path) -> None:
    log = LogFile(tmp_path, version=VERSION + 1)
    log.append([b'{"rollout":{"id":"a","mood":1},"news":2}', b'{"verdict":{"id":"a"}}'])
    with Reader(tmp_path) as reader:
        assert count(reader) == 1
        assert "newer" in named(reader)
        with pytest.raises(CannotSeal):
            seal(log.directory, log.name)
        assert log.path.exists() and not list((log.directory / "segments").iterdir())


def test_a_newer_merged_directory_is_read_and_never_merged_again(tmp_path: Path) -> None:
    logs = two_logs(tmp_path)
    for log in logs:
        seal(log.directory, log.name)
    compact(logs[0].directory, grace=0)
    merged = logs[0].directory / "merged" / "1"
    (part,) = [p for p in merged.iterdir() if p.is_dir()]
    make_newer(part)
    third = LogFile(tmp_path, writer="w3")
    third.log(*rollouts(3, "2-"))
    seal(third.directory, third.name)
    with Reader(tmp_path) as reader:
        assert count(reader) == 9
        assert compact(logs[0].directory, grace=0).refused
        assert [p.name for p in merged.parent.iterdir()] == ["1"]
        assert count(reader) == 9


def test_a_log_that_grew_after_it_was_sealed_is_shown_whole(tmp_path: Path) -> None:
    log = LogFile(tmp_path)
    log.log(*rollouts(2))
    data = log.path.read_bytes()
    seal(log.directory, log.name)
    log.path.write_bytes(data)  # its writer was only stopped, and goes on
    log.log(*rollouts(2, "excess"))
    with Reader(tmp_path) as reader:
        assert count(reader) == 4
        assert not seal(log.directory, log.name)
        compact(log.directory, grace=0)
        assert log.path.exists()
        assert count(reader) == 4


def test_a_store_copied_together_shows_each_log_once(tmp_path: Path) -> None:
    logs = two_logs(tmp_path)
    kept = [log.path.read_bytes() for log in logs]
    for log in logs:
        seal(log.directory, log.name)
    compact(logs[0].directory, grace=0)
    for log, data in zip(logs, kept, strict=True):
        log.path.write_bytes(data)
    with Reader(tmp_path) as reader:
        assert reader.connection.execute("SELECT count(*) FROM rollouts").fetchone() == (6,)
        compact(logs[0].directory, grace=0)
        assert not any(log.path.exists() for log in logs)
        assert count(reader) == 6


def test_every_file_says_its_version(tmp_path: Path) -> None:
    log, _ = two_logs(tmp_path)
    seal(log.directory, log.name)
    for table in TABLES:
        path = log.directory / "segments" / log.name / f"{table}.parquet"
        found = duckdb.execute(f"SELECT key, value FROM parquet_kv_metadata('{path}')").fetchall()
        assert (b"rollscope", str(VERSION).encode()) in found
    assert json.loads(header("p", "r", "w", "l"))["log"]["version"] == VERSION
