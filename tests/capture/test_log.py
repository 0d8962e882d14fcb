"""Handing rollouts over: what `log`, `annotate` and `metrics` promise."""

from __future__ import annotations

from pathlib import Path

import rollscope
from rollscope import Message, Rollout

from . import reading


def test_a_rollout_is_recorded_as_it_was_when_logged(own_store: Path) -> None:
    run = rollscope.init(project="math", run="r1")
    rollout = Rollout(task="q-1", index=3, messages=[Message(role="user", content="hi")])
    (id,) = run.log(rollout, step=12)
    rollout.messages.append(Message(role="assistant", content="changed later"))
    rollout.reward = 99.0
    run.finish()
    (got,) = reading.rollouts(own_store)
    assert got["id"] == id == rollout.id
    assert (got["step"], got["task"], got["index"]) == (12, "q-1", 3)
    assert got["messages"] == [{"role": "user", "content": "hi"}]
    assert "reward" not in got
    assert got["time"] > 1e9
