"""Which token streams are recorded."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from .chat import as_message
from .records import Message, Rollout
from .tokens import Tokens


class Streams(NamedTuple):
    """Streams by name: the only ones that are kept, or those that are left out."""

    names: frozenset[str]
    are_kept: bool

    @classmethod
    def parse(cls, text: str) -> Streams:
        """`logprob,mask` keeps only these; `-ref_logprob,-entropy` leaves these out."""
        words = [word.strip() for word in text.split(",")]
        signed = {word.startswith("-") for word in words}
        names = frozenset(word.removeprefix("-").strip() for word in words)
        if "" in names or len(signed) > 1:
            raise ValueError(text)
        return cls(names, not signed.pop())

    def take(self, name: str) -> bool:
        return (name in self.names) is self.are_kept

    def of(self, rollout: Rollout) -> Rollout:
        """The rollout without the streams that are left out. The caller's stays as it is."""
        messages = [self.of_message(message) for message in rollout.messages]
        return msgspec.structs.replace(rollout, messages=messages)

    def of_message(self, message: Message) -> Message:
        message = message if type(message) is Message else as_message(message)
        tokens = message.tokens
        if not isinstance(tokens, Tokens) or all(map(self.take, tokens.streams)):
            return message
        kept = {name: values for name, values in tokens.streams.items() if self.take(name)}
        return msgspec.structs.replace(message, tokens=Tokens(tokens.ids, tokens.ends, kept))
