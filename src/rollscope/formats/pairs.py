"""Preference pairs in the form that TRL and others take: `{"prompt", "chosen", "rejected"}`.

One pair per group: the rollout with the highest reward over the one with the lowest. A rollout
without a reward, or with one that is not a number, is left out; it is not a bad one. A group in
which all are equally good gives no pair. Rollouts come group by group.

To be read, any preference data of that form will do: a pair is two rollouts of one group.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import IO, Any

from ..model import Rollout, prompt_task
from ..model.conversation import branches, prompt_size, text
from ..model.grouping import group_of
from ..model.problem import Problem
from . import _files
from ._body import decode
from ._chat import chat, tools
from ._encode import line
from ._export import LineCount

_OWN = {"prompt"} | {f"{what}{kind}" for what in ("", "score_", "id_")
                     for kind in ("chosen", "rejected")}  # fmt: skip


def recognise(path: Path) -> bool:
    return _files.first_object(path, ".jsonl", ".json").keys() >= {"chosen", "rejected"}


def read(path: Path) -> Iterator[Rollout | Problem]:
    """Both rollouts of every pair. What one is better by is known only if it has scores."""
    label = _files.label(path)
    return _files.rollouts(
        path, "a pair", lambda found: _both(found.value, f"{label}/{found.number}")
    )


def _both(body: dict[str, Any], group: str) -> Iterator[Rollout]:
    rest = {k: v for k, v in body.items() if k not in _OWN and v is not None}
    for index, kind in enumerate(("chosen", "rejected")):
        rollout = decode({"prompt": body.get("prompt"), "completion": _answer(body, kind)})
        rollout.key = None if body.get(f"id_{kind}") is None else str(body[f"id_{kind}"])
        rollout.reward = _files.number(body.get(f"score_{kind}"))
        rollout.group, rollout.index = group, index
        asked = rollout.messages[: prompt_size(rollout.messages)]
        rollout.task = prompt_task("\n".join(text(message) for message in asked))
        rollout.meta = {**rest, "preference": kind}
        yield rollout


def _answer(body: dict[str, Any], kind: str) -> Any:
    """The answer without the prompt, which some repeat before each of the two."""
    said, prompt = body[kind], body.get("prompt")
    if not isinstance(said, list):
        return said
    asked = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt or []
    return said[len(asked) :] if said[: len(asked)] == asked else said


def write(rollouts: Iterable[Rollout], out: IO[bytes]) -> LineCount:
    """One line per group that has a better and a worse rollout."""
    count, left_out = 0, Counter[str]()
    for _, group in groupby(rollouts, group_of):
        found = _pair(group)
        if isinstance(found, str):
            left_out[f"groups without a pair: {found}"] += 1
        else:
            out.write(line(found) + b"\n")
            count += 1
    return LineCount(count, left_out)


def _pair(group: Iterable[Rollout]) -> dict[str, Any] | str:
    """The pair, or why there is none. Only the best and the worst so far are held."""
    best: tuple[float, Rollout] | None = None
    worst: tuple[float, Rollout] | None = None
    known = 0
    for rollout in group:
        reward = rollout.reward
        if reward is None or not math.isfinite(reward):
            continue
        known += 1
        if best is None or reward > best[0]:
            best = reward, rollout
        if worst is None or reward < worst[0]:
            worst = reward, rollout
    if known < 2 or best is None or worst is None:
        return "fewer than two rollouts with a reward"
    if best[0] == worst[0]:
        return "all rewards are equal"
    return _compared(best[1], worst[1])


def _compared(best: Rollout, worst: Rollout) -> dict[str, Any] | str:
    chosen, rejected = _split(best), _split(worst)
    if chosen is None or rejected is None:
        return "no answer of the policy"
    if chosen[0] != rejected[0]:
        return "the prompts differ"
    body: dict[str, Any] = {"prompt": chosen[0], "chosen": chosen[1], "rejected": rejected[1]}
    if (known := tools(best)) is not None:
        body["tools"] = known
    return body | {
        "score_chosen": best.reward,
        "score_rejected": worst.reward,
        "id_chosen": best.id,
        "id_rejected": worst.id,
    }


def _split(rollout: Rollout) -> tuple[list[Any], list[Any]] | None:
    """The prompt and the answer of the branch that ends last."""
    messages = (branches(rollout.messages) or [[]])[-1]
    first = prompt_size(messages)
    if first == len(messages):
        return None
    body = [chat(message) for message in messages]
    return body[:first], body[first:]
