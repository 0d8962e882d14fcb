"""Logs under damage: bad ranges are named, everything else is read."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollscope.store import frames, paths

LINES = [[b'{"n":%d,"k":%d,"text":"%s"}' % (n, k, b"abc" * k) for k in range(5)] for n in range(8)]
FRAMES = [frames.pack(lines) for lines in LINES]
STARTS = [sum(map(len, FRAMES[:n])) for n in range(9)]


def read(path: Path) -> tuple[list[list[bytes]], list[tuple[int, int, str | None]]]:
    """Lines of the good frames, and the bad ranges; together they cover the file."""
    seen = list(frames.scan(path))
    ends = [0, *(frame.end for frame in seen)]
    assert [frame.offset for frame in seen] == ends[:-1]
    assert ends[-1] == path.stat().st_size
    good = [frame.lines() for frame in seen if frame.error is None]
    return good, [(f.offset, f.end, f.error) for f in seen if f.error is not None]


def test_a_log_is_plain_zstd_and_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(b"".join(FRAMES))
    assert read(path) == (LINES, [])
    try:
        shown = subprocess.run(["zstd", "-dc", path], capture_output=True, check=True).stdout
    except FileNotFoundError:
        pytest.skip("no zstd command here")
    assert shown.splitlines() == [line for lines in LINES for line in lines]


def test_reading_goes_on_from_any_frame(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(b"".join(FRAMES))
    later = list(frames.scan(path, STARTS[3]))
    assert [frame.lines() for frame in later] == LINES[3:]


@given(cut=st.integers(0, STARTS[-1]))
@settings(max_examples=60, deadline=None)
def test_a_file_cut_anywhere_gives_every_whole_frame(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "a"
    path.write_bytes(b"".join(FRAMES)[:cut])
    whole = max(n for n in range(9) if STARTS[n] <= cut)
    bad = [(STARTS[whole], cut, frames.CUT_OFF)] if cut > STARTS[whole] else []
    assert read(path) == (LINES[:whole], bad)


@given(at=st.integers(0, STARTS[-1] - 1), bit=st.integers(0, 7))
@settings(max_examples=200, deadline=None)
def test_a_flipped_bit_costs_its_own_frame_and_no_other(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int
) -> None:
    data = bytearray(b"".join(FRAMES))
    data[at] ^= 1 << bit
    path = tmp_path_factory.mktemp("flip") / "a"
    path.write_bytes(data)
    hit = max(n for n in range(8) if STARTS[n] <= at)
    good, bad = read(path)
    assert good in (LINES[:hit] + LINES[hit + 1 :], LINES)  # some header bits say nothing
    assert len(bad) <= 1
    assert all((start, end) == (STARTS[hit], STARTS[hit + 1]) for start, end, _ in bad)


def test_torn_frames_and_holes_in_the_middle_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a"
    torn = FRAMES[1][:20]
    hole = bytes(5000)
    path.write_bytes(FRAMES[0] + torn + FRAMES[2] + hole + FRAMES[3] + FRAMES[4][:-3])
    good, bad = read(path)
    assert good == [LINES[0], LINES[2], LINES[3]]
    assert [error for *_, error in bad] == [frames.DAMAGED, frames.DAMAGED, frames.CUT_OFF]


@pytest.mark.parametrize(
    "content",
    [b"", bytes(10_000), b"PK\x03\x04 not ours", random.Random(0).randbytes(50_000), b"\x28"],
)
def test_a_foreign_or_empty_file_has_no_frames(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    good, bad = read(path)
    assert good == []
    assert len(bad) == (1 if content else 0)


@given(st.lists(st.text(max_size=300), min_size=2, max_size=50, unique=True))
@settings(max_examples=50, deadline=None)
def test_different_names_never_share_a_directory(names: list[str]) -> None:
    clean = {paths.text(name) for name in names}
    encoded = {paths.encode_name(name) for name in names}
    assert len(encoded) == len(clean)
    for name in encoded:
        assert name not in ("", ".", "..")
        assert "/" not in name
        assert len(name.encode()) <= 255


def test_log_names_are_taken_apart() -> None:
    assert paths.split_log_name("host-1-ab-12.jsonl.zst") == ("host-1-ab", 12)
    assert paths.split_log_name("host-1-ab-12") == ("host-1-ab", 12)
    assert paths.split_log_name("notes.txt") is None
