"""The keys of the query language, derived from the schema, each with its kind of match.

| kind | takes | true when |
|---|---|---|
| number | `5` `<5` `<=5` `>5` `>=5` `1..5` `1..` `..5` `nan` | the number is so |
| time | the same, or dates: `>2026-11-15`, `2026-11-15T10:30..` | the time is so |
| bool | `true` `false` | it is that |
| equal | `word` `"word"` `/re/` | the text is exactly that (or the pattern is found in it) |
| contains | `word` `"Word"` `/re/` | it contains that |
| member | `word` `"word"` `/re/` | one of its entries is exactly that |
| json | all of these | the JSON value, or an entry of the JSON list, is so |
| text | `word` `"Word"` `/re/` | a message of the rollout contains that |
| any | a key | see `has` |

`key:none` is true when there is no value, whatever the kind.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Literal, NamedTuple

from rollscope.model.schema import ROLLOUTS

from .errors import QueryError
from .syntax import key_pieces, written_piece

Kind = Literal["number", "time", "bool", "equal", "contains", "member", "json", "text", "any"]


class Key(NamedTuple):
    """A key as a person types it, and what it reads."""

    name: str
    """Ends in `.*` when a name of the user's own follows the dot."""
    kind: Kind
    doc: str
    sql: str
    """The value, over one row `r` of the table `rollouts`. Written here and nowhere else: no
    part of a query ever becomes SQL. `?` stands for the name after the dot."""
    columns: tuple[str, ...]
    """Columns of `rollouts` that `sql` reads."""
    whole: bool = False
    """A whole number: compared as such, and never NaN."""


class Asked(NamedTuple):
    """A key of a query: which one, and the name after its dot."""

    key: Key
    path: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As it is written in a query."""
        return written((self.key.name.removesuffix(".*"), *self.path))


def _from_schema() -> list[Key]:
    keys = []
    for column in ROLLOUTS:
        name, match = column.name, column.match
        sql = f'r."{name}"'
        if match is None:
            continue
        if match == "map":
            doc = column.doc.removesuffix(".")
            keys.append(Key(f"{name}.*", "number", f"{doc}: one of them.", f"{sql}[?]", (name,)))
        elif match == "json":
            keys.append(Key(f"{name}.*", "json", column.doc, sql, (name,)))
        else:
            whole = column.type == "BIGINT"
            keys.append(Key(column.key, match, column.doc, sql, (name,), whole))
    return keys


_COMPUTED = [
    Key(
        "duration",
        "number",
        "Seconds from its start to its end.",
        'r."end" - r."start"',
        ("end", "start"),
    ),
    Key(
        "staleness",
        "number",
        "Steps between asking for it and learning from it.",
        'r."trained_step"::HUGEINT - r."step"',
        ("trained_step", "step"),
        True,
    ),
    Key(
        "version",
        "number",
        "A version of the weights that wrote some of it (any from `version_min` to `version_max`).",
        "",
        ("version_min", "version_max", "policy_version"),
        True,
    ),
    Key(
        "error",
        "contains",
        "Kind, type or text of the error.",
        "",
        ("error_kind", "error_type", "error_text"),
    ),
    Key("unobserved", "member", "Checks that had no evidence to look at.", "", ()),
    Key("clear", "member", "Checks that looked and found nothing.", "", ()),
    Key("superseded", "bool", "Replaced by a later launch?", 'r."superseded"', ("superseded",)),
    Key("validate", "bool", "verl's word: true is split eval.", "r.\"split\" = 'eval'", ("split",)),
    Key("text", "text", "Text, tool arguments or tool results of any message.", "", ()),
    Key("assistant", "text", "The same, of the assistant's messages.", "", ()),
    Key("user", "text", "The same, of the user's messages.", "", ()),
    Key("system", "text", "The same, of system messages.", "", ()),
    Key("role.*", "text", "The same, of messages with that role: `role.tool:`.", "", ()),
    Key("has", "any", "Is there a value? `has:reward`, `has:meta.lang`.", "", ()),
]

KEYS: dict[str, Key] = {key.name: key for key in [*_from_schema(), *_COMPUTED]}

ALIASES: dict[str, str] = {
    word: column.key
    for column in ROLLOUTS
    for word in (*column.aliases, column.name)
    if word != column.key
}
"""Words of the trainers, and the keys they mean; lists are asked for by the name of one entry."""


def find(pieces: tuple[str, ...]) -> Asked | None:
    """The key that these pieces between dots name, or None."""
    head, path = ALIASES.get(pieces[0], pieces[0]), pieces[1:]
    if not path:
        return Asked(KEYS[head]) if head in KEYS else None
    key = KEYS.get(f"{head}.*")
    if key is None:
        return None
    return Asked(key, path if key.kind == "json" else (".".join(path),))


def named(text: str) -> Asked | None:
    """The key that a text such as `meta.lang` names, or None."""
    pieces = key_pieces(text)
    return None if pieces is None else find(pieces)


def asked(text: str) -> Asked:
    """The key that is asked for by itself, or an error that names the nearest ones."""
    found = named(text)
    if found is None:
        raise unknown(text, text, 0, len(text))
    return found


def written(pieces: Iterable[str]) -> str:
    """A key as a query has it: pieces between dots, in quotes where they need them."""
    head, *path = ".".join(pieces).split(".")
    return ".".join((head, *map(written_piece, path)))


def known(pieces: tuple[str, ...], query: str, start: int, end: int) -> Asked:
    """The key that the pieces name, or an error that names the nearest ones."""
    asked = find(pieces)
    if asked is None:
        raise unknown(".".join(pieces), query, start, end)
    return asked


def unknown(written: str, query: str, start: int, end: int) -> QueryError:
    """The error for a word that is no key."""
    if f"{written}.*" in KEYS:
        what = f"{written} needs a name after it: {written}.NAME"
        return QueryError(what, query, start, end)
    near = nearest(written)
    what = f'unknown key "{written}"'
    if not near:
        what += ' (to look for text that contains a colon, put it into "...")'
    return QueryError(what, query, start, end, near)


def nearest(word: str) -> tuple[str, ...]:
    """Known keys and aliases that look like the word, the likeliest first."""
    words = [name.removesuffix(".*") for name in KEYS] + list(ALIASES)
    return tuple(difflib.get_close_matches(word.lower(), words, n=3, cutoff=0.6))
