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


def _typed(name: str) -> str:
    """The value of a fact as its column holds it; null if it does not fit."""
    type = _TYPES[name]
    if type == "JSON":
        return "value"
    return _TEXT if type == "VARCHAR" else f"TRY_CAST({_TEXT} AS {type})"


def _entries(field: str) -> str:
    """The facts `<field>.<key>` of a rollout as a map."""
    value = {"meta": "value", "rewards": f"TRY_CAST({_TEXT} AS DOUBLE)", "reward_texts": _TEXT}
    return (
        f"map_from_entries(list((substr(name, {len(field) + 2}), {value[field]}) ORDER BY name) "
        f"FILTER (starts_with(name, '{field}.') AND length(name) > {len(field) + 1} "
        f"AND {value[field]} IS NOT NULL)) AS {field}"
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
    fields = ", ".join(
        f"any_value({_typed(name)}) FILTER (name = '{name}' AND message IS NULL) AS {q(name)}"
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
        any_value(value) FILTER (name = 'error' AND message IS NULL) AS error,
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
    if name == "meta":
        merged = "to_json(map_concat(CAST(r.meta AS MAP(VARCHAR, JSON)), p.meta))"
        return f"CASE WHEN p.meta IS NULL THEN r.meta ELSE {merged} END"
    if name in DICT_FACTS:
        return f"CASE WHEN {late} IS NULL THEN {own} ELSE map_concat({own}, {late}) END"
    if name in SET_FACTS.values():
        return f"CASE WHEN p.any_{name} THEN {late} ELSE {own} END"
    return own
