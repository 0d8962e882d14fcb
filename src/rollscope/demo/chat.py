"""How a conversation becomes tokens, and how the policy's tokens become a message."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .tokenizer import Tokenizer

SYSTEM = {
    "words": "Think in writing, then answer.",
    "calculator": "Use the calculator, then answer.",
    "team": "Lead the helper, then answer.",
    "helper": "Help: work out the product.",
    "division": "Take away in writing, then answer.",
}
"""What the policy is told, by part that it plays."""

_CALL = re.compile(r"(\w+)\((.*)\)")


@dataclass(frozen=True)
class Turn:
    """What one turn of the policy says."""

    thinking: str | None
    text: str
    call: bool
    """Does it end by calling a tool?"""

    def parsed(self) -> tuple[str, str] | None:
        """The tool's name and its argument, or None if that is no call."""
        match = _CALL.fullmatch(self.text.strip())
        return None if match is None else (match[1], match[2])


class Chat:
    """The chat template: which tokens stand around each message."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.special = tokenizer.special
        self._names = {id: name for name, id in self.special.items()}
        self.stops = (self.special["<end>"], self.special["<call>"])
        # Siblings read the same prompt, and problems come back.
        self.given = lru_cache(maxsize=4096)(self._given)

    def _given(self, role: str, text: str, answer: bool) -> tuple[list[int], list[int]]:
        """Ids and ends of a message that the policy reads. `answer`: the policy writes next."""
        ids = [self.special[f"<{role}>"], *self.tokenizer.encode(text)]
        if answer:
            ids.append(self.special["<assistant>"])
        return ids, self.tokenizer.decode(ids)[1]

    def marks(self, ids: list[int]) -> dict[str, Any]:
        """For `meta`: the tokens of a message that its text does not show."""
        return {"marks": {str(i): self._names[i] for i in ids if i in self._names}}

    def written(self, turn: Turn) -> list[int]:
        """A turn as the policy would write it (for the warm start)."""
        ids: list[int] = []
        if turn.thinking is not None:
            thinking = self.tokenizer.encode(turn.thinking)
            ids = [self.special["<think>"], *thinking, self.special["<answer>"]]
        end = self.special["<call>" if turn.call else "<end>"]
        return [*ids, *self.tokenizer.encode(turn.text), end]

    def read(self, ids: list[int]) -> Turn:
        """What the policy wrote. Thinking runs from `<think>` to `<answer>`, or to the end."""
        think, answer = self.special["<think>"], self.special["<answer>"]
        call = bool(ids) and ids[-1] == self.special["<call>"]
        if think not in ids:
            return Turn(None, self.tokenizer.decode(ids)[0], call)
        # Whatever stands before <think> is part of the thinking too.
        cut = ids.index(answer) if answer in ids else len(ids)
        thinking, text = self.tokenizer.decode(ids[:cut])[0], self.tokenizer.decode(ids[cut:])[0]
        return Turn(thinking, text, call)
