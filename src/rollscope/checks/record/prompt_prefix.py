"""What the policy wrote is not what came back to it."""

from __future__ import annotations

from collections.abc import Iterator

from ...model import Message, conversation
from ..check import Spot, check
from ..evidence import BRANCHED
from ..subject import OneRollout


@check(
    "prompt.prefix",
    kind="record",
    means="A later turn saw another history than the earlier turns made: one training row becomes "
    "several, and what was sampled is not what is trained on.",
    source="ours; the first message and the first token that differ",
    needs=[BRANCHED],
)
def prefix(one: OneRollout) -> Iterator[Spot]:
    for later, earlier in _returned(one):
        before, now = one.texts[earlier], one.texts[later]
        at = _shared(before, now)
        if before.strip() != now.strip():
            yield Spot(
                f"message {earlier} of the policy came back changed from character {at} on",
                message=later, chars=(at, len(now)), value=at,
            )  # fmt: skip
            return
        token = _first_other(one.messages[earlier], one.messages[later])
        if token is not None:
            yield Spot(
                f"message {earlier} of the policy came back with the same words and other tokens "
                f"from token {token} on",
                message=later, tokens=(token, token + 1), value=token,
            )  # fmt: skip
            return


def _returned(one: OneRollout) -> Iterator[tuple[int, int]]:
    """Messages that stand, after the same history, where the policy wrote on an earlier branch."""
    histories: list[int] = []
    wrote: dict[int, int] = {}
    for n, message in enumerate(one.messages):
        parent = conversation.parent_of(n, message)
        before = histories[parent] if parent >= 0 else 0
        histories.append(hash((before, message.role, one.texts[n])))
        if conversation.by_policy(message):
            wrote.setdefault(before, n)
        elif message.role == "assistant" and before in wrote:
            yield n, wrote[before]


def _shared(a: str, b: str) -> int:
    """How many characters both begin with."""
    size = min(len(a), len(b))
    return next((i for i in range(size) if a[i] != b[i]), size)


def _first_other(a: Message, b: Message) -> int | None:
    """The first token that differs; None: none does, or they are not known."""
    if a.tokens is None or b.tokens is None or a.tokens.ids is None or b.tokens.ids is None:
        return None
    pairs = zip(a.tokens.ids, b.tokens.ids, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), None)
