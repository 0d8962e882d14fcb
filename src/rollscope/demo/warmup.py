"""The supervised warm start: imitate worked examples until the policy can write at all."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from . import policy
from .chat import Chat
from .corpus import Examples
from .engine import LENGTH
from .grpo import Row, chunks
from .optimise import Muon
from .policy import Batch, Pass, Weights
from .threads import spread
from .tokenizer import Tokenizer

VOCABULARY = 384
PROBLEMS = 8
"""Examples of one step."""
RATE = 4e-3


def tokenizer(seed: int) -> Tokenizer:
    """Train the tokenizer on the text of some examples."""
    plain = Tokenizer(bytes(range(256)), [])
    texts = Examples(Chat(plain), seed).texts(600)
    return Tokenizer.train(texts, VOCABULARY)


def warm_start(chat: Chat, seed: int, steps: int) -> Weights:
    """Weights that imitate the examples, after `steps` steps."""
    weights = policy.init(len(chat.tokenizer), seed)
    for _ in imitate(weights, _batches(Examples(chat, seed)), steps):
        pass
    return weights


def _batches(examples: Examples) -> Iterator[list[Row]]:
    while True:
        yield [Row(ids[:LENGTH], learn[:LENGTH], []) for ids, learn in examples.rows(PROBLEMS)]


def imitate(weights: Weights, batches: Iterator[list[Row]], steps: int) -> Iterator[int]:
    """Change the weights in place, step by step; tells after each how many were made."""
    muon = Muon(weights)
    for n, rows in zip(range(steps), batches, strict=False):
        count = sum(sum(row.mask) for row in rows)
        grads: Weights = {}
        work = partial(_gradients, weights, count)
        for more in spread(work, chunks(rows, tokens=800)):
            grads = {name: grads[name] + g for name, g in more.items()} if grads else more
        warmed, cooled = min(1.0, (n + 1) / 20), min(1.0, max(0.05, 2 - 2 * n / steps))
        muon.update(weights, grads, RATE * warmed * cooled)
        yield n + 1


def _gradients(weights: Weights, count: int, rows: list[Row]) -> Weights:
    """Of the mean log-probability of the tokens that are to be learned."""
    forward = Pass(weights, Batch.of([r.ids for r in rows], [r.mask for r in rows]))
    return forward.backward(np.full(len(forward.chosen), 1 / count, np.float32))
