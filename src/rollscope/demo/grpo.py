"""GRPO: siblings are compared with each other, and the policy goes where the better ones went.

    advantage of a rollout = (its reward - mean of its group) / standard deviation of its group
    objective per token    = min(ratio * advantage, clip(ratio) * advantage)
    ratio                  = probability now / probability when the token was drawn

A group in which all rewards are equal teaches nothing and is dropped. The probability when
the token was drawn is the engine's own, of whichever version drew it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from .optimise import Adam
from .policy import Batch, Pass, Weights
from .threads import spread

CLIP_LOW, CLIP_HIGH = 0.2, 0.28
"""As in DAPO: more room upwards, which keeps the policy from collapsing."""
MINIBATCHES = 2


@dataclass(eq=False)
class Row:
    """One conversation of a rollout as the learner sees it."""

    ids: list[int]
    mask: list[int]
    """1 for each token that the policy wrote."""
    drawn: list[float]
    """Log-probabilities of those tokens when they were drawn."""
    advantage: float = 0.0
    now: list[float] = field(default_factory=list)
    """The same under the learner's weights, just before it learned from them."""


def advantages(rewards: list[float]) -> list[float] | None:
    """Group-normalised advantages; None where all rewards are equal."""
    values = np.array(rewards)
    deviation = float(values.std())
    if deviation < 1e-6:
        return None
    return [float(a) for a in (values - values.mean()) / (deviation + 1e-4)]


class Learner:
    """Holds the weights that are trained, and their optimiser."""

    def __init__(self, weights: Weights) -> None:
        self.weights = {name: x.copy() for name, x in weights.items()}
        self.adam = Adam(weights)

    def step(self, rollouts: list[list[Row]], rate: float) -> dict[str, float]:
        """Learn once from each row of these rollouts. Returns what happened, in numbers."""
        sums = {"loss": 0.0, "kl": 0.0, "clip_fraction": 0.0, "entropy": 0.0, "grad_norm": 0.0}
        tokens = sum(len(row.drawn) for rows in rollouts for row in rows)
        for m in range(min(MINIBATCHES, len(rollouts))):
            part = [row for rows in rollouts[m::MINIBATCHES] for row in rows]
            count = sum(len(row.drawn) for row in part)
            grads: Weights = {}
            work = partial(self._gradients, count=count)
            for numbers, more in spread(work, chunks(part)):
                for name, value in numbers.items():
                    sums[name] += value / tokens
                grads = {n: grads[n] + g for n, g in more.items()} if grads else more
            sums["grad_norm"] += self.adam.update(self.weights, grads, rate) / MINIBATCHES
        return sums

    def _gradients(self, rows: list[Row], count: int) -> tuple[dict[str, float], Weights]:
        forward = Pass(self.weights, Batch.of([r.ids for r in rows], [r.mask for r in rows]))
        drawn = np.array([x for row in rows for x in row.drawn], np.float32)
        lengths = [len(row.drawn) for row in rows]
        for row, now in zip(rows, np.split(forward.chosen, np.cumsum(lengths[:-1])), strict=True):
            row.now = now.tolist()
        advantage = np.repeat(np.array([row.advantage for row in rows], np.float32), lengths)
        change = forward.chosen - drawn
        ratio = np.exp(np.minimum(change, 20.0))
        clipped = np.where(advantage > 0, ratio > 1 + CLIP_HIGH, ratio < 1 - CLIP_LOW)
        bounded = np.clip(ratio, 1 - CLIP_LOW, 1 + CLIP_HIGH)
        grads = forward.backward(np.where(clipped, 0, ratio * advantage / np.float32(count)))
        numbers = {
            "loss": -float(np.minimum(ratio * advantage, bounded * advantage).sum()),
            "kl": float((ratio - 1 - change).sum()),
            "clip_fraction": float(clipped.sum()),
            "entropy": -float((np.exp(forward.logprobs) * forward.logprobs).sum()),
        }
        return numbers, grads


def chunks(rows: list[Row], tokens: int = 1500) -> Iterator[list[Row]]:
    """Rows of like length together, few enough that the work stays in the cache."""
    chunk: list[Row] = []
    for row in sorted(rows, key=lambda r: len(r.ids)):
        if chunk and (len(chunk) + 1) * len(row.ids) > tokens:
            yield chunk
            chunk = []
        chunk.append(row)
    if chunk:
        yield chunk
