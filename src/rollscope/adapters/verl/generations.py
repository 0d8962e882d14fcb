"""The calls of the engine in one agent loop: what the model saw and wrote, with which weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, compress, repeat

import msgspec


class Generation(msgspec.Struct):
    """One call of the engine, as the LLM client made it."""

    span: str
    ids: list[int]
    shared: int = 0
    """How many tokens its prompt has in common with the call before, prompt and answer together."""
    given: list[int] = msgspec.field(default_factory=list)
    """The other tokens of its prompt. The engine gets the whole conversation at each turn, and
    keeping that would grow with the square of the turns."""
    stop_reason: str | None = None
    version: int | None = None
    """The weights that wrote it (verl's `global_steps` of the engine)."""
    start: float | None = None
    end: float | None = None
    parent: str | None = None
    """Span of the call that made this one: a client that resumes calls another one."""


def in_common(one: list[int], other: list[int]) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def prompts(generations: Sequence[Generation]) -> Iterator[list[int]]:
    """The whole prompt of each call, one after the other."""
    before: list[int] = []
    for call in generations:
        prompt = before[: call.shared] + call.given
        yield prompt
        before = prompt + call.ids


def versions(
    generations: Sequence[Generation], prompt: list[int], response: list[int], mask: list[int]
) -> list[int | None] | None:
    """The weights that wrote each token, if the engine's own calls account for all of them.

    Its first call had the same prompt. If there is none (the prompt was cut), any call may be the
    first, as long as all answers agree.
    """
    callers = {g.parent for g in generations}
    asked = zip(generations, prompts(generations), strict=True)
    leaves = [(g, p == prompt) for g, p in asked if g.span not in callers]
    if all(call.version is None for call, _ in leaves):
        return None
    wrote = list(compress(response, mask))
    ids = list(chain.from_iterable(call.ids for call, _ in leaves))
    versions = list(chain.from_iterable(repeat(call.version, len(call.ids)) for call, _ in leaves))
    accounts: dict[bool, list[list[int | None]]] = {True: [], False: []}
    at = 0
    for call, is_asked in leaves:
        if wrote and ids[at : at + len(wrote)] == wrote:
            accounts[is_asked].append(versions[at : at + len(wrote)])
        at += len(call.ids)
    found = accounts[True] or accounts[False]
    if not found or any(other != found[0] for other in found) or set(found[0]) == {None}:
        return None
    if all(mask):
        return found[0]
    each = iter(found[0])
    return [next(each) if m else None for m in mask]
