"""Small checks and rollouts, so that what the frame promises can be seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rollscope import Message, Rollout
from rollscope.checks import Check, Evidence, OneGroup, OneRollout, Settings, Spot, check

THOUGHTS = Evidence("a message that says 'think'", lambda one: "think" in one.said)


@check("made.loud", kind="behaviour", means="It shouts.", source="made up", needs=[THOUGHTS])
def LOUD(one: OneRollout, *, marks: int = 1) -> Iterator[Spot]:
    for turn in one.turns:
        if turn.text.count("!") >= marks:
            at = turn.text.index("!")
            yield Spot("it shouts here", message=turn.n, chars=(at, at + 1), value=1.5)


@check("made.same", kind="record", subject="group", means="All are alike.", source="made up")
def SAME(group: OneGroup) -> Iterator[Spot]:
    if len({member.reward for member in group.members}) == 1:
        yield Spot(f"{len(group.members)} alike")


@check("made.broken", kind="behaviour", means="It breaks.", source="made up")
def BROKEN(one: OneRollout) -> Iterator[Spot]:
    raise ValueError("no such thing")
    yield


def settings(*checks: Check, toml: Path | None = None) -> Settings:
    """These checks and no others; `toml`: a file with their parameters."""
    return Settings(toml or Path("/nonexistent/checks.toml"), {one.id: one for one in checks})


def rollout(said: str, **about: Any) -> Rollout:
    messages = [Message(role="user", content="?"), Message(role="assistant", content=said)]
    return Rollout(messages=messages, **about)


def group(step: int, rewards: list[float | None], said: str = "think") -> list[Rollout]:
    return [
        rollout(said, key=f"{step}/{i}", step=step, task="t", index=i, split="train", reward=reward)
        for i, reward in enumerate(rewards)
    ]
