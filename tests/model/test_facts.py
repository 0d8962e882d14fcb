"""Late facts: folded the same whatever order they arrive in, and never by guessing."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rollscope.model import Error, Fact, Message, Rollout, Tokens, fold, tags


def fact(name: str, value: Any = None, **more: Any) -> tuple[Fact, str]:
    writer = more.pop("writer", "w")
    return Fact(rollout="r", name=name, value=value, **more), writer


def test_any_fact_wins_over_the_rollouts_own_value() -> None:
    own = Rollout(id="r", reward=0.0, time=100.0)
    assert fold(own, [fact("reward", 1.0, time=1.0)]).reward == 1.0
    assert own.reward == 0.0, "the rollout itself is left alone"


def test_null_never_overrides() -> None:
    assert fold(Rollout(reward=0.5), [fact("reward", None, time=1.0)]).reward == 0.5


def test_the_last_by_time_then_writer_then_number_wins() -> None:
    facts = [
        fact("reward", 1.0, time=5.0, writer="a", n=9),
        fact("reward", 2.0, time=5.0, writer="b", n=1),
        fact("reward", 3.0, time=5.0, writer="b", n=2),
        fact("reward", 4.0, time=4.0, writer="z", n=9),
    ]
    assert fold(Rollout(), facts).reward == 3.0


def test_rewards_merge_by_name() -> None:
    got = fold(
        Rollout(rewards={"a": 1.0, "b": 2.0}), [fact("rewards.b", 5.0), fact("rewards.c", 6.0)]
    )
    assert got.rewards == {"a": 1.0, "b": 5.0, "c": 6.0}


def test_fate_goes_forward_only() -> None:
    facts = [fact("fate", "trained", time=1.0), fact("fate", "scored", time=2.0)]
    assert fold(Rollout(fate="generated"), facts).fate == "trained"
    assert fold(Rollout(fate="dropped"), [fact("fate", "scored", time=9.0)]).fate == "dropped"
    late = [fact("fate", "trained", time=1.0), fact("fate", "masked", time=2.0)]
    assert fold(Rollout(), late).fate == "masked", "of two ends the later holds"


def test_an_error_becomes_a_record_again() -> None:
    got = fold(Rollout(), [fact("error", {"kind": "tool", "text": "timeout"})])
    assert got.error == Error(kind="tool", text="timeout")


def test_labels_can_be_taken_back() -> None:
    facts = [
        fact("label.good", True, time=1.0),
        fact("label.hack", True, time=1.0),
        fact("label.good", False, time=2.0),
    ]
    assert tags(facts, "label") == ["hack"]


def _with_tokens() -> Rollout:
    return Rollout(
        messages=[
            Message(role="user", content="ab", tokens=Tokens([1, 2])),
            Message(role="tool", content="no tokens"),
            Message(role="assistant", content="cde", tokens=Tokens([3, 4, 5])),
        ]
    )


def test_a_stream_is_laid_over_all_tokens_of_the_rollout() -> None:
    got = fold(_with_tokens(), [fact("tokens.advantage", stream=[None, None, 1.0, 2.0, 3.0])])
    assert [m.tokens and m.tokens.advantage for m in got.messages] == [None, None, [1.0, 2.0, 3.0]]


def test_a_stream_may_be_about_one_message() -> None:
    got = fold(_with_tokens(), [fact("tokens.entropy", stream=[1, 2, 3], message=2)])
    assert got.messages[2].tokens is not None
    assert got.messages[2].tokens.entropy == [1.0, 2.0, 3.0]


def test_a_stream_of_the_wrong_length_is_left_out_never_shifted() -> None:
    got = fold(_with_tokens(), [fact("tokens.advantage", stream=[1.0, 2.0, 3.0])])
    assert got == _with_tokens()


_FACTS = st.lists(
    st.tuples(
        st.builds(
            Fact,
            rollout=st.just("r"),
            name=st.sampled_from(["reward", "fate", "rewards.a", "meta.k", "label.x"]),
            value=st.sampled_from([None, "scored", "trained", "dropped", 1.0, 2.0]),
            time=st.sampled_from([1.0, 2.0]),
            n=st.integers(0, 3),
        ),
        st.sampled_from(["a", "b"]),
    ),
    max_size=8,
    unique_by=lambda pair: (pair[0].time, pair[1], pair[0].n),
)


@given(_FACTS, st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(
    facts: list[tuple[Fact, str]], shuffle: random.Random
) -> None:
    other = list(facts)
    shuffle.shuffle(other)
    assert fold(Rollout(fate="generated"), facts) == fold(Rollout(fate="generated"), other)
    assert tags(facts, "label") == tags(other, "label")
