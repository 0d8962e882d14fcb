"""Encoding is a snapshot: faithful, and independent of what the trainer does afterwards."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollscope.model import Fact, Message, Part, Rollout, Span, Tokens, ToolCall, wire
from rollscope.model.arrays import _one_by_one, array_json


def decoded(rollout: Rollout, problems: list[str] | None = None) -> Any:
    return json.loads(wire.rollout_line(rollout, problems=problems).encode())["rollout"]


def test_arrays_are_copied_at_call_time() -> None:
    ids, mask = np.arange(3), [1, 1, 0]
    message = Message(role="assistant", content="abc", tokens=Tokens(ids, mask=mask))
    line = wire.rollout_line(Rollout(id="r", messages=[message]))
    ids[:] = 9
    mask[0] = 9
    tokens = json.loads(line.encode())["rollout"]["messages"][0]["tokens"]
    assert tokens == {"ids": [0, 1, 2], "mask": [1, 1, 0]}


def test_non_finite_numbers_are_kept_not_nulled() -> None:
    got = decoded(Rollout(reward=math.nan, rewards={"a": -math.inf}, advantage=math.inf))
    assert got == {"reward": "NaN", "rewards": {"a": "-Infinity"}, "advantage": "Infinity"}


def test_absent_is_not_written() -> None:
    assert decoded(Rollout(id="r")) == {"id": "r"}


def test_parts_are_written_once() -> None:
    parts = [
        Part(type="reasoning", text="hm"),
        Part(type="image", image="u"),
        Part(type="text", text="x"),
    ]
    message = decoded(Rollout(messages=[Message(role="assistant", content=parts)]))["messages"][0]
    assert message["content"] == "hmx"
    assert message["parts"] == [
        {"type": "reasoning", "end": 2},
        {"type": "image", "image": "u"},
        {"type": "text", "end": 3},
    ]
    assert wire.join_parts(message["content"], message["parts"]) == parts


def test_what_cannot_be_stored_is_named() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    problems: list[str] = []
    got = decoded(Rollout(meta={"ok": 1, "self": cycle, "odd": object()}), problems)
    assert got["meta"]["ok"] == 1
    assert [p.split(":")[0] for p in problems] == ["meta.self", "meta.odd"]


LONG = "null and void " * 400


@pytest.mark.parametrize(
    ("rollout", "where"),
    [
        (Rollout(reward=math.nan), ("reward",)),
        (Rollout(meta={"loss": [1.0, math.nan]}), ("meta", "loss", 1)),
        (Rollout(spans=[Span(name="s", start=math.nan)]), ("spans", 0, "start")),
    ],
)
def test_nan_is_found_around_long_texts(rollout: Rollout, where: tuple[str | int, ...]) -> None:
    rollout.messages = [Message(role="user", content=LONG), Message(role="tool", content=LONG)]
    got: Any = decoded(rollout)
    for name in where:
        got = got[name]
    assert got == "NaN"


@pytest.mark.parametrize(
    "message",
    [
        Message(role="user", reward=math.nan),
        Message(role="user", state={"x": [math.nan]}),
        Message(role="user", meta={"x": math.nan}),
        Message(role="user", tool_calls=[ToolCall(name="f", arguments={"x": math.nan})]),
    ],
)
def test_nan_is_found_between_long_texts(message: Message) -> None:
    text = Message(role="user", content=LONG)
    got = decoded(Rollout(messages=[text, message, text]))
    assert '"NaN"' in json.dumps(got["messages"][1])


def test_streams_of_facts_keep_missing_and_nan_apart() -> None:
    fact = Fact(rollout="r", name="tokens.advantage", stream=[1.0, None, math.nan])
    line = wire.facts_line([fact]).encode()
    assert json.loads(line)["facts"][0]["stream"] == [1.0, None, "NaN"]


def test_numbers_of_numpy_are_written_as_numbers() -> None:
    got = decoded(
        Rollout(
            step=np.int64(3),  # type: ignore[arg-type]
            index=np.float64(2.0),  # type: ignore[arg-type]
            reward=np.float32(0.5),  # type: ignore[arg-type]
            advantage=np.float64("nan"),
            truncated=np.bool_(True),  # type: ignore[arg-type]
            rewards={"a": np.float64(1.5), "b": 2.0},
        )
    )
    assert got == {
        "step": 3,
        "index": 2,
        "reward": 0.5,
        "advantage": "NaN",
        "truncated": True,
        "rewards": {"a": 1.5, "b": 2.0},
    }


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, 1e-8, -3.25e20, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 1000])
def test_a_stream_of_one_number_is_written_as_any_other(value: float, count: int) -> None:
    numbers = np.full(count, value, np.float32)
    assert np.array_equal(written(numbers), numbers, equal_nan=True)
    if count:
        numbers[count // 2] = -0.0 if value == 0 else 7
        assert written(numbers).tobytes() == numbers.tobytes() or value != value


@pytest.mark.parametrize("kind", ["i1", "u1", "<i4", ">i4", "i8", "u8", "f4", "?"])
@pytest.mark.parametrize("numbers", [[], [1], [1, 1, 1], [0, 1, 1, 0], [1, 0, 0, 0]])
def test_whole_numbers_of_any_kind_are_written_as_they_are(kind: str, numbers: list[int]) -> None:
    assert json.loads(array_json(np.array(numbers, kind), True)) == numbers


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "i4", "i8"])
@pytest.mark.parametrize("name", ["logprob", "version"])
def test_what_a_masked_array_hides_is_missing(kind: str, name: str) -> None:
    values = np.ma.array(np.array([7, 1, 2], kind), mask=[True, False, False])
    line = wire.facts_line(
        [Fact(rollout="a", name=f"tokens.{name}", value=None, time=1.0, stream=values)]
    )
    values[:] = 9  # the trainer goes on
    (written,) = json.loads(line.encode())["facts"]
    assert written["stream"] == [None, 1, 2]
    odd = np.ma.array([np.nan, np.nan, np.inf], mask=[True, False, False])
    assert json.loads(array_json(odd, False)) == [None, "NaN", "Infinity"]


odd_numbers = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.floats(width=32)
)


@given(st.lists(odd_numbers, max_size=6) | st.lists(st.none() | st.floats(), max_size=6))
def test_a_tuple_is_written_as_if_its_numbers_were_taken_one_by_one(numbers: list[Any]) -> None:
    for whole in (True, False):
        try:
            expected = json.loads(_one_by_one(tuple(numbers), whole))
        except (TypeError, ValueError, OverflowError):
            continue  # not a column of whole numbers
        found = json.loads(array_json(tuple(numbers), whole))
        assert [v if v is None or whole else np.float32(v).tobytes() for v in found] == [
            v if v is None or whole else np.float32(v).tobytes() for v in expected
        ]


def test_a_token_id_that_is_too_large_is_written_as_it_is() -> None:
    assert json.loads(array_json(np.array([5, 2**40]), True)) == [5, 2**40]


def written(numbers: Any) -> Any:
    return np.array([float(v) for v in json.loads(array_json(numbers, False))], np.float32)


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_a_gap_of_a_table_where_text_belongs_is_a_gap(odd: Any) -> None:
    assert decoded(Rollout(task=odd)).get("task") is None
    assert decoded(Rollout(task=odd, meta={"a set": {1}})).get("task") is None  # the slow path


class Indexed:
    """Looks like a mapping and is none, as a tensor does."""

    def __getitem__(self, place: int) -> int:
        return [1, 2][place]

    def tolist(self) -> list[int]:
        return [1, 2]


def test_an_object_that_looks_like_a_mapping_costs_nothing_else() -> None:
    assert decoded(Rollout(task="t", meta={"t": Indexed()})) | {"id": None, "time": None} == {
        "task": "t", "meta": {"t": [1, 2]}, "id": None, "time": None,
    }  # fmt: skip


def test_json_deeper_than_the_fast_path_looks_is_written_as_it_is() -> None:
    deep: Any = math.nan
    for _ in range(12):
        deep = {"next": deep}
    written = decoded(Rollout(meta=deep))["meta"]
    for _ in range(12):
        written = written["next"]
    assert written == "NaN"
