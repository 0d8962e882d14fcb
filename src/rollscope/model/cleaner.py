"""Redaction for files that are given away: every text of a rollout, names included.

Recording does not clean the names that identify a rollout (docs/capture.md). A file that is given
away must clean them, because a task may be named after a person. If something is found in such a
name, a few letters of a hash keep it different from others. Nobody can compute the hash again,
because its key is thrown away with the export.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

import msgspec

from .records import Fact, Rollout
from .redact import Redactor, redact_rollout
from .tokens import KNOWN_STREAMS, Tokens

NAMES = ("key", "project", "run", "launch", "split", "dataset", "task", "group", "worker")
"""Fields that say which rollout it is."""


class Cleaner:
    """The redaction of one export: what to find, and the key of its hashes.

    An export that is continued later hands in the key that it began with.
    """

    def __init__(self, clean: Redactor, secret: bytes | None = None) -> None:
        self.text = clean
        self._secret = os.urandom(16) if secret is None else secret

    def rollout(self, rollout: Rollout) -> Rollout:
        """A clean copy. A message in which something was found loses its token ids."""
        names = {name: self.name(getattr(rollout, name)) for name in NAMES}
        names["id"] = rollout.id
        made = redact_rollout(rollout, self.deep)
        for message in made.messages:
            if message.tokens is not None and message.tokens.ids is None:
                # Streams with names of their own may be ids, too.
                known = {n: v for n, v in message.tokens.streams.items() if n in KNOWN_STREAMS}
                message.tokens = Tokens(streams=known)
        cleaned: Rollout = self.everything(made)
        return msgspec.structs.replace(cleaned, **names)

    def fact(self, fact: Fact) -> Fact:
        value = self.name(fact.value) if fact.name in NAMES else self.everything(fact.value)
        return msgspec.structs.replace(
            fact,
            name=self.text(fact.name),
            value=value,
            author=self.everything(fact.author),
        )

    def name(self, value: Any) -> Any:
        """A clean name, still different from other names."""
        if value is None:
            return None
        text = str(value)
        clean = self.text(text)
        if clean == text:
            return value
        mark = hashlib.blake2b(text.encode("utf-8", "replace"), key=self._secret, digest_size=5)
        return f"{clean}-{mark.hexdigest()}"

    def everything(self, value: Any) -> Any:
        """Any JSON value or record, the keys of objects included."""
        if isinstance(value, str):
            return self.deep(value)
        if isinstance(value, dict):
            return {self.text(str(k)): self.everything(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.everything(item) for item in value]
        if isinstance(value, msgspec.Struct):
            fields = {
                name: self.everything(getattr(value, name)) for name in value.__struct_fields__
            }
            return type(value)(**fields)
        if isinstance(value, Tokens):
            streams = {self.text(name): values for name, values in value.streams.items()}
            return Tokens(value.ids, value.ends, streams)
        return value

    def deep(self, text: str) -> str:
        """A clean text. If it is JSON, escaped characters (`\\u0040`) are looked through, too."""
        clean = self.text(text)
        if "\\" in clean:
            try:
                said = json.loads(clean)
            except (ValueError, RecursionError):
                return clean
            again = self.everything(said)
            if again != said:
                return json.dumps(again, ensure_ascii=False)
        return clean
