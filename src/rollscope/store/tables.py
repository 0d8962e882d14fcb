"""Lines of logs become rows of the five tables: the one definition of every column.

Sealing and the live tail both go through `stage` and `thin`, so a rollout looks the same
whether it was logged a second or a year ago. All of it is SQL, derived from `model.schema`.

A number that does not fit its column becomes null and a line that is no JSON becomes a row
of nulls (`ignore_errors`): one odd value never costs the file it lies in.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..model import schema
from ..model.conversation import ANSWER, BY_POLICY, PARENT, wrote_sql
from ..model.tokens import KNOWN_STREAMS
from .header import Header

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

PREVIEW = 160
"""Characters of a preview: two lines of a list. 400 made the thin table twice as large."""


# -- the shape of a line ---------------------------------------------------------------


def q(name: str) -> str:
    """`name` as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: object) -> str:
    """`text` as a literal of SQL."""
    return "'" + str(text).replace("'", "''") + "'"


def path_literal(path: object) -> str:
    """The name of a file as a literal of SQL. The engine takes names for patterns, unless they are
    escaped."""
    return literal(glob.escape(str(path)))


def _struct(fields: dict[str, str]) -> str:
    return "STRUCT(" + ", ".join(f"{q(name)} {type}" for name, type in fields.items()) + ")"


_ERROR = _struct({"kind": "VARCHAR", "type": "VARCHAR", "text": "VARCHAR"})

# Columns that are not keys of the wire form, and where their values come from.
_FROM_HEADER = {"project": "l.project", "run": "l.run", "writer": "l.writer",
                "launch": "coalesce(r.launch, l.launch)",
                "worker": "coalesce(r.worker, l.worker)"}  # fmt: skip
_FROM_ERROR = [c.name for c in schema.ROLLOUTS if c.source == "error"]
_COMPUTED = [c.name for c in schema.ROLLOUTS if c.source in ("messages", "facts")]

_MESSAGE_SOURCE = {
    "rollout": "id",
    "n": "n",
    # On the wire, none is "the one before" and -1 a root; in the table, null is a root.
    "parent": PARENT,
    "text": "m.content",
    "token_ids": "m.tokens.ids",
    "token_ends": "m.tokens.ends",
    **{name: f"m.tokens.{name}" for name in (*KNOWN_STREAMS, "streams")},
}

_TYPES = {table: {c.name: c.type for c in columns} for table, columns in schema.TABLES.items()}


def _wire_types() -> dict[str, str]:
    """Columns of a line, for `read_ndjson`; and in front the number of its log and its own."""
    messages, spans, facts = _TYPES["messages"], _TYPES["spans"], _TYPES["facts"]
    tokens = {"ids": messages["token_ids"], "ends": messages["token_ends"]}
    tokens |= {name: messages[name] for name in (*KNOWN_STREAMS, "streams")}
    message = {n: t for n, t in messages.items() if n not in _MESSAGE_SOURCE}
    message |= {"parent": "INTEGER", "content": "VARCHAR", "tokens": _struct(tokens)}
    span = {n: t for n, t in spans.items() if n not in ("rollout", "n", *_FROM_ERROR)}
    span["error"] = _ERROR
    bodies = {"messages": _struct(message) + "[]", "spans": _struct(span) + "[]"}
    rollout = {c.name: c.type for c in schema.FIELDS}
    rollout |= {"error": _ERROR, **bodies}
    fact = {n: t for n, t in facts.items() if n not in ("writer", "folded")}
    return {
        "log": "INTEGER",
        "line": "BIGINT",
        "rollout": _struct(rollout),
        "open": "BOOLEAN",
        "more": _struct({"id": "VARCHAR", "first": "INTEGER", **bodies}),
        "facts": _struct(fact) + "[]",
        "metrics": _struct({"step": "BIGINT", "time": "DOUBLE", "values": "MAP(VARCHAR, DOUBLE)"}),
    }


LINE = _wire_types()


# -- lines to rows ---------------------------------------------------------------------


def columns(table: str, without: Iterable[str] = (), prefix: str = "") -> str:
    """The columns of a table as a list for SELECT."""
    return ", ".join(prefix + q(name) for name in _TYPES[table] if name not in without)


def ddl(table: str) -> str:
    """The columns of a table as CREATE TABLE wants them."""
    return ", ".join(f"{q(name)} {type}" for name, type in _TYPES[table].items())


def stage(db: DuckDBPyConnection, headers: dict[int, Header]) -> None:
    """Turn the lines in `staged_lines` (see `lines`) into temporary tables `staged_*`.

    `staged_heads` has one row a rollout, its last head, and whether it begins in these lines
    (`begun`); the others have the columns of their
    table, each with `log` and, where later lines replace earlier ones, `line` in front.
    """
    _stage_headers(db, headers)
    for statement in _STAGE:
        db.execute(statement)
    if one(db, "SELECT count(*) FROM staged_grown"):
        for statement in _LAST_WINS:
            db.execute(statement)


