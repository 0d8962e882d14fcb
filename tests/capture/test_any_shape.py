"""Whatever `log` takes, `get` gives back; what the format cannot hold is told by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rollscope
from rollscope import Error, Message, Rollout, Span, Tokens
from rollscope.cli import main
from rollscope.model import Part, ToolCall
from rollscope.store.seal.segment import seal

from . import reading

NAME = {"function": {"name": "add", "arguments": '{"a": 1}'}, "id": "c1", "type": "function"}


def back(store: Path, rollout: Any, **init: Any) -> tuple[Rollout, str]:
    """The rollout as it is read back, live and sealed, and what was told."""
    run = rollscope.init(project="p", run="r", **init)
    (id,) = run.log(rollout)
    run.finish()
    assert run.counters.dropped == {}
    live = rollscope.open(store).get(id)
    for log in list(store.rglob("live/*.zst")):
        seal(log.parents[1], log.name.removesuffix(".jsonl.zst"))
    assert rollscope.open(store).get(id) == live
    told = [p.text for info in reading.infos(store) for p in info.problems]
    return live, "\n".join(told)


@pytest.mark.parametrize("redact", [None, ["email"]])
def test_parts_and_calls_are_taken_as_people_write_them(own_store: Path, redact: Any) -> None:
    image = {"type": "image_url", "image_url": {"url": "u"}}
    parts: Any = [{"type": "text", "text": "what is "}, "this?", image]
    calls: Any = [NAME, ToolCall(id="c2", name="sub"), "not a call", 7]
    got, told = back(
        own_store,
        Rollout(
            messages=[
                Message(role="user", content=parts),
                Message(role="assistant", content="ok", tool_calls=calls),
                Message(role="user", content={"type": "text", "text": "one"}),  # type: ignore[arg-type]
            ]
        ),
        redact=redact,
    )
    assert got.messages[0].content == [
        Part(type="text", text="what is "),
        Part(type="text", text="this?"),
        Part(type="image", image="u"),
    ]
    assert got.messages[1].tool_calls == [
        ToolCall(id="c1", name="add", arguments='{"a": 1}'),
        ToolCall(id="c2", name="sub"),
        ToolCall(arguments="not a call"),
        ToolCall(arguments=7),
    ]
    assert got.messages[2].content == [Part(type="text", text="one")]
    assert got.task is not None, "a hash of the prompt"
    assert told == ""


def test_a_dict_is_a_rollout(own_store: Path) -> None:
    got, told = back(
        own_store,
        {
            "task": "t",
            "reward": 1,
            "messages": [{"role": "user", "content": "hi"}],
            "error": {"kind": "tool", "text": "late"},
            "spans": [{"name": "s", "start": 1.0, "seed": 7}],
            "meta": {"lang": "zh"},
            "difficulty": "hard",
        },
    )
    assert (got.task, got.reward, got.messages[0].content) == ("t", 1.0, "hi")
    assert got.error == Error(kind="tool", text="late")
    assert got.spans == [Span(name="s", start=1.0, meta={"seed": 7})]
    assert got.meta == {"lang": "zh", "difficulty": "hard"}
    assert told == ""


TWO = (Message(role="user"), Message(role="user", parent=7))
WHOLE = ("step", "trained_step", "index", "attempt", "policy_version")


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize(
    ("given", "kept"),
    [(3.0, 3), ("12", 12), (2**63 - 1, 2**63 - 1), (-(2**63), -(2**63)), (True, 1),
     (3.7, None), ("abc", None), (2**63, None), (2**64, None), (2**70, None), ([1], None)],
)  # fmt: skip
def test_a_whole_number_is_kept_exactly_or_told(
    own_store: Path, name: str, given: Any, kept: int | None
) -> None:
    got, told = back(own_store, Rollout(task="t", **{name: given}))
    assert getattr(got, name) == kept
    assert (f"{name}: expected a whole number" in told) == (kept is None)
    if kept is not None:
        assert rollscope.open(own_store).rollouts(f"{name}:{kept}").count() == 1


@pytest.mark.parametrize(
    ("rollout", "told_of"),
    [
        (Rollout(reward="good"), "reward"),  # type: ignore[arg-type]
        (Rollout(rewards={"a": "good", "b": 1}), "rewards.a"),  # type: ignore[dict-item]
        (Rollout(rewards=[1.0]), "rewards"),  # type: ignore[arg-type]
        (Rollout(messages=[Message(role="user", reward="x")]), "message.reward"),  # type: ignore[arg-type]
        (Rollout(messages=[Message(role="user", parent="x")]), "message.parent"),  # type: ignore[arg-type]
        (Rollout(messages=[*TWO]), "messages[1].parent"),
        (Rollout(spans=[Span(name="s", start="x")]), "span.start"),  # type: ignore[arg-type]
        (Rollout(meta=[1]), "meta"),  # type: ignore[arg-type]
    ],
)
def test_what_a_column_cannot_hold_is_told(own_store: Path, rollout: Rollout, told_of: str) -> None:
    rollout.task = "t"
    got, told = back(own_store, rollout)
    assert got.task == "t"
    assert f"{told_of}: " in told


@pytest.mark.parametrize("other", [1, {1, 2}])  # the fast way and the slow one
@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**64, 10**40, -(2**63) - 1])
def test_whole_numbers_of_any_size_are_numbers_in_free_json(
    own_store: Path, tmp_path: Path, number: int, other: Any
) -> None:
    got, told = back(own_store, Rollout(task="t", meta={"big": number, "other": other}))
    assert got.meta["big"] == number
    assert told == ""
    for name in ("jsonl", "parquet"):
        assert main(["export", name, "--out", str(tmp_path / name)]) == 0
    assert f'"big":{number}' in (tmp_path / "jsonl").read_text().replace(" ", "")


WORDS: Any = st.text(max_size=8)
ODD: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)


def odd_fields(record: Any, *without: str) -> Any:
    names = [name for name in record.__struct_fields__ if name not in without]
    return st.dictionaries(st.sampled_from(names), ODD, max_size=4)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    fields=odd_fields(Rollout, "id", "key", "messages", "spans"),
    message=odd_fields(Message, "role", "tokens"),
    call=ODD,
)
def test_any_value_in_any_field_is_read_back_or_told(
    tmp_path_factory: pytest.TempPathFactory, fields: Any, message: Any, call: Any
) -> None:
    store = tmp_path_factory.mktemp("store")
    run = rollscope.init(project="p", run="r", dir=store)
    odd = Message(**{"role": "assistant", "tool_calls": [call], **message})
    (id,) = run.log(Rollout(**{**fields, "messages": [odd, Message(role="user", content="hi")]}))
    run.finish()
    if run.counters.recorded:
        assert rollscope.open(store).get(id).messages[-1].content == "hi"
    else:
        assert sum(run.counters.dropped.values()) == 1


def test_a_stream_with_an_odd_name_costs_nothing_else(own_store: Path) -> None:
    tokens = Tokens(ids=[1], streams={"a\ud800": [0.5]})
    got, _ = back(own_store, Rollout(messages=[Message(role="assistant", tokens=tokens)]))
    found = got.messages[0].tokens
    assert found is not None and list(found.streams) == ["a\ufffd"]


def test_tokens_given_as_a_dict(own_store: Path) -> None:
    tokens: Any = {"ids": [1, 2], "logprob": [-1.0, -2.0]}
    message = Message(role="assistant", content="x", tokens=tokens)
    got, _ = back(own_store, Rollout(messages=[message]))
    assert got.messages[0].tokens == Tokens([1, 2], logprob=[-1.0, -2.0])
