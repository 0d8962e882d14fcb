"""Lines for supervised fine-tuning in the form that TRL and others take: `{"messages": [...]}`.

One line for every branch that holds an answer of the policy. `tools` stands beside the messages
where the rollout recorded them; `id` and `reward` say where a line comes from.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import IO, Any

from ..model import Rollout
from ..model.conversation import branches, by_policy
from ._chat import chat, tools
from ._encode import line
from ._export import LineCount


def write(rollouts: Iterable[Rollout], out: IO[bytes]) -> LineCount:
    """One line per branch."""
    count, left_out = 0, Counter[str]()
    for rollout in rollouts:
        made = 0
        for messages in branches(rollout.messages):
            if any(map(by_policy, messages)):
                out.write(line(_body(rollout, [chat(m) for m in messages])) + b"\n")
                made += 1
        count += made
        if not made:
            left_out["rollouts without an answer of the policy"] += 1
    return LineCount(count, left_out)


def _body(rollout: Rollout, messages: list[dict[str, Any]]) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": messages}
    if (known := tools(rollout)) is not None:
        body["tools"] = known
    reward = rollout.reward
    is_known = reward is not None and math.isfinite(reward)
    return {**body, "id": rollout.id, "reward": reward if is_known else None}
