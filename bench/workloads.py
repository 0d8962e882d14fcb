"""The three workloads that every measurement uses, the same for Rollscope and its peers.

A: one turn, about 300 + 800 tokens of Zipf text, 64 tasks × 8 rollouts a step.
B: 12 turns with tool calls and nested spans, about 6,000 tokens, 16 tasks × 8 a step.
T: A with token ids, logprobs, mask and advantages as NumPy arrays.

Lengths are set so that a rollout has the size it had where the targets come from
(`research/storage.md`): as raw JSON 5.7 kB (A), 31.2 kB (B) and 31 kB (T). A word counts as one
token; the rest of B's 6,000 are what a chat template writes around 25 messages and 12 calls.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from rollscope.model import Message, Rollout, Span, Tokens, ToolCall, normalise

VOCABULARY = 20_000
EXPONENT = 1.35
"""Of Zipf's law, set so that texts compress as they did where the targets of size were found.
There zstd-1 packed frames of 16 rollouts to 0.27 of raw JSON (A) and 0.28 (B), and sealing to
0.20 and 0.24: so much more for A only because siblings, which share their prompt, had not lain in
one frame. With siblings apart these are packed to 0.285 and 0.26: one exponent for both, midway
between what A would ask for (1.4) and B (1.28)."""

_TABLE = 1 << 22
"""Entries to draw a word from; the rarest word has more than one."""


class Texts:
    """Seeded Zipf text: every word drawn anew, so that no two texts share more than chance."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        lengths = 2 + self.random.binomial(4, 0.5, VOCABULARY)
        letters = self.random.choice(list("etaoinshrdlu"), int(lengths.sum()))
        spelled, ends = "".join(letters), np.cumsum(lengths)
        words = [spelled[e - n : e] for e, n in zip(ends, lengths, strict=True)]
        self._words = np.array(words, dtype=object)
        weights = np.arange(1, VOCABULARY + 1) ** -EXPONENT
        shares = np.cumsum(weights / weights.sum())
        places = (np.arange(_TABLE) + 0.5) / _TABLE
        self._ranks = np.searchsorted(shares, places).astype(np.uint16)

    def cut(self, words: int) -> tuple[str, np.ndarray]:
        """A text of so many words, and their numbers in the vocabulary."""
        ids = self._ranks[self.random.integers(0, _TABLE, words, np.uint32)].astype(np.int32)
        return " ".join(self._words[ids]), ids


def steps(kind: str, count: int, seed: int = 0, first: int = 0) -> Iterator[list[Rollout]]:
    """`count` training steps of workload A, B or T."""
    texts = Texts(seed)
    tasks = 16 if kind == "B" else 64
    make = _agent if kind == "B" else _single
    for step in range(first, first + count):
        batch = []
        for task in range(tasks):
            prompt = texts.cut(300)
            for index in range(8):
                rollout = make(texts, prompt, tokens=kind == "T")
                rollout.step, rollout.task, rollout.index = step, f"q-{task}", index
                rollout.group, rollout.split = f"{step}/q-{task}", "train"
                rollout.key = f"{step}/{task}/{index}"
                batch.append(rollout)
        yield batch


def raw_bytes(rollout: Rollout) -> int:
    """Size as plain JSON: what all bytes on disk are compared with."""
    clean = normalise(rollout)
    body = msgspec.to_builtins(clean, enc_hook=lambda tokens: dict(tokens.arrays()))
    return len(msgspec.json.encode(body))


def _single(texts: Texts, prompt: tuple[str, np.ndarray], *, tokens: bool) -> Rollout:
    answer, ids = texts.cut(int(texts.random.integers(737, 937)))
    good = bool(texts.random.random() < 0.5)
    user = Message(role="user", content=prompt[0])
    reply = Message(role="assistant", content=answer, sampled=True, stop_reason="stop")
    if tokens:
        n = len(ids)
        user.tokens = Tokens(prompt[1], mask=np.zeros(len(prompt[1]), np.int32))
        reply.tokens = Tokens(
            ids,
            logprob=-texts.random.exponential(0.6, n).astype(np.float32),
            mask=np.ones(n, np.int32),
            advantage=np.full(n, 1.0 if good else -1.0, np.float32),
        )
    return Rollout(
        messages=[user, reply],
        reward=float(good),
        rewards={"correct": float(good), "format": 1.0},
        advantage=1.0 if good else -1.0,
        stop_reason="stop",
        fate="trained",
    )


def _agent(texts: Texts, prompt: tuple[str, np.ndarray], *, tokens: bool) -> Rollout:
    messages = [Message(role="user", content=prompt[0])]
    spans = [Span(name="run", id="0", start=0.0, end=12.0)]
    for turn in range(12):
        thought, _ = texts.cut(170)
        query, _ = texts.cut(12)
        result, _ = texts.cut(253)
        call = ToolCall(id=f"c{turn}", name="search", arguments={"query": query, "k": 5})
        messages.append(Message(role="assistant", content=thought, tool_calls=[call], sampled=True))
        messages.append(
            Message(role="tool", name="search", content=result, tool_call_id=f"c{turn}")
        )
        at = float(turn)
        spans += [
            Span(name="generate", id=f"g{turn}", parent="0", start=at, end=at + 0.7),
            Span(
                name="search",
                id=f"s{turn}",
                parent="0",
                inputs={"query": query, "k": 5},
                start=at + 0.7,
                end=at + 1.0,
            ),
        ]
    return Rollout(
        messages=messages,
        spans=spans,
        reward=float(texts.random.random() < 0.3),
        stop_reason="stop",
    )
