"""The policy: a small network over tokens, forward and backward in plain NumPy.

    the last WINDOW tokens -> embeddings -+-> relu layer: what stands right here
                                          +-> query, key, value of causal attention, with a
                                              recency bias: what stood further up
    both -> relu layer -> softmax over the vocabulary

There is one attention layer and its keys and values depend on tokens alone, so only the
positions whose next token is asked for need the upper half. About 160,000 weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Weights = dict[str, Array]

WINDOW = 6
EMBED = 32
WIDTH = 96
HEADS = 4
HEAD = 16
SEEN = HEADS * HEAD
HIDDEN = 160
RECENCY = np.array([0.0, 0.0, 0.02, 0.15], np.float32)
"""How much each head's attention fades with every token of distance."""
SCALE = np.float32(HEAD**-0.5)
FAR = np.float32(-1e9)


def init(vocabulary: int, seed: int) -> Weights:
    """Weights of a policy that knows nothing."""
    rng = np.random.default_rng([seed, 1])

    def matrix(rows: int, columns: int, gain: float = 1.0) -> Array:
        values: Array = rng.standard_normal((rows, columns)) * (gain / np.sqrt(rows))
        return values.astype(np.float32)

    return {
        "embed": rng.standard_normal((vocabulary, EMBED)).astype(np.float32),
        "near": matrix(WINDOW * EMBED, WIDTH, 1.4),
        "near_bias": np.zeros(WIDTH, np.float32),
        "query": matrix(WINDOW * EMBED, SEEN),
        "key": matrix(WINDOW * EMBED, SEEN),
        "value": matrix(WINDOW * EMBED, SEEN),
        "mix": matrix(SEEN, WIDTH),
        "hidden": matrix(2 * WIDTH, HIDDEN, 1.4),
        "hidden_bias": np.zeros(HIDDEN, np.float32),
        "down": matrix(HIDDEN, WIDTH, 0.5),
        "out": matrix(WIDTH, vocabulary, 0.5),
        "out_bias": np.zeros(vocabulary, np.float32),
    }


@dataclass
class Batch:
    """Rows of tokens, padded, and the positions whose next token is asked for."""

    ids: Array
    """[rows, length]"""
    row: Array
    """Of each asked position: its row."""
    at: Array
    """Of each asked position: its place in the row (the token *before* the one asked for)."""
    target: Array
    """Of each asked position: the token that came next."""

    @classmethod
    def of(cls, rows: list[list[int]], asked: list[list[int]]) -> Batch:
        """`asked[r][t]` is 1 where token t of row r is asked for."""
        length = max(map(len, rows))
        ids = np.zeros((len(rows), length), np.int32)
        chosen = np.zeros((len(rows), length), bool)
        for r, (tokens, wanted) in enumerate(zip(rows, asked, strict=True)):
            ids[r, : len(tokens)] = tokens
            chosen[r, : len(tokens)] = wanted
        row, at = np.nonzero(chosen)
        return cls(ids, row, at - 1, ids[row, at])


class Lower:
    """The lower half, ready to be applied to windows of tokens (-1: before the beginning).

    Weights that are applied to the same windows lie side by side, for one product.
    """

    def __init__(self, w: Weights) -> None:
        self.table = np.concatenate([w["embed"], np.zeros((1, EMBED), w["embed"].dtype)])
        self.key_value = np.concatenate([w["key"], w["value"]], axis=1)
        self.near_query = np.concatenate([w["near"], w["query"]], axis=1)
        self.bias = w["near_bias"]

    def embed(self, window: Array) -> Array:
        """[n, WINDOW] tokens -> [n, WINDOW * EMBED]"""
        return self.table[window].reshape(len(window), WINDOW * EMBED)

    def read(self, x: Array) -> tuple[Array, Array]:
        """Key and value of each place, which later ones look at."""
        both = x @ self.key_value
        return both[:, :SEEN], both[:, SEEN:]

    def ask(self, x: Array) -> tuple[Array, Array]:
        """What stands at each place, and the query it looks further up with."""
        both = x @ self.near_query
        return np.maximum(both[:, :WIDTH] + self.bias, 0), both[:, WIDTH:]


def upper(w: Weights, near: Array, seen: Array) -> tuple[Array, Array, Array, Array]:
    """From what stands here and what attention saw to logits; also the layers between."""
    mixed = seen @ w["mix"]
    both = np.concatenate([near, mixed], axis=1)
    hidden = np.maximum(both @ w["hidden"] + w["hidden_bias"], 0)
    last = mixed + hidden @ w["down"]
    return last @ w["out"] + w["out_bias"], both, hidden, last


def softmax(scores: Array) -> Array:
    """In place."""
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(-1, keepdims=True)
    return scores


