"""Late facts folded into thin rows, in SQL. `model.facts` says the same in Python.

Facts about single messages and `tokens.<stream>` facts are not folded here: they belong to
messages, and are laid over them when a rollout is read whole.

Nothing here raises, whatever facts and rollouts hold: what cannot be folded is left out, and
`left_out` counts it.
"""

from __future__ import annotations

from collections import defaultdict

from ..model import schema
from ..model.facts import DICT_FACTS, FATE_RANK, FIELD_FACTS, NUMBER, SET_FACTS, TRUTHS, type_of
from ..model.records import Error
from ..model.tokens import INT_STREAMS
from .tables import LENGTH, literal, q

LAST_FACT = "coalesce(time, 0) DESC, coalesce(writer, '') DESC, coalesce(n, 0) DESC"
"""ORDER BY: of several facts with one name, the one that wins comes first."""


def _rank(text: str) -> str:
    """How far along a fate is, as SQL."""
    cases = " ".join(f"WHEN '{fate}' THEN {rank}" for fate, rank in FATE_RANK.items())
    return f"CASE {text} {cases} ELSE 2 END"


_TRUE = ", ".join(literal(text) for text, says in TRUTHS.items() if says)
_FALSE = ", ".join(literal(text) for text, says in TRUTHS.items() if not says)

_TOLD = f"""
SELECT *, CASE WHEN json_type(value) <> 'VARCHAR' OR regexp_full_match(digits, {literal(NUMBER)})
    THEN TRY_CAST(digits AS DOUBLE) END AS number
FROM (
    SELECT *, CASE WHEN text IN ({_TRUE}) THEN '1' WHEN text IN ({_FALSE}) THEN '0' ELSE text END
        AS digits
    FROM (SELECT *, json_extract_string(value, '$') AS text FROM {{facts}})
)"""
"""Facts with what their values may stand for."""

_HELD = {
    "VARCHAR": "text",
    "DOUBLE": "number",
    "BIGINT": "CASE WHEN isfinite(number) AND number = floor(number) "
    "THEN TRY_CAST(digits AS BIGINT) END",
    "BOOLEAN": f"CASE WHEN text IN ({_TRUE}) THEN true WHEN text IN ({_FALSE}) THEN false END",
    "JSON": "CASE WHEN json_type(value) <> 'NULL' THEN value END",
    "ERROR": "CASE WHEN coalesce("
    + ", ".join(f"json_extract_string(value, '$.{name}')" for name in Error.__struct_fields__)
    + ") IS NOT NULL THEN value END",
}
"""The value of a fact as a column of this type holds it; null if it cannot."""


def _is_entry(field: str) -> str:
    """Is a fact about an entry of this field?"""
    return f"(starts_with(name, '{field}.') AND length(name) > {len(field) + 1})"


def _fits() -> str:
    """Can its field hold the value of a fact?"""
    names = defaultdict(list)
    for name in FIELD_FACTS:
        names[type_of(name)].append(name)
    cases = [
        f"WHEN name IN ({', '.join(map(literal, said))}) THEN ({_HELD[type]}) IS NOT NULL"
        for type, said in names.items()
    ]
    cases += [
        f"WHEN {_is_entry(f)} THEN ({_HELD[type_of(f + '.x')]}) IS NOT NULL" for f in DICT_FACTS
    ]
    return f"CASE {' '.join(cases)} ELSE ({_HELD['JSON']}) IS NOT NULL END"


_FITS = _fits()


def _entries(field: str) -> str:
    """The facts `<field>.<key>` of a rollout as a map."""
    return (
        f"map_from_entries(list((substr(name, {len(field) + 2}), {_HELD[type_of(field + '.x')]}) "
        f"ORDER BY name) FILTER ({_is_entry(field)})) AS {q(field)}"
    )


def _is_tag(kind: str) -> str:
    return f"starts_with(name, '{kind}.')"


def _tags(kind: str, column: str) -> str:
    return (
        f"list_sort(coalesce(list(DISTINCT substr(name, {len(kind) + 2})) "
        f"FILTER ({_is_tag(kind)} AND value::VARCHAR <> 'false'), [])) AS {column}, "
        f"count(*) FILTER ({_is_tag(kind)}) > 0 AS any_{column}"
    )