def _stage_headers(db: DuckDBPyConnection, headers: dict[int, Header]) -> None:
    names = ("project", "run", "launch", "writer", "worker")
    db.execute(
        "CREATE OR REPLACE TEMP TABLE staged_logs (log INTEGER, spans BIGINT, "
        + ", ".join(f"{name} VARCHAR" for name in names)
        + ")"
    )
    values = {name: [getattr(h, name) for h in headers.values()] for name in ("spans", *names)}
    picked = ", ".join(f"unnest(${name})" for name in ("log", *values))
    db.execute(f"INSERT INTO staged_logs SELECT {picked}", {"log": list(headers), **values})


def _heads_sql() -> str:
    source = {
        **{name: f"r.{q(name)}" for name in _TYPES["rollouts"]},
        **_FROM_HEADER,
        **{name: f"r.error.{name.removeprefix('error_')}" for name in _FROM_ERROR},
        "open": "coalesce(s.open, false)",
    }
    picked = ", ".join(
        f"{source[name]} AS {q(name)}" for name in _TYPES["rollouts"] if name not in _COMPUTED
    )
    return (
        "CREATE OR REPLACE TEMP TABLE staged_heads AS "
        f"SELECT s.log, s.line, k.begun, {picked} FROM "
        "(SELECT log, line, rollout AS r, open FROM staged_lines WHERE rollout.id IS NOT NULL) s "
        "JOIN (SELECT log, max(line) AS line, bool_or(open IS NOT false) AS begun "
        "FROM staged_lines WHERE rollout.id IS NOT NULL GROUP BY log, rollout.id) k "
        "USING (log, line) JOIN staged_logs l USING (log)"
    )


_GROWN = """
CREATE OR REPLACE TEMP TABLE staged_grown AS
SELECT log, id FROM (
    SELECT log, coalesce(rollout.id, more.id) AS id FROM staged_lines
) WHERE id IS NOT NULL GROUP BY ALL HAVING count(*) > 1
"""


def _messages_sql() -> str:
    picked = ", ".join(
        f"{_MESSAGE_SOURCE.get(name, 'm.' + q(name))} AS {q(name)}" for name in _TYPES["messages"]
    )
    return f"""
CREATE OR REPLACE TEMP TABLE staged_messages AS
SELECT log, line, {picked} FROM (
    SELECT log, line, id, first + pos AS n, m FROM (
        SELECT log, line, coalesce(rollout.id, more.id) AS id, coalesce(more.first, 0) AS first,
            unnest(coalesce(rollout.messages, more.messages)) AS m,
            (generate_subscripts(coalesce(rollout.messages, more.messages), 1) - 1)::INTEGER AS pos
        FROM staged_lines
        WHERE len(coalesce(rollout.messages, more.messages)) > 0
    ) WHERE id IS NOT NULL
)
"""


_LAST_MESSAGES = """
DELETE FROM staged_messages WHERE (log, rollout) IN (SELECT (log, id) FROM staged_grown)
AND (log, rollout, n, line) NOT IN (
    SELECT (log, rollout, n, max(line)) FROM staged_messages GROUP BY log, rollout, n
)
"""


def _spans_sql() -> str:
    source = {
        "rollout": "id",
        "n": "l.spans + row_number() OVER (PARTITION BY log ORDER BY line, pos) - 1",
        **{name: f"s.error.{name.removeprefix('error_')}" for name in _FROM_ERROR},
    }
    picked = ", ".join(
        f"{source.get(name, 's.' + q(name))} AS {q(name)}" for name in _TYPES["spans"]
    )
    return f"""
CREATE OR REPLACE TEMP TABLE staged_spans AS
SELECT log, line, {picked} FROM (
    SELECT log, line, coalesce(rollout.id, more.id) AS id,
        unnest(coalesce(rollout.spans, more.spans)) AS s,
        generate_subscripts(coalesce(rollout.spans, more.spans), 1) AS pos
    FROM staged_lines WHERE len(coalesce(rollout.spans, more.spans)) > 0
) JOIN staged_logs l USING (log) WHERE id IS NOT NULL
"""


# Two spans of one line may share an id; the same span in a later line replaces it.
_LAST_SPANS = """
DELETE FROM staged_spans WHERE (log, rollout) IN (SELECT (log, id) FROM staged_grown)
AND id IS NOT NULL AND (log, rollout, id, line) NOT IN (
    SELECT (log, rollout, id, max(line)) FROM staged_spans WHERE id IS NOT NULL
    GROUP BY log, rollout, id
)
"""


def _facts_sql() -> str:
    source = {"writer": "l.writer", "folded": "false"}
    picked = ", ".join(
        f"{source.get(name, 'f.' + q(name))} AS {q(name)}" for name in _TYPES["facts"]
    )
    return f"""
CREATE OR REPLACE TEMP TABLE staged_facts AS
SELECT log, {picked} FROM (
    SELECT log, unnest(facts) AS f FROM staged_lines WHERE len(facts) > 0
) JOIN staged_logs l USING (log) WHERE f.rollout IS NOT NULL AND f.name IS NOT NULL
"""


