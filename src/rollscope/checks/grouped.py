"""Groups are looked at: thin rows and digests, group by group. No text is read again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec
from duckdb import DuckDBPyConnection

from ..query import Store
from ..store.tables import StoredRow, rows
from .habits import Habits, habits
from .look import Panel
from .subject import Member, OneGroup
from .unlooked import UnlookedGroup
from .worker import finding_row

COLUMNS = (
    "id", "project", "run", "launch", "step", "trained_step", "split", "dataset", "task", "group",
    "index", "attempt", "environment", "reward", "rewards", "advantage", "stop_reason", "truncated",
    "fate", "fate_reason", "error_kind", "error_type", "policy_version", "messages", "turns",
    "prompt_tokens", "response_tokens", "version_min", "version_max", "time",
)  # fmt: skip
"""What checks of groups are told of a rollout."""

AT_ONCE = 1024
"""Groups of which the members are held in memory: 12,500 of eight took 300 MB."""


def look_at_groups(
    store: Store, groups: Sequence[UnlookedGroup], panel: Panel
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Rows of the two tables about the members of these groups of one run."""
    project, run = groups[0].place
    usual = habits(store, groups[0].place)
    algorithms: dict[str, Mapping[str, Any]] = {}
    for first in range(0, len(groups), AT_ONCE):
        some = groups[first : first + AT_ONCE]
        for number, members in groupby(_members(store, some), key=itemgetter("number")):
            together = list(members)
            launch = together[0]["launch"]
            if launch not in algorithms:
                told = store.algorithm(run, launch, project=project)
                algorithms[launch] = {} if told is None else msgspec.to_builtins(told)
            yield from _of_group(some[number], together, usual, panel, algorithms[launch])


def _members(store: Store, groups: Sequence[UnlookedGroup]) -> list[StoredRow]:
    """The rows of all members, with what was found in each, group by group."""
    names = ", ".join(f'r."{name}"' for name in COLUMNS)
    sql = (
        f"SELECT t.number, c.found, c.unobserved, c.digest, {names} FROM todo t "
        "JOIN rollouts r ON r.id = t.id JOIN flags.rows c ON c.rollout = t.id "
        "WHERE c.subject = 'rollout' ORDER BY t.number, t.place"
    )

    def asked(db: DuckDBPyConnection) -> list[StoredRow]:
        with db.cursor() as own:
            own.execute("CREATE TEMP TABLE todo (id VARCHAR, number INTEGER, place INTEGER)")
            own.execute(
                "INSERT INTO todo SELECT unnest(ids), number, generate_subscripts(ids, 1) FROM "
                "(SELECT unnest(?::VARCHAR[][]) AS ids, unnest(range(?)) AS number)",
                [[group.ids for group in groups], len(groups)],
            )
            return list(rows(own, sql))

    return store.reader.reading(asked)


def _of_group(
    todo: UnlookedGroup,
    found: list[dict[str, Any]],
    usual: Habits,
    panel: Panel,
    algorithm: Mapping[str, Any],
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    members = [
        Member(row, frozenset(row["found"]), frozenset(row["unobserved"]), row["digest"] or {})
        for row in found
    ]
    first = members[0].row
    group = OneGroup(
        members, usual.size(first), todo.is_settled, algorithm, usual.about(first),
        usual.elsewhere(first),
    )  # fmt: skip
    answers = panel.group(group)
    for member in members:
        answer, row = answers[member.id], member.row
        about = {"project": row["project"], "run": row["run"], "split": row["split"],
                 "step": row["step"], "rollout": member.id}  # fmt: skip
        yield "checked", {
            **about, "subject": "group", "found": sorted(answer.found),
            "unobserved": sorted(answer.unobserved), "signature": todo.signature,
        }  # fmt: skip
        for finding in answer.findings:
            yield "findings", {**about, **finding_row(finding)}