def fold(rollouts: str, facts: str) -> str:
    """SELECT of thin rows as all their facts say they are. Both arguments are relations.

    `facts` must hold all facts of the rollouts that have any, folded before or not.
    """
    fields = ", ".join(
        f"any_value({_HELD[type_of(name)]}) FILTER (name = '{name}') AS {q(name)}"
        for name in FIELD_FACTS
    )
    picked = ", ".join(f"{_folded(column.name)} AS {q(column.name)}" for column in schema.ROLLOUTS)
    return f"""
WITH said AS (
    SELECT rollout, name, value, text, digits, number FROM ({_TOLD.format(facts=facts)})
    WHERE (message IS NULL OR {" OR ".join(map(_is_tag, SET_FACTS))}) AND {_FITS}
    QUALIFY row_number() OVER (
        PARTITION BY rollout, name, message
        ORDER BY CASE WHEN name = 'fate' THEN {_rank("text")} ELSE 0 END DESC, {LAST_FACT}
    ) = 1
),
patch AS (
    SELECT rollout, {fields},
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
        is_left, merged = f"{late} IS NULL", f"map_concat({own}, {late})"
        if type_of(f"{name}.x") == "JSON":
            is_left += f" OR NOT {_takes_entries(own)}"
            merged = f"to_json(map_concat({_entries_of(own)}, {late}))"
        return f"CASE WHEN {is_left} THEN {own} ELSE {merged} END"
    if name in SET_FACTS.values():
        return f"CASE WHEN p.any_{name} THEN {late} ELSE {own} END"
    return own


def _takes_entries(json: str) -> str:
    """Is it an object, or nothing yet? A list or a text has no place for an entry."""
    return f"coalesce(json_type({json}) IN ('OBJECT', 'NULL'), true)"


def _entries_of(json: str) -> str:
    """The entries of a JSON object as a map. Of a name that stands in it twice, the last holds."""
    pairs = f"list_zip(json_keys({json}), json_extract({json}, '$.*'))"
    one_by_one = (
        f"list_reduce(list_transform({pairs}, lambda e: MAP([e[1]], [e[2]])), "
        "lambda a, b: map_concat(a, b), MAP([]::VARCHAR[], []::JSON[]))"
    )
    whole = f"TRY_CAST({json} AS MAP(VARCHAR, JSON))"
    return f"CASE json_type({json}) WHEN 'OBJECT' THEN coalesce({whole}, {one_by_one}) END"


def left_out() -> str:
    """SELECT of facts that are kept and shown nowhere, over the views of a reader: their kind, why,
    how many, and the rollout of one of them. Facts of unknown rollouts are not among them."""
    misplaced = [
        f"starts_with(name, '{field}.') AND rollout IN "
        f"(SELECT id FROM rollouts r WHERE NOT {_takes_entries(f'r.{q(field)}')})"
        for field in DICT_FACTS
        if type_of(field + ".x") == "JSON"
    ]
    wholes = ", ".join(literal(f"tokens.{name}") for name in INT_STREAMS)
    known = " OR ".join(
        [f"name IN ({', '.join(map(literal, (*FIELD_FACTS, 'note')))})"]
        + [f"starts_with(name, '{head}.')" for head in (*DICT_FACTS, *SET_FACTS, "tokens")]
    )
    return f"""
WITH told AS ({_TOLD.format(facts="facts WHERE rollout IN (SELECT id FROM rollouts)")}),
lengths AS (
    SELECT rollout, n, any_value({LENGTH}) AS tokens FROM messages
    WHERE rollout IN (SELECT rollout FROM facts WHERE stream IS NOT NULL OR message IS NOT NULL)
    GROUP BY rollout, n
),
judged AS (
    SELECT *, CASE
        WHEN message IS NOT NULL AND (rollout, message) NOT IN (SELECT (rollout, n) FROM lengths)
            THEN 'about messages that are not there'
        WHEN stream IS NOT NULL AND len(stream) IS DISTINCT FROM (
            SELECT sum(tokens) FROM lengths l
            WHERE l.rollout = f.rollout AND (f.message IS NULL OR f.message = l.n)
        ) THEN 'of another length than the tokens that they are about'
        WHEN (stream IS NULL AND value IS NOT NULL AND NOT {_FITS})
            OR (name IN ({wholes}) AND len(list_filter(stream, lambda v: NOT isfinite(v))) > 0)
            THEN 'with values that the field cannot hold'
        WHEN message IS NULL AND ({" OR ".join(misplaced)})
            THEN 'about entries of what is a list or a text'
        WHEN message IS NULL AND NOT ({known}) THEN 'of a kind that this version does not know'
    END AS why FROM told f
)
SELECT split_part(name, '.', 1) AS kind, why, count(*), min(rollout) FROM judged
WHERE why IS NOT NULL GROUP BY ALL ORDER BY ALL
"""
