"""Which row of a batch is which: known by its tokens, never by its place.

Between generation and loss TRL pads, shuffles and slices rows. Subclasses repeat, filter or
replace them, for example by rows of a replay buffer. No row has an id. So a row is known by what
the model was shown and what it wrote. Rows of which nobody can tell which is which stay unmatched.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

ROW_TENSORS = (
    "prompt_ids",
    "prompt_mask",
    "completion_ids",
    "completion_mask",
    "tool_mask",
    "advantages",
)
"""What tells a row from others, and whether it is learned from."""

_REMEMBERED = 100_000
"""How many rows are known; the oldest are forgotten. A replay buffer keeps far fewer."""


class Row(NamedTuple):
    """The name of a row: digests of its two parts. The prompt may be unknown."""

    prompt: bytes | None
    completion: bytes


def row(prompt: Any, completion: Any, pad: int | None) -> Row:
    """The row of these ids. Padding at the end of the completion does not count: there, it may
    also be the token that ended it."""
    return Row(None if prompt is None else _digest(prompt), _digest(_unpadded(completion, pad)))


def rows_of(batch: Mapping[str, Any], pad: int | None) -> list[Row]:
    """The rows of a padded batch of TRL's, on the host. Empty if it has no tokens."""
    import numpy

    if not {"prompt_ids", "prompt_mask", "completion_ids"} <= batch.keys():
        return []
    columns = (batch["prompt_ids"], batch["prompt_mask"], batch["completion_ids"])
    return [
        row(numpy.asarray(ids)[numpy.asarray(mask, dtype=bool)], completion, pad)
        for ids, mask, completion in zip(*columns, strict=True)
    ]


def match(given: Sequence[Row], made: Sequence[Row], values: Any) -> list[int | None]:
    """For each given row, its place among those that were made of them, or None.

    Rows of the same tokens are told apart only if all of them have the same of the `values`.
    """
    if len(given) == len(made) and all(map(_fits, given, made)):
        return list(range(len(given)))
    is_whole = all(one.prompt is not None for one in given)
    names = [one if is_whole else Row(None, one.completion) for one in made]
    places: dict[Row, list[int]] = defaultdict(list)
    for n, name in enumerate(names):
        places[name].append(n)
    wanted = Counter(given)

    def place(one: Row) -> int | None:
        found = places.get(one, [])
        if not found or (wanted[one] > 1 and (not is_whole or len(found) < wanted[one])):
            return None
        are_alike = len({(made[n], None if values is None else values[n]) for n in found}) == 1
        return found[0] if are_alike else None

    return [place(one) for one in given]


def _fits(given: Row, made: Row) -> bool:
    return given.completion == made.completion and given.prompt in (None, made.prompt)


def _unpadded(ids: Any, pad: int | None) -> Any:
    import numpy

    ids = numpy.asarray(ids, dtype="<i4")
    kept = numpy.flatnonzero(ids != pad)
    return ids[: kept[-1] + 1] if len(kept) else ids[:0]


def _digest(ids: Any) -> bytes:
    import numpy

    return blake2b(numpy.asarray(ids, dtype="<i4").tobytes(), digest_size=16).digest()


class Learning:
    """Which rollouts the rows in the loss are, step by step."""

    def __init__(self) -> None:
        self._known: dict[Row, list[tuple[str, float | None]]] = {}
        self._steps: dict[str, list[int]] = {}
        self._partly: dict[tuple[str, ...], list[int]] = {}

    def add(self, row: Row, key: str, advantage: float | None) -> None:
        """A rollout that may be learned from."""
        self._known.setdefault(row, []).append((key, advantage))
        memories: tuple[dict[Any, Any], ...] = (self._known, self._steps, self._partly)
        for memory in memories:
            while len(memory) > _REMEMBERED:
                del memory[next(iter(memory))]

    def step(
        self, batches: Sequence[Mapping[str, Any]], pad: int | None, step: int
    ) -> tuple[dict[str, dict[str, Any]], int]:
        """What is known now of the rollouts in these batches, from which a step has learned, by
        their keys; and how many rows are no rollout that is known."""
        in_loss = Counter(found for batch in batches for found in _learned_from(batch, pad))
        facts: dict[str, dict[str, Any]] = {}
        unknown = 0
        for (name, advantage), count in in_loss.items():
            keys = self._keys(name, advantage)
            unknown += 0 if keys else count
            for key, steps in self._by_key(keys, count, step):
                facts[key] = self._facts(key, steps)
        return facts, unknown

    def _keys(self, name: Row, advantage: float | None) -> tuple[str, ...]:
        """The rollouts of these tokens; those with this advantage, if there are some."""
        known = self._known.get(name, [])
        own = tuple(key for key, its in known if its == advantage)
        return own or tuple(key for key, _ in known)

    def _by_key(
        self, keys: tuple[str, ...], count: int, step: int
    ) -> Iterator[tuple[str, list[int]]]:
        """The rollouts among these that must have been learned from by now, with the steps.

        Nobody can tell them apart, and `count` rows of their tokens were learned from.
        """
        if len(keys) <= count:
            yield from ((key, [step]) for key in keys)
            return
        steps = self._partly.setdefault(keys, [])
        steps += [step] * count
        if len(steps) >= len(keys):
            del self._partly[keys]
            known = [step] if {*steps} == {step} else []  # else: one at one step, one at another
            yield from ((key, known) for key in keys)

    def _facts(self, key: str, steps: list[int]) -> dict[str, Any]:
        facts: dict[str, Any] = {} if key in self._steps else {"fate": "trained"}
        before = self._steps.setdefault(key, [])
        if steps and not before:
            facts["trained_step"] = steps[0]
        before += [step for step in steps if step not in before]
        if len(before) > 1:
            facts["meta"] = {"trained_steps": list(before)}
        return facts


def _learned_from(batch: Mapping[str, Any], pad: int | None) -> Iterator[tuple[Row, float | None]]:
    """The rows of a batch that the loss does not leave out, with their advantages."""
    advantages, masks, tools = map(batch.get, ("advantages", "completion_mask", "tool_mask"))
    for n, name in enumerate(rows_of(batch, pad)):
        kept = [1] if masks is None else masks[n]
        if tools is not None:
            kept = [m and t for m, t in zip(kept, tools[n], strict=True)]
        if any(kept):
            yield name, None if advantages is None else float(advantages[n])
