"""A small byte-level BPE tokenizer, trained when the demo starts.

Every byte of the training text is a token; merges make whole words of those that stand
together often. Digits are never merged: the policy reads and writes numbers digit by digit.
Some tokens have no text: they mark who speaks, where a turn ends and where the thinking
stands.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from rollscope.adapters._decode import join_pieces

SPECIAL = (
    "<pad>", "<system>", "<user>", "<assistant>", "<tool>", "<think>", "<answer>", "<end>",
    "<call>",
)  # fmt: skip
"""Tokens without text. A turn of the policy ends with `<end>` (it is done) or `<call>` (the
text just written is a call of a tool)."""

# A word takes the space before it, and the one after it when a digit follows, so that digits
# are always single tokens.
_PIECES = re.compile(r" ?[^\W\d_]+(?: (?=\d))?|\d| ?[^\w\s]+(?: (?=\d))?|\s+|_")


class Tokenizer:
    """Text to ids and back.

    >>> t = Tokenizer.train(["seven apples and seven pears"] * 3, size=30)
    >>> t.decode(t.encode("seven pears"))
    ('seven pears', [5, 6, 8, 9, 11])
    """

    def __init__(self, alphabet: bytes, merges: list[tuple[bytes, bytes]]) -> None:
        self._rank = {pair: rank for rank, pair in enumerate(merges)}
        self.tokens = [bytes([b]) for b in alphabet] + [a + b for a, b in merges]
        self._ids = {token: i for i, token in enumerate(self.tokens)}
        self.special = {name: len(self.tokens) + i for i, name in enumerate(SPECIAL)}
        self.tokens += [b""] * len(SPECIAL)
        self._piece = lru_cache(maxsize=65536)(self._encode_piece)

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> Tokenizer:
        """Merge the commonest pair of neighbours until there are `size` tokens in all."""
        words = Counter(piece for text in texts for piece in _PIECES.findall(text))
        alphabet = bytes(sorted({b for word in words for b in word.encode()}))
        split = {word: [bytes([b]) for b in word.encode()] for word in words}
        merges: list[tuple[bytes, bytes]] = []
        while len(merges) < size - len(alphabet) - len(SPECIAL):
            pairs: Counter[tuple[bytes, bytes]] = Counter()
            for word, parts in split.items():
                for pair in itertools.pairwise(parts):
                    pairs[pair] += words[word]
            if not pairs:
                break
            best = max(pairs, key=lambda pair: (pairs[pair], pair))
            merges.append(best)
            for word, parts in split.items():
                if len(parts) > 1:
                    split[word] = _merged(parts, best)
        return cls(alphabet, merges)

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> list[int]:
        return [i for piece in _PIECES.findall(text) for i in self._piece(piece)]

    def _encode_piece(self, piece: str) -> tuple[int, ...]:
        parts = [bytes([b]) for b in piece.encode()]
        while len(parts) > 1:
            best = min(itertools.pairwise(parts), key=lambda p: self._rank.get(p, len(self._rank)))
            if best not in self._rank:
                break
            parts = _merged(parts, best)
        return tuple(self._ids[part] for part in parts)

    def decode(self, ids: Iterable[int]) -> tuple[str, list[int]]:
        """The text, and for each token the end of its text in characters.

        Tokens that only complete a character together have the same end. Bytes that are no
        text (a policy may write anything) become U+FFFD.
        """
        return join_pieces([self.tokens[i] for i in ids])


def _merged(parts: list[bytes], pair: tuple[bytes, bytes]) -> list[bytes]:
    out: list[bytes] = []
    i = 0
    while i < len(parts):
        if i + 1 < len(parts) and (parts[i], parts[i + 1]) == pair:
            out.append(parts[i] + parts[i + 1])
            i += 2
        else:
            out.append(parts[i])
            i += 1
    return out
