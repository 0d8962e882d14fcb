"""Compare two rollouts: paired by what they say, never by place in the list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rollscope.checks.align import align, word_diff
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
