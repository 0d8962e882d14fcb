"""`Store.sql()`: the engine itself, for reading only.

It is not enough that a statement is a SELECT. For DuckDB 2.0, `WITH x AS (COPY ... TO 'file')
SELECT ...` is one, and it writes; and some table functions take raw addresses. So we walk the
syntax tree, and only known kinds of nodes, our own views and harmless table functions pass. In
addition, the statement runs in a read-only transaction, the reader's engine can access only the
store's directory, and its configuration is locked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rollscope.model.schema import DERIVED, TABLES

from .results import Result
from .sql import Sql

if TYPE_CHECKING:
    from rollscope.store.read.reader import Reader

_NODES = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
_REFS = {
    "BASE_TABLE",
    "SUBQUERY",
    "JOIN",
    "TABLE_FUNCTION",
    "EXPRESSION_LIST",
    "EMPTY",
    "PIVOT",
}
_TABLE_FUNCTIONS = {"range", "generate_series", "unnest", "repeat", "json_each", "json_tree"}
_REFUSED_FUNCTIONS = {"nextval", "setval", "sleep_ms", "write_log"}


class SqlRefused(ValueError):
    """A statement that `Store.sql` does not run; the text says why."""


def run(reader: Reader, statement: str, params: Sequence[Any] = ()) -> Result:
    """Run one SELECT on connections of its own. Raises `SqlRefused` for anything else."""
    _check(reader.cursor(), statement)
    return Result(reader, Sql(statement, tuple(params)), _read_only)


def _read_only(cursor: Any) -> None:
    # The transaction ends with the cursor; nothing in it can be committed.
    cursor.execute("BEGIN TRANSACTION READ ONLY")


def _check(cursor: Any, statement: str) -> None:
    written = cursor.execute("SELECT json_serialize_sql(?)", [statement]).fetchone()[0]
    parsed = json.loads(written)
    if parsed.get("error"):
        if parsed.get("error_type") == "not implemented":
            raise SqlRefused("only one SELECT is run here, nothing that writes or sets")
        raise SqlRefused(f"the SQL cannot be read: {parsed.get('error_message', '')}")
    if len(parsed["statements"]) != 1:
        raise SqlRefused(f"exactly one SELECT is run, found {len(parsed['statements'])} statements")
    known = {*TABLES, *DERIVED} | {name.lower() for name in _ctes(parsed)}
    for node in _objects(parsed):
        _check_node(node, known)


def _check_node(node: dict[str, Any], known: set[str]) -> None:
    kind = str(node.get("type", ""))
    if kind.endswith("_NODE") and kind not in _NODES:
        raise SqlRefused(f"only SELECT is run here, not {kind.removesuffix('_QUERY_NODE')}")
    if "sample" in node and kind not in _NODES | _REFS:  # a place that rows come from
        raise SqlRefused(f"{kind} is not open here")
    if kind == "BASE_TABLE":
        name = str(node.get("table_name", ""))
        if name.lower() not in known or node.get("schema_name") or node.get("catalog_name"):
            raise SqlRefused(f"no table {name!r} here (there are {', '.join((*TABLES, *DERIVED))})")
    elif kind == "TABLE_FUNCTION":
        name = str((node.get("function") or {}).get("function_name", ""))
        if name.lower() not in _TABLE_FUNCTIONS:
            raise SqlRefused(f"the table function {name} is not open here")
    elif "function_name" in node and str(node["function_name"]).lower() in _REFUSED_FUNCTIONS:
        raise SqlRefused(f"the function {node['function_name']} is not open here")


def _ctes(parsed: Any) -> Iterator[str]:
    """Names that the statement's WITHs define. A name that is not a plain word could be a file."""
    for node in _objects(parsed):
        for entry in (node.get("cte_map") or {}).get("map", ()):
            name = str(entry["key"])
            if not name.isidentifier():
                raise SqlRefused(f"give WITH {name!r} a plain name")
            yield name


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _objects(item)