_METRICS = f"""
CREATE OR REPLACE TEMP TABLE staged_metrics AS
SELECT log, {columns("metrics")} FROM (
    SELECT log, metrics.step AS step, metrics.time AS time,
        unnest(map_keys(metrics.values)) AS name, unnest(map_values(metrics.values)) AS value
    FROM staged_lines WHERE metrics IS NOT NULL
) JOIN staged_logs l USING (log)
"""

# Messages without their rollout's head in these lines: it lies in another log, or is damaged.
_HEADLESS = """
INSERT INTO staged_heads BY NAME
SELECT log, -1 AS line, false AS begun, rollout AS id, project, run, launch, writer, worker
FROM (SELECT DISTINCT log, rollout FROM staged_messages) m
JOIN staged_logs l USING (log) ANTI JOIN staged_heads h ON h.log = m.log AND h.id = m.rollout
"""

_STAGE = (
    _heads_sql(), _GROWN, _messages_sql(), _spans_sql(), _facts_sql(), _METRICS, _HEADLESS,
)  # fmt: skip
_LAST_WINS = (_LAST_MESSAGES, _LAST_SPANS)


# -- the thin table --------------------------------------------------------------------

LENGTH = "coalesce(" + ", ".join(
    f"len({q(name)})" for name in ("token_ids", "token_ends", *KNOWN_STREAMS)
) + ", len(map_values(streams)[1]))"  # fmt: skip

_WROTE_FROM, _WROTE_TO = wrote_sql("tokens")

_BRIEF = f"""
SELECT rollout, n, {BY_POLICY} AS policy, {LENGTH} AS tokens,
    CASE WHEN policy AND tokens IS NOT NULL THEN {_WROTE_FROM} END AS wrote_from,
    CASE WHEN policy AND tokens IS NOT NULL THEN {_WROTE_TO} END AS wrote_to,
    list_min("version") AS version_min, list_max("version") AS version_max,
    CASE WHEN tool_calls IS NOT NULL THEN json_extract_string(tool_calls, '$[*].name') END AS calls,
    CASE WHEN parts IS NOT NULL THEN json_extract_string(parts, '$[*].call.name') END AS part_calls,
    coalesce(nullif(left(CASE WHEN policy THEN {ANSWER} ELSE text END, {PREVIEW}), ''),
        nullif(left(text, {PREVIEW}), '')) AS preview
"""
"""What a message adds to its rollout's thin row."""


def thin(heads: str, messages: str) -> str:
    """SELECT of thin rows: `heads` (scalars, one row a rollout) with what `messages` add up to.

    Both are relations (names or SELECTs in brackets). Labels and flags are empty: folding
    facts in is `fold`'s work.
    """
    counted = {
        "messages": "coalesce(c.messages, 0)",
        "turns": "coalesce(c.turns, 0)",
        "tools": "coalesce(c.tools, [])",
        "labels": "[]::VARCHAR[]",
        "flags": "[]::VARCHAR[]",
    }
    picked = ", ".join(
        f"CAST({counted.get(name, 'c.' + q(name))} AS {type}) AS {q(name)}"
        if name in _COMPUTED
        else f"h.{q(name)}"
        for name, type in _TYPES["rollouts"].items()
    )
    return f"""
WITH brief AS MATERIALIZED ({_BRIEF} FROM {messages}),
first_turn AS (SELECT rollout, min(n) AS n FROM brief WHERE policy GROUP BY rollout),
counts AS (
    SELECT b.rollout, count(*) AS messages, count(*) FILTER (policy) AS turns,
        sum(CASE WHEN b.n = f.n THEN nullif(wrote_from, 0) ELSE tokens END)
            FILTER (f.n IS NULL OR b.n <= f.n) AS prompt_tokens,
        sum(wrote_to - wrote_from) AS response_tokens,
        list_sort(list_distinct(list_filter(flatten(list_concat(
            list(calls) FILTER (calls IS NOT NULL),
            list(part_calls) FILTER (part_calls IS NOT NULL))), lambda x: x IS NOT NULL)))
            AS tools,
        min(version_min) AS version_min, max(version_max) AS version_max,
        arg_max(preview, b.n) FILTER (f.n IS NULL OR b.n < f.n) AS prompt_preview,
        arg_max(preview, b.n) FILTER (policy) AS preview
    FROM brief b LEFT JOIN first_turn f USING (rollout) GROUP BY b.rollout
)
SELECT {picked} FROM {heads} h LEFT JOIN counts c ON c.rollout = h.id
"""


def one(db: DuckDBPyConnection, sql: str, values: Any = None) -> Any:
    """The single value of a query."""
    row = db.execute(sql, values).fetchone()
    return row[0] if row else None


StoredRow = dict[str, Any]
"""A row of one of the five tables, by column name."""


def rows(
    db: DuckDBPyConnection, sql: str, values: Any = None, batch: int = 1000
) -> Iterator[StoredRow]:
    """The rows of a query by column name, so many taken from the engine at a time."""
    result = db.execute(sql, values)
    names = [column[0] for column in result.description or ()]
    while some := result.fetchmany(batch):
        for row in some:
            yield dict(zip(names, row, strict=True))
