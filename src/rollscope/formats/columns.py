"""Parquet, Arrow, CSV and nested JSON with a column mapping.

    rollscope import columns results.json --map "
        each=categories[].datasets[].results[].completions[]
        prompt=question completion=full_model_response reward=score reference=expected_answer"

A mapping is `field=path` terms. Fields are those of a rollout, and `messages`, `prompt`,
`completion`, `rewards.NAME`, `meta.NAME`. `each=` says, for nested JSON, what one rollout is: a
path with `[]` for every list that is walked. Other paths are looked up in the innermost object
first and then outwards, so that what stands further out (a question) is found for each of its
samples. `list[#]` takes from a parallel list the item with the innermost number.
Without a mapping, columns with the usual names are found by themselves.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..model import Rollout
from ..model.problem import Problem
from . import _files
from ._body import decode

_TABLES = {".parquet": "read_parquet(?)", ".csv": "read_csv(?)", ".tsv": "read_csv(?)"}
_ARROW = (".arrow", ".feather", ".ipc")


def recognise(path: Path) -> bool:
    """A table with a prompt and an answer, or messages. Nested JSON needs a mapping."""
    if not path.is_file() or path.suffix not in (*_TABLES, *_ARROW):
        return False
    try:
        names = set(next(_rows(path), {}))
    except Exception:
        return False
    return "messages" in names or ("prompt" in names and bool(names & {"completion", "response"}))


def read(path: Path, mapping: str = "") -> Iterator[Rollout | Problem]:
    """Every row, or every innermost object, as a rollout."""
    fields = parse(mapping)
    each = fields.pop("each", "")
    number = -1
    try:
        for number, (outer, place) in enumerate(_objects(path, each)):
            try:
                yield _rollout(outer, place, fields)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                yield Problem(path, None, f"item {number}: {error!r}")
    except Exception as error:  # of the engine or the decoder: torn files and their like
        yield Problem(path, None, f"cannot be read after item {number}: {error}")


def parse(mapping: str) -> dict[str, str]:
    """`field=path` terms. Raises ValueError naming the one that is wrong."""
    fields = {}
    for term in shlex.split(mapping):
        field, equals, path = term.partition("=")
        if not equals or not field or not path:
            raise ValueError(f"expected field=path, found {term!r} (docs/formats.md)")
        fields[field] = path
    return fields


def _objects(path: Path, each: str) -> Iterator[tuple[list[Any], list[int]]]:
    """Each object that is a rollout, with the objects around it and its numbers in their lists."""
    if path.suffix in _TABLES or path.suffix in _ARROW:
        for row in _rows(path):
            yield [row], []
        return
    steps = [step for step in each.replace("[]", ".[]").split(".") if step]
    if _files.plain_suffix(path) == ".jsonl":
        for found in _files.lines(path):
            if not isinstance(found, Problem):
                yield from _walk([found[1]], [], steps)
    elif steps and steps[0] == "[]":
        for number, item in enumerate(_files.items(path)):
            yield from _walk([item], [number], steps[1:])
    else:
        yield from _walk([_files.whole(path)], [], steps)


def _walk(
    outer: list[Any], place: list[int], steps: list[str]
) -> Iterator[tuple[list[Any], list[int]]]:
    if not steps:
        yield outer, place
    elif steps[0] == "[]":
        for number, item in enumerate(outer[-1] or ()):
            yield from _walk([*outer, item], [*place, number], steps[1:])
    else:
        inner = outer[-1].get(steps[0]) if isinstance(outer[-1], Mapping) else None
        if inner is not None:
            yield from _walk([*outer, inner], place, steps[1:])


def _rollout(outer: list[Any], place: list[int], fields: Mapping[str, str]) -> Rollout:
    inner = outer[-1]
    if not fields:
        if not isinstance(inner, Mapping):
            raise TypeError(f"expected an object, found {inner!r:.60}; give a mapping")
        return decode({k: v for k, v in inner.items() if v is not None})
    body: dict[str, Any] = {}
    for field, path in fields.items():
        value = _look_up(outer, place, path)
        if value is None:
            continue
        head, dot, name = field.partition(".")
        if dot:
            body.setdefault(head, {})[name] = _number(value) if head == "rewards" else value
        else:
            body[field] = _number(value) if field == "reward" else value
    if isinstance(inner, Mapping):
        used = {path.split(".")[0].split("[")[0] for path in fields.values()}
        rest = {k: v for k, v in inner.items() if k not in used and v is not None}
        body["meta"] = {**rest, **body.get("meta", {})}
    return decode(body)


def _look_up(outer: list[Any], place: list[int], path: str) -> Any:
    """The value at a path, seen from the innermost object outwards. `.` is the object itself,
    `#` its number in the innermost list, `##` in the one around that."""
    if path == ".":
        return outer[-1]
    if path.strip("#") == "":
        return place[-len(path)] if len(path) <= len(place) else None
    if path.startswith("'"):
        return path.strip("'")
    for scope in reversed(outer):
        found = _inside(scope, path, place)
        if found is not None:
            return found
    return None


def _inside(scope: Any, path: str, place: list[int]) -> Any:
    for step in path.replace("[", ".[").split("."):
        if not step:
            continue
        if step == "[#]":
            number = place[-1] if place else None
            is_there = isinstance(scope, list) and number is not None and number < len(scope)
            scope = scope[number] if is_there else None
        elif isinstance(scope, Mapping):
            scope = scope.get(step)
        else:
            return None
    return scope


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, (bool, int)) else value


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a table, in batches: no more than a batch is in memory."""
    if path.suffix in _ARROW:
        yield from _arrow_rows(path)
        return
    from ..store.engine import connect

    cursor = connect().execute(f"SELECT * FROM {_TABLES[path.suffix]}", [str(path)])
    names = [column[0] for column in cursor.description or ()]
    while batch := cursor.fetchmany(1024):
        for values in batch:
            yield dict(zip(names, values, strict=True))


def _arrow_rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        from pyarrow import OSFile, ipc
    except ImportError:
        raise ValueError("reading Arrow files needs pyarrow: pip install pyarrow") from None
    with OSFile(str(path)) as file:
        try:
            reader = ipc.open_file(file)
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        except ValueError:
            file.seek(0)
            batches = iter(ipc.open_stream(file))
        for batch in batches:
            yield from batch.to_pylist()
