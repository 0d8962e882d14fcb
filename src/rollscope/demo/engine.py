"""The inference engine: many conversations at once, one token each per tick.

Requests come and go at any tick (continuous batching). New weights can be loaded while requests
are under way: their keys and values are then computed again, and the new version writes the rest
of the turn. Every token records the version that drew it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from .policy import (
    FAR,
    HEAD,
    HEADS,
    RECENCY,
    SCALE,
    SEEN,
    WINDOW,
    Array,
    Lower,
    Weights,
    log_softmax,
    softmax,
    upper,
)
from .threads import spread

LENGTH = 160
"""Longest conversation, in tokens, unless an engine is made for longer ones."""
BLOCK = 192
"""Slots that are worked on at once: few enough that the work stays in the cache."""


@dataclass(eq=False)
class Request:
    """One turn to be written: the conversation so far, and what the policy added to it."""

    prompt: list[int]
    limit: int
    """Most tokens to write."""
    after: Request | None = None
    """The previous turn of the same conversation, whose keys and values are reused."""
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    """Of the tokens drawn, under the policy itself (temperature 1)."""
    entropies: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    stopped: bool = False
    """Did the policy end its turn? If not, the limit did."""
    start: float = 0.0
    end: float = 0.0
    kept: tuple[int, Array, Array] | None = None
    """Version, keys and values at its end."""


class Engine:
    """Draws tokens for many requests at once."""

    def __init__(
        self,
        weights: Weights,
        stops: tuple[int, ...],
        seed: int,
        slots: int,
        length: int = LENGTH,
        version: int = 0,
    ) -> None:
        self.rng = np.random.default_rng([seed, 2])
        self.stops = stops
        self.requests: list[Request] = []
        """The request in each slot: slots are filled from the front, without gaps."""
        self._arriving: list[Request] = []
        self.length = length
        self._keys = np.zeros((slots, HEADS, length, HEAD), np.float32)
        self._values = np.zeros((slots, HEADS, length, HEAD), np.float32)
        self._tokens = np.full((slots, WINDOW - 1 + length), -1, np.int32)
        self._known = np.zeros(slots, np.int64)
        """How many tokens each slot has; keys and values exist for all but the last."""
        self.load(weights, version)

    def load(self, weights: Weights, version: int) -> None:
        """Go on with these weights (copied), also in the middle of a turn."""
        self.weights = {name: x.copy() for name, x in weights.items()}
        self.version = version
        self._lower = Lower(self.weights)
        n = len(self.requests)
        self._fill(np.arange(n), np.zeros(n, np.int64))

    def submit(self, request: Request) -> None:
        request.limit = min(request.limit, self.length - len(request.prompt))
        request.start = time.time()
        self._arriving.append(request)

    def tick(self) -> list[Request]:
        """Draw one token for every request. Returns the requests that are now done."""
        self._admit()
        n = len(self.requests)
        blocks = [slice(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK)]
        uniform = self.rng.random(n, np.float32)
        drawn = spread(lambda slots: self._draw(slots, uniform[slots]), blocks)
        tokens = itertools.chain.from_iterable(drawn)
        done: list[int] = []
        for slot, (token, logprob, nats) in enumerate(tokens):
            request = self.requests[slot]
            request.ids.append(token)
            request.logprobs.append(logprob)
            request.entropies.append(nats)
            request.versions.append(self.version)
            request.stopped = token in self.stops
            if request.stopped or len(request.ids) >= request.limit:
                done.append(slot)
        return self._release(done)

    def _draw(self, slots: slice, uniform: Array) -> Iterable[tuple[int, float, float]]:
        """One token for each of these slots, with its log-probability and the entropy."""
        logprobs = log_softmax(self._logits(slots))
        probs = np.exp(logprobs)
        entropy = -(probs * logprobs).sum(-1)
        drawn = _choose(probs, uniform)
        every = np.arange(len(drawn))
        self._tokens[every + slots.start, self._known[slots] + WINDOW - 1] = drawn
        self._known[slots] += 1
        chosen = logprobs[every, drawn]
        return zip(drawn.tolist(), chosen.tolist(), entropy.tolist(), strict=True)

    def _admit(self) -> None:
        """Give slots to the arriving requests, and compute the keys and values that are missing."""
        slots: list[int] = []
        starts: list[int] = []
        twins: list[tuple[int, int]] = []
        first_of: dict[tuple[int, ...], int] = {}
        for slot, request in enumerate(self._arriving, len(self.requests)):
            length = len(request.prompt)
            self._tokens[slot, WINDOW - 1 : WINDOW - 1 + length] = request.prompt
            self._known[slot] = length
            first = first_of.setdefault(tuple(request.prompt), slot)
            if first != slot:
                twins.append((slot, first))
                continue
            slots.append(slot)
            starts.append(self._go_on(slot, request.after))
        self._fill(np.array(slots, np.int64), np.array(starts, np.int64))
        for slot, first in twins:  # siblings begin with the same prompt
            self._copy(slot, first)
        self.requests += self._arriving
        self._arriving = []

    def _go_on(self, slot: int, after: Request | None) -> int:
        """Reuse the keys and values of the previous turn, if this version made them."""
        if after is None or after.kept is None or after.kept[0] != self.version:
            return 0
        _, keys, values = after.kept
        length = int(keys.shape[1])
        self._keys[slot, :, :length] = keys
        self._values[slot, :, :length] = values
        return length

    def _copy(self, slot: int, source: int) -> None:
        known = self._known[source]
        self._keys[slot, :, :known] = self._keys[source, :, :known]
        self._values[slot, :, :known] = self._values[source, :, :known]

    def _release(self, done: list[int]) -> list[Request]:
        """Remove these requests, and fill the gaps with the last ones."""
        finished = [self.requests[slot] for slot in done]
        now = time.time()
        for slot, request in zip(done, finished, strict=True):
            request.end = now
            known = self._known[slot] - 1
            keys, values = self._keys[slot, :, :known], self._values[slot, :, :known]
            request.kept = (self.version, keys.copy(), values.copy())
        for slot in reversed(done):
            last = len(self.requests) - 1
            if slot != last:
                self._copy(slot, last)
                self._tokens[slot] = self._tokens[last]
                self._known[slot] = self._known[last]
                self.requests[slot] = self.requests[last]
            self.requests.pop()
        return finished

    def _fill(self, slots: Array, starts: Array) -> None:
        """Compute the keys and values of all known tokens but the last, from `starts` on. They
        depend on tokens alone, so one pass makes all of them."""
        lengths = self._known[slots] - 1 - starts
        slot = np.repeat(slots, lengths)
        before = np.repeat(np.cumsum(lengths) - lengths - starts, lengths)
        at = np.arange(len(slot)) - before
        for start in range(0, len(slot), 1024):
            piece = slice(start, start + 1024)
            self._keep(slot[piece], at[piece])

    def _keep(self, slot: Array, at: Array) -> Array:
        """Write the keys and values of these tokens. Returns their embedded windows."""
        window = self._tokens[slot[:, None], at[:, None] + np.arange(WINDOW)]
        x = self._lower.embed(window)
        key, value = self._lower.read(x)
        self._keys[slot, :, at] = key.reshape(-1, HEADS, HEAD)
        self._values[slot, :, at] = value.reshape(-1, HEADS, HEAD)
        return x

    def _logits(self, slots: slice) -> Array:
        """What may come next in these slots."""
        at = self._known[slots] - 1
        near, query = self._lower.ask(self._keep(np.arange(slots.start, slots.stop), at))
        longest = int(at.max()) + 1
        keys = self._keys[slots, :, :longest].swapaxes(-1, -2)
        scores = (query.reshape(-1, HEADS, 1, HEAD) @ keys)[:, :, 0]
        scores *= SCALE
        distance = (at[:, None] - np.arange(longest)).astype(np.float32)
        scores -= RECENCY[:, None] * distance[:, None]
        np.copyto(scores, FAR, where=(distance < 0)[:, None])
        seen = softmax(scores)[:, :, None] @ self._values[slots, :, :longest]
        return upper(self.weights, near, seen.reshape(-1, SEEN))[0]


def _choose(probs: Array, uniform: Array) -> Array:
    """One token per row: first its block, then its place in the block, because a running sum
    over the whole vocabulary costs more than the network."""
    rows, size = probs.shape
    block = 16
    sums = probs.reshape(rows, size // block, block).sum(-1).cumsum(-1)
    aim = uniform * sums[:, -1]
    chosen = np.minimum((sums <= aim[:, None]).sum(-1), size // block - 1)
    every = np.arange(rows)
    aim -= np.where(chosen > 0, sums[every, chosen - 1], 0)
    inside = probs.reshape(rows, size // block, block)[every, chosen].cumsum(-1)
    drawn: Array = chosen * block + np.minimum((inside <= aim[:, None]).sum(-1), block - 1)
    return drawn