def log_softmax(logits: Array) -> Array:
    """In place."""
    logits -= logits.max(-1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    return logits


class Pass:
    """One forward pass over a batch, kept for the way back."""

    def __init__(self, w: Weights, batch: Batch) -> None:
        self.w, self.batch, self.lower = w, batch, Lower(w)
        rows, length = self.shape = batch.ids.shape
        padded = np.full((rows, length + WINDOW - 1), -1, batch.ids.dtype)
        padded[:, WINDOW - 1 :] = batch.ids
        window = np.lib.stride_tricks.sliding_window_view(padded, WINDOW, axis=1)
        self.window = window.reshape(-1, WINDOW)
        self.x = self.lower.embed(self.window)
        self.k, self.v = (_heads(part, rows) for part in self.lower.read(self.x))
        self.asked = batch.row * length + batch.at
        self.asked_x = self.x[self.asked]
        self.near, query = self.lower.ask(self.asked_x)
        self.start = int(batch.at.min())
        """Nobody asks before this place."""
        self.q = self._spread(query)
        scores = self.q @ self.k.swapaxes(-1, -2)
        scores *= SCALE
        scores += _recency(self.start, length)
        self.attention = softmax(scores)
        self.seen = self._gather(self.attention @ self.v)
        logits, self.both, self.hidden, self.last = upper(w, self.near, self.seen)
        self.logprobs = log_softmax(logits)
        """[asked, vocabulary]"""
        self.chosen = self.logprobs[np.arange(len(batch.target)), batch.target]
        """Log-probability of each token that came next."""

    def _spread(self, asked: Array) -> Array:
        """[asked, SEEN] -> [rows, HEADS, length - start, HEAD], zero where nobody asks."""
        rows, length = self.shape
        out = np.zeros((rows, length - self.start, SEEN), asked.dtype)
        out[self.batch.row, self.batch.at - self.start] = asked
        return out.reshape(rows, -1, HEADS, HEAD).swapaxes(1, 2)

    def _gather(self, spread: Array) -> Array:
        """The other way round."""
        flat: Array = spread.swapaxes(1, 2).reshape(len(spread), -1, SEEN)
        asked: Array = flat[self.batch.row, self.batch.at - self.start]
        return asked

    def backward(self, d_chosen: Array) -> Weights:
        """Gradients of sum(d_chosen * chosen) with respect to the weights."""
        w, batch = self.w, self.batch
        d_logits = np.exp(self.logprobs)
        d_logits *= -d_chosen[:, None]
        d_logits[np.arange(len(batch.target)), batch.target] += d_chosen
        d_last = d_logits @ w["out"].T
        d_hidden = (d_last @ w["down"].T) * (self.hidden > 0)
        d_both = d_hidden @ w["hidden"].T
        d_mixed = d_both[:, WIDTH:] + d_last
        d_query, d_key_value = self._attention_backward(d_mixed @ w["mix"].T)
        d_near_query = np.concatenate([d_both[:, :WIDTH] * (self.near > 0), d_query], axis=1)
        near_query = self.asked_x.T @ d_near_query
        key_value = self.x.T @ d_key_value
        d_x = d_key_value @ self.lower.key_value.T
        d_x[self.asked] += d_near_query @ self.lower.near_query.T
        return {
            "embed": self._embed_backward(d_x),
            "near": near_query[:, :WIDTH],
            "near_bias": d_near_query[:, :WIDTH].sum(0),
            "query": near_query[:, WIDTH:],
            "key": key_value[:, :SEEN],
            "value": key_value[:, SEEN:],
            "mix": self.seen.T @ d_mixed,
            "hidden": self.both.T @ d_hidden,
            "hidden_bias": d_hidden.sum(0),
            "down": self.hidden.T @ d_last,
            "out": self.last.T @ d_logits,
            "out_bias": d_logits.sum(0),
        }

    def _attention_backward(self, d_seen: Array) -> tuple[Array, Array]:
        """Gradients of the queries, and of keys and values side by side."""
        d_out = self._spread(d_seen)
        d_scores = d_out @ self.v.swapaxes(-1, -2)
        d_scores -= (d_scores * self.attention).sum(-1, keepdims=True)
        d_scores *= self.attention
        d_scores *= SCALE
        d_query = self._gather(d_scores @ self.k)
        rows, length = self.shape
        d_key_value = np.empty((rows, length, 2, HEADS, HEAD), d_seen.dtype)
        d_key_value[:, :, 0] = (d_scores.swapaxes(-1, -2) @ self.q).swapaxes(1, 2)
        d_key_value[:, :, 1] = (self.attention.swapaxes(-1, -2) @ d_out).swapaxes(1, 2)
        return d_query, d_key_value.reshape(rows * length, 2 * SEEN)

    def _embed_backward(self, d_x: Array) -> Array:
        """Sum the gradients of each token's embedding: sorted by token, added in runs."""
        tokens = self.window.reshape(-1)
        order = np.argsort(tokens, kind="stable")
        tokens = tokens[order]
        starts = np.flatnonzero(np.diff(tokens, prepend=tokens[0] - 1))
        sums = np.add.reduceat(d_x.reshape(-1, EMBED)[order], starts, axis=0)
        grad = np.zeros_like(self.w["embed"])
        known = tokens[starts] >= 0
        grad[tokens[starts][known]] = sums[known]
        return grad


def _heads(flat: Array, rows: int) -> Array:
    """[rows * length, SEEN] -> [rows, HEADS, length, HEAD]"""
    return flat.reshape(rows, -1, HEADS, HEAD).swapaxes(1, 2)


def _recency(start: int, length: int) -> Array:
    """[HEADS, length - start, length]: what is added to the scores; the future is far."""
    distance = np.arange(start, length)[:, None] - np.arange(length)[None, :]
    bias = -RECENCY[:, None, None] * distance.astype(np.float32)
    return np.where(distance >= 0, bias, FAR)
