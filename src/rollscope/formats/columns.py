"""Parquet, Arrow, CSV and any JSON, with a mapping that says which field comes from where.

    rollscope import columns results.json --map "
        each=categories[].datasets[].results[].completions[]
        prompt=question completion=full_model_response reward=score reference=expected_answer"

`_mapping` has the language. Tables with columns of the usual names need no mapping.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..model import Rollout
from ..model.problem import Problem
from . import _files, _mapping
from ._body import Unsaid, described
from ._mapping import All, Plan, parse
from ._rows import ARROW, TABLES, rows
from ._turns import conversation

_JSON = (".json", ".jsonl", ".ndjson")
_OPEN = 100_000
"""Rows of episodes that may be open at once: more than vectorised environments interleave."""
Found = tuple[list[Any], list[int | str]]
"""An object that is a rollout: the objects around it and itself, and its place in them."""


def recognise(path: Path) -> bool:
    """A table with a prompt and an answer, or messages. JSON needs a mapping."""
    if not path.is_file() or path.suffix not in (*TABLES, *ARROW):
        return False
    try:
        names = set(next(rows(path), {}))
    except Exception:
        return False
    return "messages" in names or ("prompt" in names and bool(names & {"completion", "response"}))


def may_hold(path: Path) -> bool:
    """Can a mapping be laid over this file?"""
    return path.suffix in (*TABLES, *ARROW) or _files.plain_suffix(path) in _JSON


def read(path: Path, mapping: str = "") -> Iterator[Rollout | Problem]:
    """Every row, or every object that `each` leads to, as a rollout."""
    plan = parse(mapping)
    unsaid = Unsaid(path)
    number = 0
    try:
        for found in _objects(path, plan):
            if isinstance(found, Problem):
                yield found
                continue
            number += 1
            try:
                rollout = _rollout(*found, plan)
            except _files.ODD as error:
                yield Problem(path, None, f"item {number}: {error}")
            else:
                unsaid.look(rollout, f"item {number}")
                yield rollout
    except Exception as error:  # of the engine or the decoder: torn files and their like
        yield Problem(path, None, f"cannot be read after item {number}: {error}")
    yield from unsaid.problems()


def check(paths: Sequence[Path], mapping: str) -> None:
    """Does every term find something in these files? Raises ValueError that says which one does
    not, and what there is. It reads on only until each has found something."""
    plan = parse(mapping)
    left = dict.fromkeys(plan.terms)
    names: Counter[str] = Counter()
    number = 0
    for scopes, place in _all(paths, plan):
        number += 1
        for term in list(left):
            if _finds(term, scopes, place, plan):
                del left[term]
        if not left and number:
            return
        if number <= 1000:
            names.update(_names(scopes))
    if number:
        nothing = f"{', '.join(repr(term.text) for term in left)} finds nothing in {number:,} items"
    else:
        nothing = f"each={plan.each_text or '.'} leads to nothing"
        names = _on_the_way(paths, plan)
    there = ", ".join(name for name, _ in names.most_common(20))
    raise ValueError(f"--map: {nothing}; there is: {there or 'nothing'}")


def _finds(term: _mapping.Term, scopes: list[Any], place: list[int | str], plan: Plan) -> bool:
    if not term.is_inside_message:
        return term.path.found(scopes, place)[0] is not None
    whole = next((t for t in plan.terms if (t.field, t.part) == ("messages", "")), None)
    found = None if whole is None else _mapping.opened(whole.path.found(scopes, place)[0])
    messages = found if isinstance(found, list) else []
    return any(term.path.found([message], ())[0] is not None for message in messages)


def _all(paths: Iterable[Path], plan: Plan) -> Iterator[Found]:
    for path in paths:
        try:
            yield from (item for item in _objects(path, plan) if not isinstance(item, Problem))
        except Exception:  # told when the file is read
            continue


def _on_the_way(paths: Sequence[Path], plan: Plan) -> Counter[str]:
    """The names that there are as far as `each` leads to something."""
    names: Counter[str] = Counter()
    for length in range(len(plan.each) - 1, -1, -1):
        shorter = plan._replace(each=plan.each[:length], by=None)
        for scopes, _ in itertools.islice(_all(paths, shorter), 1000):
            names.update(_names(scopes[-1:]))
        if names:
            break
    return names


def _names(scopes: list[Any]) -> Iterator[str]:
    """What a path could begin with, from the inside out."""
    for scope in reversed(scopes):
        found = _mapping.opened(scope)
        if isinstance(found, list):
            found = next((item for item in found if isinstance(item, Mapping)), None)
        if isinstance(found, Mapping):
            yield from map(str, found)


# -- objects ---------------------------------------------------------------------------------


def _objects(path: Path, plan: Plan) -> Iterator[Found | Problem]:
    """Each object that is a rollout; or all steps of an episode, behind the last of them."""
    found = _single(path, plan.each)
    if plan.by is None:
        yield from found
        return
    episodes: OrderedDict[str, list[Found]] = OrderedDict()
    begins: dict[str, int] = {}
    ended: set[int] = set()
    held = 0
    for number, item in enumerate(found):
        if isinstance(item, Problem):
            yield item
            continue
        value = plan.by.found(*item)[0]
        if value is None:  # of no episode: alone
            yield _episode([item])
            continue
        name = json.dumps(value, default=str)
        if hash(name) in ended:
            yield Problem(path, None, f"a step of {plan.by.text} {name} comes too late: sort them")
            continue
        begins.setdefault(name, number)
        episodes.setdefault(name, []).append(item)
        episodes.move_to_end(name)
        held += 1
        while held > _OPEN and len(episodes) > 1:
            oldest, steps = episodes.popitem(last=False)
            held -= len(steps)
            del begins[oldest]
            ended.add(hash(oldest))
            yield _episode(steps)
    for name in sorted(episodes, key=begins.__getitem__):
        yield _episode(episodes[name])


def _episode(steps: list[Found]) -> Found:
    scopes, place = steps[-1]
    return [*scopes, [found[-1] for found, _ in steps]], place


def _single(path: Path, each: tuple[_mapping.Step, ...]) -> Iterator[Found | Problem]:
    if path.suffix in TABLES or path.suffix in ARROW:
        for row in rows(path):
            yield from _mapping.walk([row], [], each)
        return
    layout = _files.layout(path)
    if layout == "lines" or (layout == "objects" and All not in each):
        for found in _files.values(path):
            if isinstance(found, Problem):
                yield found
            else:
                yield from _mapping.walk([found.value], [], each)
    else:
        yield from _streamed(path, each or (All,))


def _streamed(path: Path, each: tuple[_mapping.Step, ...]) -> Iterator[Found]:
    """The objects of one large JSON value. Memory holds one item of the first list in it."""
    names = list(itertools.takewhile(lambda step: isinstance(step, str), each))
    outer = _files.around(path, names)
    for place, value in _files.entries(path, names):
        yield from _mapping.walk([*outer, value], [place], each[len(names) + 1 :])


# -- rollouts --------------------------------------------------------------------------------


def _rollout(scopes: list[Any], place: list[int | str], plan: Plan) -> Rollout:
    inner = _mapping.opened(scopes[-1])
    if not plan.terms:
        if not isinstance(inner, Mapping):
            raise TypeError(f"expected an object, found {inner!r:.60}; give a mapping (--map)")
        return described({k: v for k, v in inner.items() if v is not None})
    body: dict[str, Any] = {}
    said: dict[str, dict[str, Any]] = {}
    used = []
    for term in plan.terms:
        if term.is_inside_message:
            continue
        value, is_own = term.path.found(scopes, place)
        if is_own:
            used.append(term.path.steps)
        if value is None:
            continue
        if term.field in _mapping.SAID:
            said.setdefault(term.field, {})[term.part] = value
        elif term.part:
            body.setdefault(term.field, {})[term.part] = value
        else:
            body[term.field] = value
    left = _mapping.rest(inner, used)
    if left is not None:
        about = left if isinstance(left, dict) else {"steps": left}
        body["meta"] = {**about, **body.get("meta", {})}
    if messages := conversation(said, plan):
        body["messages"] = messages
    return described(body)
