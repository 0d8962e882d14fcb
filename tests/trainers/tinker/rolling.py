"""Groups rolled out through a traced dataset, and what of them must be stored."""

from __future__ import annotations

import asyncio
from typing import Any

from stored import Stored, flat
from tinker_cookbook.rl.rollouts import do_group_rollout
from world import TOK, Batches, Builder, Policy

from rollscope.adapters import tinker
from rollscope.model import Message, Rollout


def roll(builder: Any, policy: Policy, strategy: Any = None) -> Any:
    """One group through a traced dataset, as step 4 of a run."""

    async def run() -> Any:
        batches = Batches([[]] * 4 + [[builder]])
        dataset, _ = await tinker.traced(Builder(train=batches), project="p", run="r")()
        return await do_group_rollout(dataset.get_batch(4)[0], policy, strategy=strategy)

    return asyncio.run(run())


def branch(rollout: Rollout, place: int) -> list[Message]:
    """The messages from the root to this one."""
    path: list[Message] = []
    while place >= 0:
        message = rollout.messages[place]
        path.append(message)
        place = place - 1 if message.parent is None else message.parent
    return path[::-1]


def calls(rollout: Rollout) -> list[tuple[list[int], list[float], str | None]]:
    """For each thing the policy wrote: all that it saw and wrote, and its log probabilities."""
    found = []
    for place, message in enumerate(rollout.messages):
        if message.sampled:
            ids = [i for m in branch(rollout, place) for i in (m.tokens.ids if m.tokens else [])]
            assert message.tokens is not None
            logprobs = [v for v in message.tokens.logprob or [] if v is not None]
            found.append((ids, logprobs, message.stop_reason))
    return found


def compare(stored: Stored, policy: Policy) -> None:
    """Every call of the policy is stored, and nothing else."""
    wanted = [(s + list(a.tokens), a.maybe_logprobs, a.stop_reason) for s, a in policy.notes]
    found = [call for rollout in stored for call in calls(rollout)]
    assert sorted(map(str, found)) == sorted(map(str, wanted))
    for rollout in stored:
        for place, message in enumerate(rollout.messages):
            text = "".join(
                m.meta.get("before", "") + str(m.content) + m.meta.get("after", "")
                for m in branch(rollout, place)
            )
            ids = [i for m in branch(rollout, place) for i in (m.tokens.ids if m.tokens else [])]
            if ids:
                assert text == TOK.decode(ids)
            assert message.role != "unknown"


def by_answer(stored: Stored) -> dict[str, Rollout]:
    """Rollouts of one turn, by the text that was written."""
    return {said(r): r for r in stored}


def said(rollout: Rollout) -> str:
    """What the policy wrote."""
    ids = [t for t, m in zip(flat(rollout), flat(rollout, "mask"), strict=True) if m]
    return str(TOK.decode(ids))
