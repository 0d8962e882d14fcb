"""Random rollouts, and random queries with what they mean.

Each query is made together with a Python function that says, in the language's words, which
rollouts it must find. Nothing is shared with the code under test.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

Row = dict[str, Any]
Message = dict[str, Any]
Holds = Callable[[Row, list[Message]], bool]
Query = tuple[str, Holds]

# -- random rollouts -------------------------------------------------------------------

WORDS = ["a", "A", "ab", "b c", "é", "É", "x.y", "(1)", '"q"', "\\d", "a\nb", "%", "ü_", "🙂"]
texts = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
names = st.sampled_from(["a", "A", "q-1", "1", "1.0", "none", "true", "a b", "a,b", "ü", '"'])
wholes = st.integers(-3, 3) | st.sampled_from([2**53 + 1, -(2**63), 2**63 - 1])
numbers = st.sampled_from([0.0, -0.0, 0.5, 1.0, -1.5, 1e300, math.nan, math.inf, -math.inf])
inner = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.5, 1.0]) | names | texts,
    lambda value: st.lists(value, max_size=2) | st.dictionaries(names, value, max_size=2),
    max_leaves=4,
)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


rollouts = st.fixed_dictionaries(
    {
        "superseded": st.sampled_from([False, False, False, True]),
        "launch": maybe(names),
        "task": maybe(names),
        "split": maybe(st.sampled_from(["train", "eval", "a"])),
        "step": maybe(wholes),
        "trained_step": maybe(wholes),
        "reward": maybe(numbers),
        "start": maybe(numbers),
        "end": maybe(numbers),
        "rewards": maybe(st.dictionaries(st.sampled_from(["a", "b.c"]), numbers, max_size=2)),
        "truncated": maybe(st.booleans()),
        "fate_reason": maybe(texts),
        "error_kind": maybe(st.sampled_from(["tool", "limit"])),
        "error_type": maybe(names),
        "error_text": maybe(texts),
        "tools": maybe(st.lists(names, max_size=2)),
        "version_min": maybe(st.integers(0, 3)),
        "version_max": maybe(st.integers(0, 3)),
        "policy_version": maybe(st.integers(0, 3)),
        "meta": maybe(st.dictionaries(st.sampled_from(["a", "b", "a.b"]), inner, max_size=3)),
    }
)

arguments = maybe(
    inner | texts | inner.map(json.dumps) | inner.map(lambda v: json.dumps(v, indent=1))
)
messages = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "tool"]),
        "text": maybe(texts),
        "tool_calls": maybe(
            st.lists(st.fixed_dictionaries({"name": names, "arguments": arguments}), max_size=2)
        ),
        "parts": maybe(
            st.lists(
                st.fixed_dictionaries({"type": st.just("text"), "end": st.just(0)})
                | st.fixed_dictionaries({"type": st.just("tool_result"), "data": arguments})
                | st.fixed_dictionaries(
                    {
                        "type": st.just("tool_call"),
                        "call": st.fixed_dictionaries({"arguments": arguments}),
                    }
                ),
                max_size=2,
            )
        ),
    }
)

# -- random queries, each with what it means -------------------------------------------


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def interval(low: float, high: float, low_in: bool, high_in: bool) -> Callable[[Any], bool]:
    def holds(value: Any) -> bool:
        above = value > low or (low_in and value == low)
        below = value < high or (high_in and value == high)
        return value is not None and value == value and above and below

    return lambda value: value is not None and holds(value)


@st.composite
def number_value(draw: st.DrawFn) -> tuple[str, Callable[[Any], bool]]:
    a, b = (draw(st.sampled_from([-2, -1.5, 0, 0.5, 1, 3, 2**53, 1e300])) for _ in "ab")
    shape = draw(st.sampled_from(["=", "<", "<=", ">", ">=", "..", "a..", "..b", "none", "nan"]))
    inf = math.inf
    return {
        "=": (f"{a}", interval(a, a, True, True)),
        "<": (f"<{a}", interval(-inf, a, True, False)),
        "<=": (f"<={a}", interval(-inf, a, True, True)),
        ">": (f">{a}", interval(a, inf, False, True)),
        ">=": (f">={a}", interval(a, inf, True, True)),
        "..": (f"{a}..{b}", interval(a, b, True, True)),
        "a..": (f"{a}..", interval(a, inf, True, True)),
        "..b": (f"..{b}", interval(-inf, b, True, True)),
        "none": ("none", lambda value: value is None),
        "nan": ("nan", lambda value: value is not None and value != value),
    }[shape]


def staleness(row: Row) -> Any:
    a, b = row["trained_step"], row["step"]
    return None if a is None or b is None else a - b


def duration(row: Row) -> Any:
    a, b = row["end"], row["start"]
    return None if a is None or b is None else a - b


NUMBERS: dict[str, Callable[[Row], Any]] = {
    "step": lambda row: row["step"],
    "reward": lambda row: row["reward"],
    "staleness": staleness,
    "duration": duration,
    "rewards.a": lambda row: (row["rewards"] or {}).get("a"),
    "rewards.b.c": lambda row: (row["rewards"] or {}).get("b.c"),
}


@st.composite
def number_term(draw: st.DrawFn) -> Query:
    key = draw(st.sampled_from(sorted(NUMBERS)))
    values = draw(st.lists(number_value(), min_size=1, max_size=2))
    text = f"{key}:{','.join(v[0] for v in values)}"
    return text, lambda row, _: any(holds(NUMBERS[key](row)) for _, holds in values)


@st.composite
def version_term(draw: st.DrawFn) -> Query:
    low, high = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    text, low_, high_ = draw(
        st.sampled_from(
            [
                (f"{low}", low, low),
                (f"{low}..{high}", low, high),
                (f">{low}", low + 1, 99),
                (f"<={high}", -99, high),
            ]
        )
    )

    def holds(row: Row, _: list[Message]) -> bool:
        first = row["version_min"] if row["version_min"] is not None else row["policy_version"]
        last = row["version_max"] if row["version_max"] is not None else row["policy_version"]
        above = True if low_ == -99 else last is not None and last >= low_
        below = True if high_ == 99 else first is not None and first <= high_
        return above and below

    return f"version:{text}", holds


@st.composite
def needle(draw: st.DrawFn, fold: bool = True) -> tuple[str, Callable[[str | None], bool]]:
    """A text to look for: as a bare word, quoted, or as a pattern."""
    text = draw(
        st.sampled_from(["a", "A", "ab", "b c", "é", "É", "(1)", '"q"', "\\d", "a\nb", "🙂"])
    )
    shape = draw(st.sampled_from(["word", "quoted", "regex", "regex i"]))
    if shape == "word" and not re.search(r'[\s"]', text):
        found = re.compile(re.escape(text), re.IGNORECASE)
        return (
            text,
            lambda value: (
                value is not None and (bool(found.search(value)) if fold else value == text)
            ),
        )
    if shape.startswith("regex"):
        pattern, flags = draw(st.sampled_from(["a+b?", "^a", r"\(\d\)", "[A-Z]$", "b.c", "é"])), 0
        flags = re.IGNORECASE if shape.endswith("i") else 0
        compiled = re.compile(pattern.replace("$", r"\Z"), flags)
        text = f"/{pattern}/" + ("i" if flags else "")
        return text, lambda value: value is not None and bool(compiled.search(value))
    return quoted(
        text
    ), lambda value: value is not None and (text in value if fold else value == text)


@st.composite
def equal_term(draw: st.DrawFn) -> Query:
    key = draw(st.sampled_from(["task", "split"]))
    values = draw(st.lists(needle(fold=False) | exact_name(), min_size=1, max_size=2))
    text = f"{key}:{','.join(v[0] for v in values)}"
    return text, lambda row, _: any(holds(row[key]) for _, holds in values)


@st.composite
def exact_name(draw: st.DrawFn) -> tuple[str, Callable[[Any], bool]]:
    name = draw(names)
    if name == "none":
        return "none", lambda value: value is None or value == []
    return quoted(name), lambda value: name == value


@st.composite
def contains_term(draw: st.DrawFn) -> Query:
    text, holds = draw(needle())
    if draw(st.booleans()):
        return f"fate_reason:{text}", lambda row, _: holds(row["fate_reason"])
    columns = ("error_kind", "error_type", "error_text")
    return f"error:{text}", lambda row, _: any(holds(row[column]) for column in columns)


@st.composite
def member_term(draw: st.DrawFn) -> Query:
    text, holds = draw(exact_name() | needle(fold=False))
    if text == "none":
        return "tool:none", lambda row, _: not row["tools"]
    return f"tool:{text}", lambda row, _: any(holds(tool) for tool in row["tools"] or [])


def as_text(value: Any) -> str | None:
    """A JSON value as text: a text is itself, the rest as JSON writes it."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def meta(row: Row, dotted: bool) -> Any:
    found = row["meta"] or {}
    if not dotted:
        return found.get("a")
    if "a.b" in found:
        return found["a.b"]
    return found["a"].get("b") if isinstance(found.get("a"), dict) else None


