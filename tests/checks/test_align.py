"""Compare two rollouts: paired by what they say, never by place in the list."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollscope.checks import matching
from rollscope.checks.align import align, word_diff
from rollscope.checks.matching import Steps
from rollscope.model import Message, Part, Rollout, ToolCall


def rollout(*turns: tuple[str, str], **fields: object) -> Rollout:
    messages = [Message(role=role, content=text) for role, text in turns]
    return Rollout(messages=messages, **fields)  # type: ignore[arg-type]


def test_first_divergence_is_the_first_character_that_differs() -> None:
    a = rollout(("user", "2+2?"), ("assistant", "I add: 4"), ("user", "sure?"))
    b = rollout(("user", "2+2?"), ("assistant", "I add: 5"), ("user", "sure?"))
    found = align(a, b)
    assert found.divergence is not None
    assert (found.divergence.pair, found.divergence.offset) == (1, 7)
    assert [pair.same for pair in found.pairs] == [True, False, True]


def test_an_extra_turn_does_not_shift_the_later_ones() -> None:
    a = rollout(("user", "q"), ("assistant", "call"), ("tool", "42"), ("assistant", "done"))
    b = rollout(("user", "q"), ("assistant", "done"))
    assert [(p.a, p.b) for p in align(a, b).pairs] == [(0, 0), (1, None), (2, None), (3, 1)]


def test_an_answer_does_not_run_into_the_thinking_before_it() -> None:
    def thinking(answer: str) -> Rollout:
        parts = [Part(type="reasoning", text=f"so {answer}."), Part(type="text", text=answer)]
        return Rollout(messages=[Message(role="assistant", content=parts)])

    (pair,) = align(thinking("70"), thinking("60")).pairs
    assert "".join(p.text for p in pair.pieces if p.kind != "only_b") == "so 70.\n70"


def test_equal_rollouts_have_no_divergence() -> None:
    a = rollout(("user", "q"), ("assistant", "x"), reward=float("nan"))
    assert align(a, a).divergence is None
    assert align(a, a).fields == []


def test_tool_calls_count_as_text() -> None:
    def calling(argument: str) -> Rollout:
        call = ToolCall(name="search", arguments={"q": argument})
        return Rollout(messages=[Message(role="assistant", tool_calls=[call])])

    found = align(calling("cats"), calling("dogs"))
    assert [p.text for p in found.pairs[0].pieces if p.kind != "same"] == ["cats", "dogs"]


def test_fields_are_listed_and_missing_stays_missing() -> None:
    a = rollout(reward=1.0, rewards={"format": 1.0})
    b = rollout(reward=0.0, rewards={})
    assert [(d.name, d.a, d.b) for d in align(a, b).fields] == [
        ("reward", 1.0, 0.0),
        ("rewards.format", 1.0, None),
    ]


@given(st.text("ab \n", max_size=60), st.text("ab \n", max_size=60))
def test_pieces_give_back_both_texts(a: str, b: str) -> None:
    pieces = word_diff(a, b)
    assert "".join(p.text for p in pieces if p.kind != "only_b") == a
    assert "".join(p.text for p in pieces if p.kind != "only_a") == b


def test_a_very_long_text_is_compared_by_lines_first() -> None:
    a = "\n".join(f"line {i} of the text" for i in range(5000))
    b = a.replace("line 2500 of", "line 2500 in").replace("line 9 ", "row 9 ")
    pieces = word_diff(a, b)
    assert [p.text for p in pieces if p.kind == "only_a"] == ["line", "of"]


def test_two_long_lines_are_compared_by_their_words() -> None:
    same = "Every word of it is the same. " * 1_800
    steps = Steps(100_000)
    pieces = word_diff(
        f"One way.\n{same}and alpha. {same}", f"No way.\n{same}and beta. {same}", steps
    )
    assert [p.text for p in pieces if p.kind == "only_a"] == ["One", "alpha"]
    assert not steps.ran_out


def test_a_blob_is_compared_by_its_ends() -> None:
    pieces = word_diff("QUJD" * 50_000, "QUJD" * 20_000 + "x" + "QUJD" * 30_000)
    assert [(p.kind, len(p.text)) for p in pieces] == [
        ("same", 80_000),
        ("only_b", 1),
        ("same", 120_000),
    ]


def test_passages_with_nothing_in_common_differ_as_a_whole() -> None:
    a = "the " + " ".join(f"alpha{i}" for i in range(200))
    b = "the " + " ".join(f"beta{i}" for i in range(200))
    assert [p.kind for p in word_diff(a, b)] == ["same", "only_a", "only_b"]


def test_a_comparison_that_would_take_too_long_says_that_it_is_rough() -> None:
    def saying(seed: int) -> Rollout:
        chance = random.Random(seed)
        return rollout(("assistant", "So: " + " ".join(chance.choices("abcdef", k=20_000))))

    (pair,) = align(saying(1), saying(2)).pairs
    assert pair.rough
    assert pair.pieces[0].kind == "same"
    assert pair.pieces[0].text.startswith("So: ")
    assert not align(saying(1), saying(1)).pairs[0].rough


_units = st.lists(st.integers(0, 5), max_size=14)


@given(_units, _units, st.sampled_from((0, 3, 200)), st.sampled_from((3, 10_000)))
def test_matching_finds_as_much_as_there_is(
    a: list[int], b: list[int], cheap: int, steps: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "_CHEAP", cheap)
        blocks = list(matching.matching(a, b, Steps(steps)))
    i = j = 0
    for x, y, size in blocks:
        assert x >= i
        assert y >= j
        assert a[x : x + size] == b[y : y + size] != []
        i, j = x + size, y + size
    if (cheap, steps) == (200, 10_000):
        assert sum(size for *_, size in blocks) == _longest(a, b)


def _longest(a: list[int], b: list[int]) -> int:
    """The textbook's longest common subsequence."""
    before = [0] * (len(b) + 1)
    for x in a:
        now = [0]
        for j, y in enumerate(b):
            now.append(before[j] + 1 if x == y else max(now[j], before[j + 1]))
        before = now
    return before[-1]
