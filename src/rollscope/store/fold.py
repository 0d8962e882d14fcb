"""Late facts folded into thin rows, in SQL. `model.facts` says the same in Python.

`tokens.<stream>` facts are not folded here: they belong to messages, and are laid over them
when a rollout is read whole.
"""

from __future__ import annotations

from ..model import schema
from ..model.facts import DICT_FACTS, FATE_RANK, FIELD_FACTS, SET_FACTS
from .tables import q

_TYPES = {column.name: column.type for column in schema.ROLLOUTS}


def _rank(text: str) -> str:
    """How far along a fate is, as SQL."""
    cases = " ".join(f"WHEN '{fate}' THEN {rank}" for fate, rank in FATE_RANK.items())
    return f"CASE {text} {cases} ELSE 2 END"


_TEXT = "json_extract_string(value, '$')"


def _typed(type: str) -> str:
    """The value of a fact as a column of this type holds it; null if it does not fit."""
    if type == "JSON":
        return "value"
    return _TEXT if type == "VARCHAR" else f"TRY_CAST({_TEXT} AS {type})"


def _entries(field: str) -> str:
    """The facts `<field>.<key>` of a rollout as a map."""
    value = _typed(_TYPES[field].removeprefix("MAP(VARCHAR, ").removesuffix(")"))
    return (
        f"map_from_entries(list((substr(name, {len(field) + 2}), {value}) ORDER BY name) "
        f"FILTER (starts_with(name, '{field}.') AND length(name) > {len(field) + 1} "
        f"AND {value} IS NOT NULL)) AS {q(field)}"
    )


def _tags(kind: str, column: str) -> str:
    mine = f"starts_with(name, '{kind}.')"
    return (
        f"list_sort(coalesce(list(DISTINCT substr(name, {len(kind) + 2})) "
        f"FILTER ({mine} AND {_TEXT} <> 'false'), [])) AS {column}, "
        f"count(*) FILTER ({mine}) > 0 AS any_{column}"
    )


def fold(rollouts: str, facts: str) -> str:
    """SELECT of thin rows as all their facts say they are. Both arguments are relations.

    `facts` must hold all facts of the rollouts that have any, folded before or not.
    """
    own = "AND message IS NULL"
    fields = ", ".join(
        f"any_value({_typed(_TYPES[name])}) FILTER (name = '{name}' {own}) AS {q(name)}"
        for name in FIELD_FACTS
        if name != "error"
    )
    picked = ", ".join(f"{_folded(column.name)} AS {q(column.name)}" for column in schema.ROLLOUTS)
    return f"""
WITH said AS (
    SELECT rollout, name, message, value FROM {facts}
    WHERE value IS NOT NULL AND NOT starts_with(name, 'tokens.')
    QUALIFY row_number() OVER (
        PARTITION BY rollout, name, message
        ORDER BY CASE WHEN name = 'fate' THEN {_rank(_TEXT)} ELSE 0 END DESC,
            coalesce(time, 0) DESC, coalesce(writer, '') DESC, coalesce(n, 0) DESC
    ) = 1
),
patch AS (
    SELECT rollout, {fields},
        any_value(value) FILTER (name = 'error' {own}) AS error,
        {", ".join(_entries(field) for field in DICT_FACTS)},
        {", ".join(_tags(kind, column) for kind, column in SET_FACTS.items())}
    FROM said GROUP BY rollout
)
SELECT {picked} FROM {rollouts} r LEFT JOIN patch p ON p.rollout = r.id
"""


def _folded(name: str) -> str:
    own, late = f"r.{q(name)}", f"p.{q(name)}"
    if name == "fate":
        further = f"r.fate IS NULL OR {_rank('p.fate')} >= {_rank('r.fate')}"
        return f"CASE WHEN p.fate IS NOT NULL AND ({further}) THEN p.fate ELSE r.fate END"
    if name in FIELD_FACTS:
        return f"coalesce({late}, {own})"
    if name.startswith("error_"):
        key = name.removeprefix("error_")
        return (
            f"CASE WHEN p.error IS NULL THEN {own} ELSE json_extract_string(p.error, '$.{key}') END"
        )
    if name in DICT_FACTS:
        merged = f"map_concat({own}, {late})"
        if _TYPES[name] == "JSON":
            merged = f"to_json(map_concat(CAST({own} AS MAP(VARCHAR, JSON)), {late}))"
        return f"CASE WHEN {late} IS NULL THEN {own} ELSE {merged} END"
    if name in SET_FACTS.values():
        return f"CASE WHEN p.any_{name} THEN {late} ELSE {own} END"
    return own
