"""Token ids to text, with the end of every token in it.

A token is a piece of bytes, not of text: one character may be spread over several tokens
(emoji, Chinese in small vocabularies). Tokens that share a character all end after it.

Byte-level tokenizers (GPT-2's scheme: Qwen, Llama 3, DeepSeek, ...) are decoded piece by
piece from a table. A piece that is whole text is compared with the tokenizer's own when it is met,
a part of a character when a row with it is. Everything else that has a `decode` is asked for
growing windows of ids. If the pieces do not add up to the tokenizer's own text, the ends are not
known: they are left out, never guessed.

This runs in the trainer's interpreter. So what is done for each token is done by functions of C,
and of NumPy if the trainer has loaded it.

The trainer's tokenizer is never used, only a copy of it: Hugging Face's fast tokenizers raise
"Already borrowed" in whichever thread changes a setting while another one decodes, and that
would be the trainer's.
"""

from __future__ import annotations

import codecs
import copy
import sys
import weakref
from array import array
from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Any, NamedTuple


class Decoded(NamedTuple):
    """The text of a row of ids, and the end of each token in it. None: not known."""

    text: str
    ends: Any
    """A list of whole numbers, or an array of NumPy."""


def decode(tokenizer: Any, ids: Sequence[int], row: Any = None) -> Decoded:
    """The whole text of `ids`, special tokens included, as the tokenizer itself gives it. `row` are
    the same ids as an array of NumPy, if there is one."""
    if not len(ids):
        return Decoded("", [])
    tokenizer = own(tokenizer)
    table = _table(tokenizer)
    proven = table.decode(ids, row) if table is not None else None
    if proven is not None:
        return proven
    text = _text(tokenizer, ids)
    if table is not None:
        joined, ends = join_pieces(table.pieces(ids))
        if joined == text:
            table.prove(ids)
            return Decoded(text, ends)
    return Decoded(text, _window_ends(tokenizer, ids, text))


_copies: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
_ours: weakref.WeakSet[Any] = weakref.WeakSet()


def own(tokenizer: Any) -> Any:
    """Our copy of the trainer's tokenizer, made once; the original if it cannot be copied."""
    try:
        if tokenizer in _ours:
            return tokenizer
        if tokenizer not in _copies:
            _copies[tokenizer] = copy.deepcopy(tokenizer)
            _ours.add(_copies[tokenizer])
        return _copies[tokenizer]
    except Exception:
        return tokenizer


