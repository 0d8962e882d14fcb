"""From a query's tree to the engine's SQL, with bound parameters only.

No piece of a query ever becomes SQL: column expressions come from `keys`, and everything a person
typed is a parameter. If a value is missing, a predicate may be null. That counts as false, and
negation is `IS NOT TRUE`, so rollouts without the value stay in.

Text terms match per rollout, and one scan of the messages answers all of them. Its result is the
table `hits`, with a row per rollout in which any term was found, and a column per term. The scan
looks only at rollouts that pass the query's other terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from . import flags, keys, values
from .keys import Asked
from .match import TextTerm, contains, message_has, message_may_have
from .sql import FALSE, TRUE, Sql, all_of, any_of
from .syntax import And, Node, Not, Or, Term, parse
from .values import Interval, Is, Loose, Missing, NotANumber, Test, Text

_AnyTest = TypeVar("_AnyTest", bound=Test)

_JSON_NUMBERS = "('UBIGINT', 'BIGINT', 'DOUBLE')"


class Query(NamedTuple):
    """A compiled query over `rollouts r`."""

    text: str
    where: Sql
    """Holds for the rollouts that match. Text terms refer to the table `hits`."""
    narrow: Sql
    """Holds for at least these, and needs no `hits`: the terms about fields alone, if any."""
    terms: tuple[TextTerm, ...]
    """The text terms, in the order of the columns `t0`, `t1`, ... of `hits`."""
    superseded: bool
    """Are superseded rollouts asked for?"""
    keys: frozenset[str]
    """The keys that it asks about."""
    patterns: tuple[Text, ...]
    """Its regular expressions, which only the engine can judge."""
    needs_hit: bool
    """Can it hold only for rollouts in which a text term was found?"""
    hits_only_add: bool
    """Can one more found text term never make it false?"""

    def with_superseded(self) -> Query:
        """The same, superseded rollouts included."""
        return compile_query(self.text, superseded=True)


def compile_query(text: str, superseded: bool = False) -> Query:
    """Compile a query. Raises `QueryError` where it cannot be understood.

    Superseded rollouts are left out unless asked for here, or by `launch:` or `superseded:`.
    """
    tree = parse(text, keys.known)
    compiler = _Compiler(text)
    where = compiler.node(tree)
    parts = tree.parts if isinstance(tree, And) else (tree,)
    fields = [part for part in parts if not _has_text(part)]
    narrow = all_of(compiler.node(part) for part in fields)
    asked = frozenset(compiler.asked)
    superseded = superseded or bool(asked & {"launch", "superseded"})
    if not superseded:
        current = Sql('NOT r."superseded"')
        where = all_of((where, current))
        narrow = all_of((narrow, current)) if fields else narrow
    return Query(
        text,
        where,
        narrow,
        tuple(compiler.terms),
        superseded,
        asked,
        tuple(compiler.patterns),
        _needs_hit(tree),
        _hits_only_add(tree),
    )


def hits_table(query: Query) -> Sql:
    """The SELECT that makes `hits`: in which rollouts each text term was found."""
    return hits_of(query, "messages")


def hits_of(query: Query, relation: str) -> Sql:
    """The same for the messages of one relation. Looks only where the other terms hold.

    A cheaper test chooses the messages to look at, so `hits` may contain rollouts in which nothing
    was found.
    """
    found = [message_has(term) for term in query.terms]
    columns = [Sql(f"bool_or({term.text}) AS t{i}", term.params) for i, term in enumerate(found)]
    where = any_of(message_may_have(term) for term in query.terms)
    if query.narrow != TRUE:
        ids = Sql("m.rollout IN (SELECT r.id FROM rollouts r WHERE {})").fill(query.narrow)
        where = all_of((ids, where))
    return Sql(f"SELECT m.rollout, {{}} FROM {relation} m WHERE {{}} GROUP BY m.rollout").fill(
        Sql.join(", ", columns), where
    )


@dataclass
class _Compiler:
    query: str

    def __post_init__(self) -> None:
        self.terms: dict[TextTerm, int] = {}
        self.asked: set[str] = set()
        self.patterns: dict[Text, None] = {}

    def node(self, node: Node) -> Sql:
        if isinstance(node, And):
            return all_of(self.node(part) for part in node.parts)
        if isinstance(node, Or):
            return any_of(self.node(part) for part in node.parts)
        if isinstance(node, Not):
            return Sql("({}) IS NOT TRUE").fill(self.node(node.part))
        return self.term(node)

    def term(self, term: Term) -> Sql:
        if term.key is None:
            return self.text_term(None, self.noted(values.text_test(term.values[0])))
        asked = keys.known(term.key, self.query, term.start, term.end)
        self.asked.add(asked.key.name)
        if asked.key.kind == "any":
            return any_of(self.has(value.text, value.start, value.end) for value in term.values)
        tests = [values.meaning(asked, value, self.query) for value in term.values]
        return any_of(self.test(asked, self.noted(test)) for test in tests)

    def noted(self, test: _AnyTest) -> _AnyTest:
        """Remember a pattern, because it must be tried before the query runs."""
        if isinstance(test, Text) and test.kind == "regex":
            self.patterns[test] = None
        return test

    def has(self, name: str, start: int, end: int) -> Sql:
        """`has:key`; also for whole columns such as `has:meta`, which are not keys."""
        if name in _COLUMN_PRESENT:
            return Sql(_COLUMN_PRESENT[name])
        asked = keys.named(name)
        if asked is None or asked.key.kind == "any":
            raise keys.unknown(name, self.query, start, end)
        self.asked.add(asked.key.name)
        return self.present(asked)

    def present(self, asked: Asked) -> Sql:
        key = asked.key
        if key.kind == "text":
            return self.text_term(role_of(asked), None)
        if key.name == "version":
            return Sql(f"{_VERSION_LOW} IS NOT NULL")
        if key.name == "error":
            return any_of(Sql(f'r."{column}" IS NOT NULL') for column in key.columns)
        if key.name in flags.KEYS:
            return flags.has(key.name)
        if key.kind == "member":
            return Sql(f"len({key.sql}) > 0")
        value = (
            Sql("{} ->> '$'").fill(json_value(asked)) if key.kind == "json" else expression(asked)
        )
        return Sql("({}) IS NOT NULL").fill(value)

    def test(self, asked: Asked, test: Test) -> Sql:
        key = asked.key
        if isinstance(test, Missing):
            return Sql("({}) IS NOT TRUE").fill(self.present(asked))
        if key.kind == "text":
            assert isinstance(test, Text)
            return self.text_term(role_of(asked), test)
        if key.name == "version":
            return _version(test)
        if key.name == "error":
            assert isinstance(test, Text)
            return any_of(contains(Sql(f'r."{column}"'), test) for column in key.columns)
        if key.kind == "json":
            return _json_test(json_value(asked), test)
        if key.kind == "member":
            assert isinstance(test, Text)
            return flags.holds(key.name, test) if key.name in flags.KEYS else _member(key.sql, test)
        return scalar_test(expression(asked), test, key.kind == "contains", key.whole)

    def text_term(self, role: str | None, test: Text | None) -> Sql:
        """A term about messages: the column of `hits` that answers it."""
        term = TextTerm(role, test)
        number = self.terms.setdefault(term, len(self.terms))
        return Sql(f"r.id IN (SELECT rollout FROM hits WHERE t{number})")


def scalar_test(value: Sql, test: Test, inside: bool = False, whole: bool = False) -> Sql:
    """Does one value match? `inside`: a text is searched in it, not compared with it."""
    if isinstance(test, NotANumber):
        return FALSE if whole else Sql("isnan({})").fill(value)
    if isinstance(test, Interval):
        return _in(value, test, whole)
    if isinstance(test, Is):
        return Sql("({}) = ?", (test.value,)).fill(value)
    assert isinstance(test, Text)
    if inside or test.kind != "exact":
        return contains(value, test)
    return Sql("({}) = ?", (test.text,)).fill(value)


def _in(value: Sql, interval: Interval, whole: bool) -> Sql:
    """Does it lie in the interval? For the engine NaN is the greatest number, so an interval that
    is open above ends at infinity."""
    low, high = interval.low, interval.high
    if low is not None and low == high:
        return Sql("({}) = ?", (low,)).fill(value)
    parts = []
    if low is not None:
        parts.append(Sql(f"({{}}) {'>=' if interval.low_in else '>'} ?", (low,)).fill(value))
    if high is None and not whole:
        high = float("inf")
    if high is not None:
        parts.append(Sql(f"({{}}) {'<=' if interval.high_in else '<'} ?", (high,)).fill(value))
    return all_of(parts) if parts else Sql("({}) IS NOT NULL").fill(value)


_VERSION_LOW = 'coalesce(r."version_min", r."policy_version")'
_VERSION_HIGH = 'coalesce(r."version_max", r."policy_version")'


def _version(test: Test) -> Sql:
    """Do the versions that wrote it overlap the interval?"""
    if not isinstance(test, Interval) or test.is_empty:
        return FALSE
    parts = []
    if test.low is not None:
        parts.append(Sql(f"{_VERSION_HIGH} >= ?", (test.low,)))
    if test.high is not None:
        parts.append(Sql(f"{_VERSION_LOW} <= ?", (test.high,)))
    return all_of(parts) if parts else Sql(f"{_VERSION_LOW} IS NOT NULL")


def _member(column: str, test: Text) -> Sql:
    if test.kind == "exact":
        return Sql(f"list_contains({column}, ?)", (test.text,))
    return Sql(f"len(list_filter({column}, lambda x: {{}})) > 0").fill(contains(Sql("x"), test))


def json_value(asked: Asked) -> Sql:
    """The JSON value of `meta.a.b`: under the key "a.b", else under "b" of "a"."""
    pieces = [piece.replace("~", "~0").replace("/", "~1") for piece in asked.path]
    paths = dict.fromkeys(("/" + ".".join(pieces), "/" + "/".join(pieces)))
    found = [Sql(f"json_extract({asked.key.sql}, ?)", (path,)) for path in paths]
    return found[0] if len(found) == 1 else Sql("coalesce({}, {})").fill(*found)


def _json_test(value: Sql, test: Test) -> Sql:
    """Does the JSON value match, or an entry of the JSON list?"""
    if isinstance(test, Loose):
        tests = [Sql("(x ->> '$') = ?", (test.text,))]
        if test.interval is not None:
            number = Sql(f"CASE WHEN json_type(x) IN {_JSON_NUMBERS} THEN CAST(x AS DOUBLE) END")
            tests.append(_in(number, test.interval, whole=False))
        one = any_of(tests)
    else:
        one = scalar_test(Sql("x ->> '$'"), test)
    entries = Sql("list_append(json_extract({}, '$[*]'), {})").fill(value, value)
    return Sql("len(list_filter({}, lambda x: {})) > 0").fill(entries, one)


def expression(asked: Asked) -> Sql:
    """The value of a key that has one, as SQL over `r`."""
    return Sql(asked.key.sql, asked.path if "?" in asked.key.sql else ())


def role_of(asked: Asked) -> str | None:
    """The role whose messages a text key searches; None: all."""
    if asked.key.name == "text":
        return None
    return asked.path[0] if asked.path else asked.key.name


_COLUMN_PRESENT = {
    "meta": "r.\"meta\" IS NOT NULL AND r.\"meta\"::VARCHAR NOT IN ('{}', 'null')",
    "sampling": "r.\"sampling\" IS NOT NULL AND r.\"sampling\"::VARCHAR NOT IN ('{}', 'null')",
    "reference": 'r."reference" IS NOT NULL AND r."reference"::VARCHAR <> \'null\'',
    "rewards": 'cardinality(r."rewards") > 0',
    "reward_texts": 'cardinality(r."reward_texts") > 0',
}
"""`has:` for columns that are no keys themselves."""


def _has_text(node: Node) -> bool:
    if isinstance(node, (And, Or)):
        return any(_has_text(part) for part in node.parts)
    if isinstance(node, Not):
        return _has_text(node.part)
    if node.key is None:
        return True
    asked = keys.find(node.key)
    if asked is not None and asked.key.kind == "any":
        named = [keys.named(value.text) for value in node.values]
        return any(key is not None and key.key.kind == "text" for key in named)
    return asked is not None and asked.key.kind == "text"


def _needs_hit(node: Node) -> bool:
    if isinstance(node, And):
        return any(_needs_hit(part) for part in node.parts)
    if isinstance(node, Or):
        return all(_needs_hit(part) for part in node.parts)
    if isinstance(node, Not) or node.key == ("has",) or _asks_for_none(node):
        return False
    return _has_text(node)


def _hits_only_add(node: Node) -> bool:
    if isinstance(node, (And, Or)):
        return all(_hits_only_add(part) for part in node.parts)
    if isinstance(node, Not):
        return not _has_text(node)
    return not (_has_text(node) and _asks_for_none(node))


def _asks_for_none(term: Term) -> bool:
    return term.key is not None and any(v.kind == "word" and v.text == "none" for v in term.values)
