"""A turn in which the policy says and does nothing."""

from __future__ import annotations

from collections.abc import Iterator

from ...model import Message, conversation
from ..check import Spot, check
from ..evidence import TURNS
from ..subject import OneRollout, Turn
from ..thoughts import unmarked


@check(
    "turn.hollow",
    version=2,
    kind="behaviour",
    means="The policy neither says anything nor calls a tool: the call of the model failed or its "
    "text was lost.",
    source="NeMo Gym, `agent_turn_hollow` and `model_call_zero_completion_tokens`",
    needs=[TURNS],
)
def hollow(one: OneRollout) -> Iterator[Spot]:
    for turns in _together(one):
        last = turns[-1]
        is_writing = one.is_open and last.n == len(one.messages) - 1
        if is_writing or any(unmarked(turn.text) or _does(turn.message) for turn in turns):
            continue
        tokens = sum(len(t.message.tokens) for t in turns if t.message.tokens is not None)
        drew = f", though it drew {tokens} tokens" if tokens else ""
        yield Spot(f"the policy says nothing and calls nothing{drew}", message=last.n)


def _together(one: OneRollout) -> Iterator[list[Turn]]:
    """Messages that the policy wrote in one go: a thought, a call and a text may be one each."""
    turns: list[Turn] = []
    for turn in one.turns:
        if turns and turn.n != turns[-1].n + 1:
            yield turns
            turns = []
        turns.append(turn)
    if turns:
        yield turns


def _does(message: Message) -> bool:
    parts = message.content if isinstance(message.content, list) else ()
    return bool(conversation.tool_calls(message)) or any(
        part.image or part.data or part.type not in ("text", "reasoning") for part in parts
    )
