"""What a message consists of is told from its whole text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollscope.model import Message, Part
from rollscope.model.passages import PIECE, Passage, passages

LONG = "word " * 5_000


def said(content: str | list[Part], role: str = "assistant") -> list[tuple[str, str, bool]]:
    message = Message(role=role, content=content)
    whole = content if isinstance(content, str) else "".join(part.text or "" for part in content)
    return [(p.kind, whole[p.start : p.end], p.torn) for p in passages(message)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", [("text", "plain", False)]),
        ("<think>a</think>b", [("thinking", "a", False), ("text", "b", False)]),
        ("a</think>b", [("thinking", "a", False), ("text", "b", False)]),
        ("x<think>off", [("text", "x", False), ("thinking", "off", True)]),
        ("<thinking>a</thinking>\n", [("thinking", "a", False)]),
        (f"<think>{LONG}</think>so", [("thinking", LONG, False), ("text", "so", False)]),
        ("", []),
    ],
)
def test_thoughts_stand_between_marks(text: str, expected: list[tuple[str, str, bool]]) -> None:
    assert said(text) == expected


def test_marks_that_people_write_are_text() -> None:
    text = "Think between <think> and </think>."
    assert said(text, role="user") == [("text", text, False)]


def test_parts_and_tools_say_what_they_are() -> None:
    parts = [Part(type="reasoning", text="hm"), Part(type="image"), Part(type="text", text="so")]
    assert said(parts) == [("thinking", "hm", False), ("text", "so", False)]
    assert [p.part for p in passages(Message(role="assistant", content=parts))] == [0, 2]
    assert said("<think>", role="tool") == [("output", "<think>", False)]


def pieces(passage: Passage, text: str) -> list[str]:
    ends = [*passage.cuts[1:], passage.end]
    return [text[a:b] for a, b in zip(passage.cuts, ends, strict=True)]


def test_a_long_text_is_cut_where_something_new_begins() -> None:
    text = ("a paragraph of words\n\n- an item\n\n  of a list\n\n" * 2_000).strip()
    (passage,) = passages(Message(role="assistant", content=text))
    assert all(piece.startswith("a paragraph") for piece in pieces(passage, text))


def test_a_piece_that_begins_inside_code_says_so() -> None:
    code = "x = 1\n\n" * 3_000
    text = f"Look:\n\n```python\n{code}```\n\nDone.\n\n" + "and more\n\n" * 2_000
    (passage,) = passages(Message(role="assistant", content=text))
    assert passage.fences[1] == "```python"
    for number, piece in enumerate(pieces(passage, text)):
        assert ("x = 1" in piece) == (number in passage.fences or "```python" in piece)


@given(st.text(alphabet="a\n `~-1. é🙂", min_size=0, max_size=300), st.integers(1, 200))
def test_pieces_joined_are_the_text(text: str, times: int) -> None:
    text = text * times
    for passage in passages(Message(role="assistant", content=text)):
        assert passage.cuts == sorted(set(passage.cuts))
        assert "".join(pieces(passage, text)) == text[passage.start : passage.end]
        assert all(len(piece) <= PIECE for piece in pieces(passage, text))


@pytest.mark.parametrize("line", [" " * 10, "\n", "`", "<think>", "\n" + " " * 10_000])
def test_hostile_texts_take_no_longer_than_others(line: str) -> None:
    assert passages(Message(role="assistant", content=line * (300_000 // len(line))))
