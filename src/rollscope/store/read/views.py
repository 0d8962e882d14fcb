"""The five views over sealed files and the live tail, as SQL text."""

from __future__ import annotations

from ..tables import columns


def body_view(table: str, sealed: str | None, *, live: bool) -> str:
    """The view of messages, spans, facts or metrics. `live`: the tail has rows of it."""
    sources = [source for source in (sealed, f"tail.{table}" if live else None) if source]
    selects = [f"SELECT {columns(table)} FROM {source}" for source in sources or [f"tail.{table}"]]
    return f"CREATE OR REPLACE VIEW {table} AS {' UNION ALL '.join(selects)}"


def rollouts_view(
    plain: str | None, checked: str | None, *, live: bool, patched: bool, hidden: bool
) -> str:
    """The view of rollouts, as `rollouts_select` says it."""
    select = rollouts_select(plain, checked, live=live, patched=patched, hidden=hidden)
    return f"CREATE OR REPLACE VIEW rollouts AS {select}"


def rollouts_select(
    plain: str | None, checked: str | None, *, live: bool, patched: bool, hidden: bool
) -> str:
    """The rows of the view of rollouts.

    `plain` files are shown as they are. In `checked` ones and the tail, rows that stand in
    `tail.patched` are left out, and those in `tail.hidden` are marked superseded. `live`,
    `patched` and `hidden` tell which tables of the tail have rows: planning a query over an
    empty one takes as long as over one that has some.
    """
    names = columns("rollouts")
    mark = "id IN (SELECT id FROM tail.hidden)" if hidden else "false"
    left_out = " WHERE id NOT IN (SELECT id FROM tail.patched)" if patched else ""
    branches = []
    if live or not (plain or checked):
        branches.append(f"SELECT {names}, {mark} AS superseded FROM tail.rollouts{left_out}")
    if patched:
        branches.append(f"SELECT {names}, {mark} AS superseded FROM tail.patched")
    if plain:
        branches.insert(0, f"SELECT {names}, false AS superseded FROM {plain}")
    if checked:
        branches.append(f"SELECT {names}, {mark} AS superseded FROM {checked}{left_out}")
    return " UNION ALL ".join(branches)
