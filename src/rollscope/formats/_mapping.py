"""The mapping language of `columns`: which field comes from where in somebody's log.

docs/formats.md explains it, with an example for each kind of log.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ..adapters._lines import decoded
from ..model import Rollout
from ._body import ALIASES

SAID = ("system", "prompt", "messages", "completion", "actions", "observations")
"""Terms that make the conversation."""
_DICTS = ("rewards", "reward_texts", "meta", "sampling", "error")
_FIELDS = tuple(name for name in Rollout.__struct_fields__ if name not in ("messages", "spans"))
_TERM = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")
_STEP = re.compile(r"""\.?(?:"(?P<quoted>[^"]*)"|\[(?P<list>#+|-?\d*)\]|(?P<all>\*)"""
                   r"""|(?P<name>[^.\[\]"*#]+))""")  # fmt: skip


class All:
    """Every item of a list, or every value of an object: `[]`, `*`."""


class Number(NamedTuple):
    """The item of a parallel list with the number that we have in the list `depth` levels up."""

    depth: int


Step = str | int | type[All] | Number
Place = Sequence[int | str]
"""Where we are: our number in each list, our name in each object that `each` walks."""


class Path(NamedTuple):
    """Where a value stands."""

    text: str
    """As it was typed."""
    steps: tuple[Step, ...] = ()
    constant: str | None = None
    number: int = 0
    """Not a value at all, but our number so many lists up."""

    def found(self, scopes: Sequence[Any], place: Place) -> tuple[Any, bool]:
        """The value in the innermost object that has the first name; and is that our own?"""
        if self.constant is not None:
            return self.constant, False
        if self.number:
            return (place[-self.number] if self.number <= len(place) else None), False
        for scope in reversed(scopes):
            value = opened(scope)
            if not self.steps or _has(value, self.steps[0]):
                return _inside(value, self.steps, place), scope is scopes[-1]
        return None, False


class Term(NamedTuple):
    """`field=path` or `field.part=path`."""

    field: str
    part: str
    path: Path

    @property
    def is_inside_message(self) -> bool:
        """`messages.role=speaker`: its path begins in each message, not in the rollout."""
        return self.field == "messages" and bool(self.part)

    @property
    def text(self) -> str:
        return f"{self.field}{'.' if self.part else ''}{self.part}={self.path.text}"


class Plan(NamedTuple):
    """A whole mapping."""

    terms: tuple[Term, ...] = ()
    each: tuple[Step, ...] = ()
    each_text: str = ""
    by: Path | None = None
    roles: Mapping[str, str] = MappingProxyType({})


def parse(mapping: str) -> Plan:
    """What was typed. Raises ValueError naming the term that is wrong."""
    terms: list[Term] = []
    plan = Plan()
    for text in _TERM.findall(mapping):
        name, equals, path = text.partition("=")
        if not equals or not name or not path:
            raise ValueError(f"--map: expected field=path, found {text!r}")
        if name == "each":
            plan = plan._replace(each=_steps(path, text), each_text=path)
        elif name == "by":
            plan = plan._replace(by=_path(path, text))
        elif name == "roles":
            plan = plan._replace(roles=_roles(path))
        else:
            field, _, part = name.partition(".")
            _check(field, part, text)
            terms.append(Term(field, part, _path(path, text)))
    twice = {term.field for term in terms if [t[:2] for t in terms].count(term[:2]) > 1}
    if twice:
        raise ValueError(f"--map: {twice.pop()} is given twice")
    return plan._replace(terms=tuple(terms))


def _check(field: str, part: str, text: str) -> None:
    known = (*SAID, "each", "by", "roles", *_FIELDS)
    if field not in known and field not in ALIASES:
        near = difflib.get_close_matches(field, known, 1)
        meant = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
        raise ValueError(f"--map: {text!r}: there is no field {field!r}; {meant}")
    if part and field not in (*_DICTS, *SAID):
        raise ValueError(f"--map: {text!r}: {field} has no parts")


def _roles(text: str) -> dict[str, str]:
    pairs = [pair.partition(":") for pair in text.strip("'\"").split(",")]
    if not all(theirs and ours for theirs, _, ours in pairs):
        raise ValueError(f"--map: roles={text}: expected theirs:ours, e.g. roles=bot:assistant")
    return {theirs: ours for theirs, _, ours in pairs}


def _path(path: str, term: str) -> Path:
    if path.startswith("'"):
        return Path(path, constant=path.strip("'"))
    if not path.strip("#"):
        return Path(path, number=len(path))
    return Path(path, () if path == "." else _steps(path, term))


def _steps(path: str, term: str) -> tuple[Step, ...]:
    steps: list[Step] = []
    at = 0
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            raise ValueError(f"--map: {term!r}: {path[at:]!r} is no path (rollscope docs formats)")
        at = found.end()
        inside = found["list"]
        if found["quoted"] is not None or found["name"] is not None:
            steps.append(found["quoted"] if found["name"] is None else found["name"])
        elif found["all"] or not inside:
            steps.append(All)
        else:
            steps.append(Number(len(inside)) if inside.startswith("#") else int(inside))
    return tuple(steps)


# -- looking -------------------------------------------------------------------------------


def opened(value: Any) -> Any:
    """JSON that was put into text once more is opened."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return decoded(value.encode("utf-8", "surrogatepass"))[0]
        except ValueError:
            return value
    return value


def _has(value: Any, step: Step) -> bool:
    if isinstance(step, str):
        return isinstance(value, Mapping) and step in value
    return isinstance(value, list) or (step is All and isinstance(value, Mapping))


def _inside(value: Any, steps: tuple[Step, ...], place: Place) -> Any:
    for at, step in enumerate(steps):
        value = opened(value)
        if step is All:
            if not isinstance(value, (list, Mapping)):
                return None
            inner = value.values() if isinstance(value, Mapping) else value
            return [_inside(item, steps[at + 1 :], place) for item in inner]
        if isinstance(step, Number):
            step = place[-step.depth] if step.depth <= len(place) else -1
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int):
            value = value[step] if -len(value) <= step < len(value) else None
        else:
            return None
    return value


def walk(
    scopes: list[Any], place: list[int | str], steps: tuple[Step, ...]
) -> Iterator[tuple[list[Any], list[int | str]]]:
    """Every object that `steps` lead to, with the objects around it and our place."""
    value = opened(scopes[-1])
    if not steps:
        yield scopes, place
    elif steps[0] is All:
        named: Iterable[tuple[int | str, Any]] = ()
        if isinstance(value, (list, Mapping)):
            named = value.items() if isinstance(value, Mapping) else enumerate(value)
        for name, item in named:
            yield from walk([*scopes, item], [*place, name], steps[1:])
    elif (inner := _inside(value, steps[:1], place)) is not None:
        yield from walk([*scopes, inner], place, steps[1:])


def rest(value: Any, used: list[tuple[Step, ...]]) -> Any:
    """What is left of a value without what stands at the paths that were used; None: nothing."""
    if not used:
        return value
    if () in used:
        return None
    value = opened(value)
    if isinstance(value, Mapping):
        left = {
            name: rest(item, [path[1:] for path in used if path[0] in (name, All)])
            for name, item in value.items()
        }
        return {name: item for name, item in left.items() if item is not None} or None
    if isinstance(value, list):
        kept = [
            rest(item, [p[1:] for p in used if p[0] in (n, n - len(value), All)])
            for n, item in enumerate(value)
        ]
        return kept if any(item is not None for item in kept) else None
    return value