@st.composite
def meta_term(draw: st.DrawFn) -> Query:
    dotted = draw(st.booleans())
    key = "meta.a.b" if dotted else "meta.a"
    word, holds_number = draw(number_value())
    name = draw(names.filter(lambda name: not re.search(r'[\s",]', name)))
    shape = draw(st.sampled_from(["number", "word", "quoted", "has"]))

    def entries(row: Row) -> list[Any]:
        value = meta(row, dotted)
        return [value, *value] if isinstance(value, list) else [value]

    def is_number(value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool)

    def means(row: Row, text: str, number: Callable[[Any], bool] | None) -> bool:
        return any(
            as_text(value) == text
            or (number is not None and is_number(value) and number(float(value)))
            for value in entries(row)
        )

    if (
        shape == "has"
        or (shape == "number" and word == "none")
        or (shape == "word" and name == "none")
    ):
        return f"has:{key}", lambda row, _: meta(row, dotted) is not None
    if shape == "number":
        number = None if word == "nan" else holds_number
        return f"{key}:{word}", lambda row, _: means(row, word, number)
    if shape == "word":
        number = interval(float(name), float(name), True, True) if name in ("1", "1.0") else None
        return f"{key}:{name}", lambda row, _: means(row, name, number)
    return f"{key}:{quoted(name)}", lambda row, _: means(row, name, None)


