"""The rows of tables that others wrote: Parquet, CSV, Arrow. No more than a batch is in memory."""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..model import Rollout
from ..model.problem import Problem
from ._files import ODD

_TEXT = "(?, all_varchar = true, header = true, max_line_size = 67108864, delim = '{}')"
TABLES = {
    ".parquet": "read_parquet(?)",
    ".csv": "read_csv" + _TEXT.format(","),
    ".tsv": "read_csv" + _TEXT.format("\t"),
}
ARROW = (".arrow", ".feather", ".ipc")
_BATCH = 1024
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Each row, by the names of the columns."""
    if path.suffix in ARROW:
        yield from _arrow(path)
        return
    from ..store.engine import connect

    is_text = path.suffix != ".parquet"
    cursor = connect().execute(f"SELECT * FROM {TABLES[path.suffix]}", [[glob.escape(str(path))]])
    names = [column[0] for column in cursor.description or ()]
    while batch := cursor.fetchmany(_BATCH):
        for values in batch:
            row = dict(zip(names, values, strict=True))
            yield {name: _cell(text) for name, text in row.items()} if is_text else row


def rollouts(
    path: Path, convert: Callable[[dict[str, Any]], Rollout]
) -> Iterator[Rollout | Problem]:
    """What `convert` makes of each row. A row of which it can make nothing is a problem."""
    for number, row in enumerate(rows(path), 1):
        try:
            yield convert(row)
        except ODD as error:
            yield Problem(path, None, f"row {number}: {error}")


def columns(path: Path) -> set[str]:
    """The names of the columns of a Parquet file."""
    from ..store.engine import connect

    with connect() as db:
        sql = "DESCRIBE SELECT * FROM read_parquet(?)"
        return {row[0] for row in db.execute(sql, [[glob.escape(str(path))]]).fetchall()}


def _cell(text: str | None) -> Any:
    """A cell of a text file. Only what is a number and nothing else becomes one: 007 is a name."""
    if text is None or not _NUMBER.fullmatch(text) or len(text) > 300:
        return text
    return json.loads(text)


def _arrow(path: Path) -> Iterator[dict[str, Any]]:
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
