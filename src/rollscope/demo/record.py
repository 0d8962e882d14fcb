"""From episodes to what Rollscope keeps: rollouts when they end, facts when they are known."""

from __future__ import annotations

from typing import Any

from rollscope.model import Error, Rollout

from .agents import Episode
from .grader import Grade
from .grpo import Row

ENVIRONMENTS = {"calculator": "calculator", "team": "lead and helper"}


def rollout(episode: Episode, grade: Grade | None, error: Error | None = None) -> Rollout:
    """An episode that ended: graded, or failed with an error."""
    problem = episode.problem
    versions = [m.tokens.version[0] for m in episode.messages if m.sampled and m.tokens]
    return Rollout(
        key=episode.key,
        step=episode.step,
        split=episode.split,
        dataset=problem.kind,
        task=problem.task,
        group=episode.group,
        index=episode.index,
        attempt=episode.attempt,
        messages=episode.messages,
        spans=episode.spans,
        reward=grade.reward if grade else None,
        rewards=grade.rewards if grade else {},
        reward_texts=grade.texts if grade else {},
        stop_reason="error" if error else episode.stop_reason,
        truncated=None if error else episode.truncated,
        fate="failed" if error else "scored",
        fate_reason=error.text if error else None,
        error=error,
        start=episode.start,
        end=episode.end,
        sampling={"temperature": 1.0, "top_p": 1.0, "logprobs": "raw"},
        policy_version=versions[0] if versions else None,
        reference=f"{problem.answer} {problem.unit}",
        environment=ENVIRONMENTS.get(problem.kind, "one turn"),
        meta={"story": problem.story, "steps": len(problem.steps)},
    )


def rows(episode: Episode) -> list[Row]:
    """What the learner sees of an episode: one row for each conversation."""
    out = []
    for numbers in episode.rows:
        tokens = [episode.messages[n].tokens for n in numbers]
        row = Row(
            ids=[i for t in tokens if t for i in t.ids],
            mask=[i for t in tokens if t for i in t.mask],
            drawn=[x for t in tokens if t and t.logprob is not None for x in t.logprob],
        )
        if row.drawn:
            out.append(row)
    return out


def streams(episode: Episode, learned: list[Row], advantage: float) -> dict[str, list[Any]]:
    """What the learner knows of each token, in the order of the rollout's messages."""
    now: dict[int, list[Any]] = {}
    values = iter(learned)
    for numbers in episode.rows:
        written = [n for n in numbers if episode.messages[n].sampled]
        rest = iter(next(values).now if written else ())
        for n in written:
            now[n] = [next(rest) for _ in episode.messages[n].tokens.ids]  # type: ignore[union-attr]
    logprobs: list[Any] = []
    advantages: list[Any] = []
    for n, message in enumerate(episode.messages):
        length = len(message.tokens or ())
        logprobs += now.get(n) or [None] * length
        advantages += [advantage if n in now else None] * length
    return {"train_logprob": logprobs, "advantage": advantages}
