"""The grader: a program that reads the policy's last word and says what it is worth."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rollscope.model.conversation import text

from .agents import Episode

WEIGHTS = {"correct": 0.7, "format": 0.1, "brief": 0.1, "calls": 0.1}
"""What each part counts. Where nothing is called, `calls` does not count."""
ENOUGH = {"words": 52, "calculator": 34, "team": 90}
"""How many tokens of its own a policy needs, by kind of problem."""
STEP = 10
"""And for each step of a division."""

_TOOLS = ("calculator", "team")
_STEP = re.compile(r"(\d+)-(\d+)=(\d+)\.")
_ANSWER = re.compile(r"(\d+)(?: (\w+))?\.")


@dataclass(frozen=True)
class Grade:
    reward: float
    rewards: dict[str, float]
    texts: dict[str, str]


def grade(episode: Episode) -> Grade:
    """Judge an episode that has come to its end."""
    written = episode.written()
    problem = episode.problem
    wanted = f"{problem.answer} {problem.unit}"
    match = _ANSWER.fullmatch(episode.answer.text.strip()) if episode.answer else None
    found = match[1] if match else None
    correct = found == str(problem.answer)
    rewards = {"correct": float(correct)}
    if episode.answer is None:
        texts = {"correct": f"expected {wanted}; no answer before the limit"}
    elif found is None:
        texts = {"correct": f"expected {wanted}; no number could be read"}
    else:
        texts = {"correct": f"expected {wanted}; found {found}" + (", right" if correct else "")}
    unit = match[2] if match else None
    rewards["format"] = float(unit == problem.unit)
    if not rewards["format"] and match:
        texts["format"] = f"the unit is {problem.unit!r}, found {unit!r}"
    slip = _slip(episode) if problem.kind == "division" and not correct else None
    if slip:
        texts["correct"] += f"; the first slip: {slip}"
    enough = ENOUGH.get(problem.kind) or STEP * len(problem.steps) + 20
    rewards["brief"] = float(written <= enough)
    if written > enough:
        texts["brief"] = f"{written} tokens where {enough} are enough"
    if problem.kind in _TOOLS:
        rewards["calls"] = float(episode.calls > 0 and episode.failed_calls == 0)
        if not rewards["calls"]:
            texts["calls"] = f"{episode.failed_calls} of {episode.calls} calls failed"
    return Grade(total(rewards), rewards, texts)


def _slip(episode: Episode) -> str | None:
    """The first step that does not follow from the problem and the steps before it."""
    written = next(text(m) for m in episode.messages if m.sampled)
    _, left, size = episode.problem.steps[0]
    for number, step in enumerate(_STEP.finditer(written), 1):
        if tuple(map(int, step.groups())) != (left, size, left - size):
            return f"{step[0].rstrip('.')} (step {number})"
        left -= size
    return None


def total(rewards: dict[str, float]) -> float:
    weight = sum(WEIGHTS[name] for name in rewards)
    return round(sum(WEIGHTS[name] * value for name, value in rewards.items()) / weight, 4)
