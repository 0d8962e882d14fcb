"""The grader: a program that reads the policy's last word and says what it is worth."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .agents import Episode

WEIGHTS = {"correct": 0.7, "format": 0.1, "brief": 0.1, "calls": 0.1}
"""What each part counts. Where nothing is called, `calls` does not count."""
ENOUGH = {"words": 52, "calculator": 34, "team": 90}
"""How many tokens of its own a policy needs, by kind of problem."""

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
    enough = ENOUGH[problem.kind]
    rewards["brief"] = float(written <= enough)
    if written > enough:
        texts["brief"] = f"{written} tokens where {enough} are enough"
    if problem.kind != "words":
        rewards["calls"] = float(episode.calls > 0 and episode.failed_calls == 0)
        if not rewards["calls"]:
            texts["calls"] = f"{episode.failed_calls} of {episode.calls} calls failed"
    return Grade(total(rewards), rewards, texts)


def total(rewards: dict[str, float]) -> float:
    weight = sum(WEIGHTS[name] for name in rewards)
    return round(sum(WEIGHTS[name] * value for name, value in rewards.items()) / weight, 4)