def join_pieces(pieces: Sequence[bytes]) -> tuple[str, list[int]]:
    """The text that byte pieces make together, and the end of each piece in characters."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    ends: list[int] = []
    length = 0
    begun = 0  # characters that a beginning of one makes if nothing follows it
    for piece in pieces:
        width = -1 if begun else _widths.get(piece, -2)
        if width == -2:
            width = _width(piece)
        if width < 0:  # only a part of some character, or no UTF-8 at all
            length += len(decoder.decode(piece))
            # Bytes that can become no character are kept back, too: they are one each.
            begun = len(decoder.getstate()[0].decode("utf-8", "replace"))
            ends.append(length + begun)  # it counts as this token's
        else:
            length += width
            ends.append(length)
    return b"".join(pieces).decode("utf-8", "replace"), ends


_widths: dict[bytes, int] = {}
"""How many characters a piece is by itself: almost every token of a real vocabulary is whole."""


def _width(piece: bytes) -> int:
    try:
        width = len(piece.decode())
    except UnicodeDecodeError:
        width = -1
    if len(_widths) < 1_000_000:
        _widths[piece] = width
    return width


def _text(tokenizer: Any, ids: Sequence[int]) -> str:
    try:
        return str(
            tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        )
    except TypeError:  # not Hugging Face's signature
        return str(tokenizer.decode(ids))


# -- byte-level tokenizers -------------------------------------------------------------


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's: printable bytes stand for themselves, the others for 256 and up."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    table = {chr(b): b for b in shown}
    return table | {chr(256 + i): b for i, b in enumerate(hidden)}


_BYTES = _byte_alphabet()


class _Table:
    """The bytes of the tokens of one byte-level tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._token_of = tokenizer.convert_ids_to_tokens
        self._is_plain = all(
            getattr(type(tokenizer), name).__module__.startswith("transformers.tokenization_")
            for name in ("decode", "_decode")
        )
        """It decodes as Hugging Face does, a row like its pieces."""
        self._pieces: dict[int, bytes] = {}
        size = len(tokenizer) if self._is_plain else 0
        np = sys.modules.get("numpy")
        self._proven: Any = [None] * size if np is None else np.full(size, None)
        """The pieces that are proven, by the id of their token."""
        self._begun = array("i", bytes(4 * size))
        """How many characters begin in each of them."""

    def pieces(self, ids: Collection[int]) -> list[bytes]:
        for new in set(ids) - self._pieces.keys():
            token = self._token_of(int(new))
            self._pieces[new] = b"" if token is None else _token_bytes(token)
        return [self._pieces[i] for i in ids]

    def prove(self, ids: Collection[int]) -> None:
        """The tokenizer made the same text of this row. None of its pieces is doubted any more."""
        for new in self._unproven(ids):
            piece = self._pieces[new]
            self._begun[new] = sum(byte & 0xC0 != 0x80 for byte in piece)
            self._proven[new] = piece

    def _unproven(self, ids: Collection[int]) -> list[int]:
        size, proven = len(self._proven), self._proven
        return [i for i in set(ids) if 0 <= i < size and proven[i] is None]

    def _prove_new(self, ids: Collection[int]) -> None:
        """Prove those pieces of a row that are whole text, by themselves: the rest of the row need
        not be decoded for them. Of a part of a character that would prove nothing."""
        new = self._unproven(ids)
        whole = [i for i, piece in zip(new, self.pieces(new), strict=True) if _width(piece) >= 0]
        if whole and _text(self._tokenizer, whole) == b"".join(self.pieces(whole)).decode():
            self.prove(whole)

    def decode(self, ids: Sequence[int], row: Any) -> Decoded | None:
        """None if a piece is not proven, or if they make no text."""
        np = None if type(self._proven) is list else sys.modules["numpy"]
        if np is not None and row is None:
            try:
                row = np.array(ids, "i4")
            except (TypeError, OverflowError):
                return None
        if (min(ids) if np is None else row.min()) < 0:  # no id, but a place in a list
            return None
        text = self._proven_text(ids if np is None else row)
        if text is None:
            self._prove_new(ids)
            text = self._proven_text(ids if np is None else row)
        if text is None:
            return None
        if np is None:
            return Decoded(text, list(accumulate(map(self._begun.__getitem__, ids))))
        return Decoded(text, np.frombuffer(self._begun, "i4").take(row).cumsum(dtype="i4"))

    def _proven_text(self, ids: Any) -> str | None:
        proven = self._proven
        try:
            # Of an array, NumPy looks them up three times as fast.
            found = [proven[i] for i in ids] if type(proven) is list else proven[ids].tolist()
            return b"".join(found).decode()
        except (IndexError, TypeError, UnicodeDecodeError):
            return None


_tables: weakref.WeakKeyDictionary[Any, _Table] = weakref.WeakKeyDictionary()


def _table(tokenizer: Any) -> _Table | None:
    """The table of this tokenizer, or None if it does not work in bytes."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or type(getattr(backend, "decoder", None)).__name__ != "ByteLevel":
        return None
    try:
        if tokenizer not in _tables:
            _tables[tokenizer] = _Table(tokenizer)
        return _tables[tokenizer]
    except TypeError:  # cannot be referenced weakly
        return _Table(tokenizer)


def _token_bytes(token: str) -> bytes:
    try:
        return bytes(_BYTES[c] for c in token)
    except KeyError:  # an added token: its text is meant literally
        return token.encode("utf-8", "replace")


# -- anything with a decode() ----------------------------------------------------------


def _window_ends(tokenizer: Any, ids: Sequence[int], text: str) -> list[int] | None:
    """Ends by decoding a window that begins one complete piece before the newest token.

    Decoding a token alone would lose the space that many tokenizers put before a word.
    """
    ends: list[int] = []
    begin = done = 0  # where the window begins; how many tokens are settled
    before = built = ""  # text of ids[begin:done] in this window; text of ids[:done]
    for i in range(len(ids)):
        window = _text(tokenizer, ids[begin : i + 1])
        new = window[len(before) :]
        # U+FFFD at the end is half a character, unless it really stands in the text.
        half = new.endswith("\ufffd") and not text.startswith(new, len(built))
        if half or not window.startswith(before):
            continue
        built += new
        ends += [len(built)] * (i + 1 - len(ends))
        if new:
            begin = done
        done = i + 1
        before = _text(tokenizer, ids[begin:done])
    if not text.startswith(built) or (done == len(ids) and built != text):
        return None
    return ends + [len(text)] * (len(ids) - done)
