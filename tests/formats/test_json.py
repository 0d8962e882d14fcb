"""JSON is read piece by piece: the same values in any layout, in linear time, whatever is wrong."""

from __future__ import annotations

import gzip
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollscope.formats import _files, _json
from rollscope.formats._json import Scanner, TooLarge
from rollscope.model.problem import Problem

plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
anything = st.recursive(
    plain, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


class Drops(io.BytesIO):
    """A stream that gives a few bytes at a time, as a slow pipe does."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(3)


def entered(scanner: Scanner, depth: int) -> Any:
    """The next value, read by entering it as deep as asked for."""
    if depth and scanner.kind() == "object":
        return {name: entered(scanner, depth - 1) for name in scanner.members()}
    if depth and scanner.kind() == "list":
        return [entered(scanner, depth - 1) for _ in scanner.items()]
    return scanner.value()


@given(anything, st.integers(0, 4), st.sampled_from([None, 1, "\t"]), st.booleans())
def test_a_value_is_the_same_entered_or_whole(
    value: Any, depth: int, indent: Any, is_ascii: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii)
    data = text.encode("utf-8", "replace")
    assert entered(Scanner(Drops(data)), depth) == json.loads(data)


@given(st.dictionaries(st.text(), anything, max_size=4))
def test_what_is_not_taken_is_skipped(value: dict[str, Any]) -> None:
    data = json.dumps([value, 1]).encode()
    scanner = Scanner(Drops(data))
    seen = []
    for number in scanner.items():
        if number == 0:
            seen = list(scanner.members())
        else:
            assert scanner.value() == 1
    assert seen == list(value)
    assert scanner.kind() == "end"


@given(st.lists(anything, min_size=1), st.data())
def test_a_torn_value_is_an_error_and_never_a_value(value: Any, data: Any) -> None:
    whole = json.dumps(value).encode()
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ValueError, match=r"."):
        Scanner(Drops(whole[:cut])).value()


def test_what_python_writes_is_read() -> None:
    (value,) = (Scanner(io.BytesIO(b"\xef\xbb\xbf[NaN, -Infinity, 1e999]")).value(),)
    assert math.isnan(value[0])
    assert value[1:] == [-math.inf, math.inf]


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, "[" * 200_000 + "]" * 200_000])
def test_deep_nesting_is_an_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    assert all(isinstance(found, Problem) for found in _files.values(path))
    assert _files.first(path) is None
    path.write_text('{"a": 1}\n' + text.replace("\n", "") + '\n{"b": 2}\n')
    found = list(_files.lines(path))
    assert [type(item) for item in found] == [tuple, Problem, tuple]


def test_a_huge_number_is_an_error_of_its_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": ' + "9" * 10_000 + '}\n{"b": 2}\n')
    first, second = _files.lines(path)
    assert isinstance(first, Problem)
    assert second == (2, {"b": 2})


def test_bytes_that_are_no_utf8_cost_only_themselves(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a": "caf\xe9"}\n{"b": "caf\xc3\xa9"}\n')
    note, first, second = _files.lines(path)
    assert isinstance(note, Problem)
    assert "UTF-8" in note.text
    assert (first, second) == ((1, {"a": "caf\ufffd"}), (2, {"b": "café"}))


def test_a_value_that_is_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = json.dumps([1, ["x" * 1000] * 100]).encode()
    scanner = Scanner(io.BytesIO(data), largest=1000)
    monkeypatch.setattr(_json, "_CHUNK", 100)
    numbers = scanner.items()
    next(numbers)
    assert scanner.value() == 1
    next(numbers)
    with pytest.raises(TooLarge):
        scanner.value()
    assert next(scanner.items()) == 0, "it can still be entered"
    path = tmp_path / "x.jsonl.gz"
    monkeypatch.setattr(_files, "LARGEST", 1000)
    with gzip.open(path, "wb") as file:
        file.write(b'{"a": 1}\n' + b"0" * 100_000)
    assert [type(found) for found in _files.lines(path)] == [tuple, Problem]


def test_a_large_value_is_parsed_a_few_times_not_once_a_chunk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = 0
    decode = _json._decode

    def counted(text: str, at: int) -> Any:
        nonlocal calls
        calls += 1
        return decode(text, at)

    monkeypatch.setattr(_json, "_decode", counted)
    monkeypatch.setattr(_json, "_CHUNK", 1000)
    value = ["x" * 100] * 10_000
    assert Scanner(io.BytesIO(json.dumps(value).encode())).value() == value
    assert calls < 15, "its size doubles with every try"


def test_a_large_object_is_recognised_by_its_first_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_json, "_CHUNK", 1000)
    body = {"eval": {"task": "t"}, "samples": [{"x": "y" * 1000}] * 1000, "after": 1}
    found = _json.head(io.BytesIO(json.dumps(body).encode()), largest=100_000)
    assert found == {"eval": {"task": "t"}, "samples": []}
