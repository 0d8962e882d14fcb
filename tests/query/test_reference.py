"""The engine finds what plain Python finds, over random rollouts and random queries."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollscope.model import Part, ToolCall
from rollscope.model import records as record
from rollscope.query import QueryError, Store
from rollscope.query.match import searched

from .random_queries import (
    NUMBERS,
    Message,
    Query,
    Row,
    fragments,
    messages,
    pieces,
    queries,
    rollouts,
)
from .tables import Tables

TABLES = Tables()


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(rollouts, st.lists(messages, max_size=3)), min_size=1, max_size=5),
    queries,
    st.booleans(),
)
def test_the_engine_finds_what_plain_python_finds(
    data: list[tuple[Row, list[Message]]], query: Query, with_superseded: bool
) -> None:
    text, holds = query
    if with_superseded:
        text = f"({text}) (has:launch OR launch:none)"
    expected = [
        f"r{i}"
        for i, (row, said) in enumerate(data)
        if holds(row, said) and (with_superseded or not row["superseded"])
    ]
    TABLES.fill(
        [{"id": f"r{i}", **row} for i, (row, _) in enumerate(data)],
        [
            {"rollout": f"r{i}", "n": n, **message}
            for i, (_, said) in enumerate(data)
            for n, message in enumerate(said)
        ],
    )
    store = Store(reader=TABLES)
    assert sorted(row.id for row in store.rollouts(text)) == expected
    assert store.rollouts(text).count() == len(expected)


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(fragments | st.text(max_size=3), max_size=12).map("".join))
def test_any_text_is_a_query_or_an_error_that_points(text: str) -> None:
    try:
        found = Store(reader=TABLES).rollouts(text)
    except QueryError as error:
        assert 0 <= error.start <= len(text)
        assert error.start < error.end
        assert str(error)
    else:
        list(found)


@settings(max_examples=300, deadline=None)
@given(messages)
def test_a_search_without_the_engine_looks_at_the_same_texts(message: Message) -> None:
    parts = [
        Part(
            type=p["type"], data=p.get("data"), call=ToolCall(**p["call"]) if "call" in p else None
        )
        for p in message["parts"] or []
    ]
    if message["text"] is not None:
        parts.append(Part(type="text", text=message["text"]))
    calls = [ToolCall(**call) for call in message["tool_calls"] or []]
    found = searched(record.Message(role=message["role"], content=parts or None, tool_calls=calls))
    assert {text for text in found if text} == {text for text in pieces(message) if text}


def sorts_last(value: Any) -> bool:
    return value is None or value != value


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(rollouts, min_size=1, max_size=8),
    st.lists(
        st.sampled_from(["reward", "step", "task", "truncated", "duration", "staleness", "start"]),
        max_size=3,
        unique=True,
    ),
    st.lists(st.booleans(), min_size=3, max_size=3),
    st.integers(1, 3),
    st.booleans(),
)
def test_pages_are_in_the_order_of_plain_python(
    rows: list[Row], names: list[str], down: list[bool], size: int, one_scan: bool
) -> None:
    rows = [{**row, "id": f"r{i}", "superseded": False} for i, row in enumerate(rows)]
    TABLES.fill(rows, [])
    TABLES.one_scan = one_scan
    expected = list(rows)
    for name, reverse in reversed(list(zip(names, down, strict=False))):
        value = NUMBERS.get(name) or (lambda row, name=name: row[name])
        known = [row for row in expected if not sorts_last(value(row))]
        last = [row for row in expected if sorts_last(value(row))]
        expected = sorted(known, key=value, reverse=reverse) + last
    order = ",".join("-" * d + name for name, d in zip(names, down, strict=False))
    selection = Store(reader=TABLES).rollouts(order=order)
    found, cursor = [], None
    while True:
        page = selection.page(size, cursor)
        found += [row.id for row in page.rows]
        cursor = page.next
        if cursor is None:
            break
    assert found == [row["id"] for row in expected]
