"""Text survives the tokenizer, and every token knows where its text ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rollscope.demo import warmup
from rollscope.demo.tokenizer import Tokenizer

TOKENIZER = warmup.tokenizer(0)
BYTES = Tokenizer(bytes(range(256)), [])


def test_examples_survive() -> None:
    text = "Zoë fills 6 boxes with 7 eggs each. 6×7=42. 42+13: units 2+3=5, tens 4+1=5, so 55."
    assert TOKENIZER.decode(TOKENIZER.encode(text))[0] == text


def test_digits_stand_alone() -> None:
    pieces = [TOKENIZER.tokens[i] for i in TOKENIZER.encode("12 eggs and 345 pens")]
    assert [p for p in pieces if p.strip().isdigit()] == [b"1", b"2", b"3", b"4", b"5"]


def test_words_are_one_token() -> None:
    assert len(TOKENIZER.encode(" euros")) == 1


def test_tokens_that_complete_a_character_together_end_together() -> None:
    assert BYTES.decode("aë×z".encode()) == ("aë×z", [1, 2, 2, 3, 3, 4])


@given(st.lists(st.integers(0, len(TOKENIZER) - 1)))
def test_whatever_a_policy_writes_is_text_with_ends(ids: list[int]) -> None:
    text, ends = TOKENIZER.decode(ids)
    assert len(ends) == len(ids)
    assert ends == sorted(ends)
    assert all(0 <= end <= len(text) for end in ends)
    assert not ids or ends[-1] == len(text)


@given(st.binary())
def test_bytes_that_are_no_text_are_read_as_python_reads_them(data: bytes) -> None:
    text, ends = BYTES.decode(data)
    assert text == data.decode("utf-8", "replace")
    assert ends == sorted(ends) and (not data or ends[-1] == len(text))