bool_terms = st.sampled_from(
    [
        ("truncated:true", lambda row, _: row["truncated"] is True),
        ("truncated:false", lambda row, _: row["truncated"] is False),
        ("truncated:none", lambda row, _: row["truncated"] is None),
        ("validate:true", lambda row, _: row["split"] == "eval"),
        ("has:rewards", lambda row, _: bool(row["rewards"])),
        ("has:meta", lambda row, _: bool(row["meta"])),
        ("has:error", lambda row, _: any(row[f"error_{k}"] for k in ("kind", "type"))
         or row["error_text"] is not None),
        ("has:tool", lambda row, _: bool(row["tools"])),
    ]
)  # fmt: skip


def pieces(message: Message) -> Iterator[str | None]:
    """What of a message is searched."""
    yield message["text"]
    written = [call["arguments"] for call in message["tool_calls"] or []]
    for part in message["parts"] or []:
        written += [part[k] for k in ("data",) if k in part]
        written += [part["call"]["arguments"]] if "call" in part else []
    for value in written:
        yield as_text(value)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                continue
            if isinstance(value, str):
                continue
        yield from leaves(value)


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)


@st.composite
def text_term(draw: st.DrawFn) -> Query:
    role = draw(st.sampled_from([None, "user", "assistant", "tool"]))
    text, holds = draw(needle())
    key = {None: draw(st.sampled_from(["", "text:"])), "tool": "role.tool:"}.get(role, f"{role}:")
    return f"{key}{text}", lambda _, said: any(
        holds(piece)
        for message in said
        if role is None or message["role"] == role
        for piece in pieces(message)
    )


terms = (
    number_term()
    | version_term()
    | equal_term()
    | contains_term()
    | member_term()
    | meta_term()
    | bool_terms
    | text_term()
)


def combined(parts: st.SearchStrategy[Query]) -> st.SearchStrategy[Query]:
    def negated(part: Query) -> Query:
        return f"-({part[0]})", lambda row, said: not part[1](row, said)

    def both(several: list[Query]) -> Query:
        text = " ".join(f"({text})" for text, _ in several)
        return text, lambda row, said: all(holds(row, said) for _, holds in several)

    def either(several: list[Query]) -> Query:
        text = " OR ".join(f"({text})" for text, _ in several)
        return text, lambda row, said: any(holds(row, said) for _, holds in several)

    several = st.lists(parts, min_size=2, max_size=3)
    return parts.map(negated) | several.map(both) | several.map(either)


queries = st.recursive(terms, combined, max_leaves=5)

# -- any text at all -------------------------------------------------------------------

fragments = st.sampled_from(
    ["reward", "step", "task", "meta.a", 'meta."a', "rewards.a", "tool", "has", "version", "time",
     "error", "text", "role.x", "validate", ":", ",", "(", ")", "-", " ", "OR", "AND", "NOT", '"',
     "/", "\\", "<", ">=", "..", "1", "-1e400", "99999999999999999999", "inf", "nan", "none",
     "true", "a{1000}{1000}", "(?i)", "[", "*", "2026-02-31", "2026-11-15T10:30", "\0", "\ud800",
     "🙂", "~/", "?", "{}", "'", ";", "$1", "%"]
)  # fmt: skip
