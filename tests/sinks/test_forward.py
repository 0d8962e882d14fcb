"""Rollouts are forwarded by a process of their own, each once, and nothing else waits for it."""

from __future__ import annotations

from pathlib import Path

import rollscope
from rollscope import Message, Rollout

from . import notebook
from .conftest import sent, wait_complete


def rollouts(step: int, tasks: int = 2, each: int = 2, reward: float | None = 1.0) -> list[Rollout]:
    return [
        Rollout(
            key=f"{step}-{task}-{index}",
            step=step,
            task=f"q{task}",
            index=index,
            reward=reward,
            messages=[Message(role="user", content="?"), Message(role="assistant", content="!")],
        )
        for task in range(tasks)
        for index in range(each)
    ]


def test_every_rollout_is_sent_once_and_whole(own_store: Path, book: Path) -> None:
    with rollscope.init(project="p", run="r", sinks=[f"notebook:path={book}"]) as run:
        ids = run.log(rollouts(1)) + run.log(rollouts(2))
    state = wait_complete(own_store)
    assert sorted(sent(book)) == sorted(ids)
    assert (state.counts.sent, state.counts.waiting, state.to) == (8, 0, "the notebook of p/r")
    calls = [line["call"] for line in notebook.read(book)]
    assert (calls[0], calls[-1]) == ("open", "close")
    assert {line["messages"] for line in notebook.read(book) if line["call"] == "send"} == {2}
