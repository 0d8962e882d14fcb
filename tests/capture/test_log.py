"""Handing rollouts over: what `log`, `annotate` and `metrics` promise."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rollscope
from rollscope import Error, Message, Rollout, Span, Tokens
from rollscope.model import keyed_id

from . import reading


def said(*texts: str) -> list[Message]:
    roles = ("user", "assistant")
    return [Message(role=roles[n % 2], content=text) for n, text in enumerate(texts)]


def test_a_rollout_is_recorded_as_it_was_when_logged(own_store: Path) -> None:
    run = rollscope.init(project="math", run="r1")
    ids = np.array([1, 2, 3])
    rollout = Rollout(
        task="q-1", index=3, messages=said("hi", "yo"), meta={"list": [1]}, rewards={"a": 1.0}
    )
    rollout.messages[1].tokens = Tokens(ids, logprob=[-0.5, None, math.nan])
    (id,) = run.log(rollout, step=12)
    rollout.messages.append(Message(role="user", content="changed later"))
    rollout.meta["list"].append(2)
    rollout.reward = 99.0
    ids[:] = 0
    run.finish()
    (got,) = reading.rollouts(own_store)
    assert got["id"] == id
    assert (got["step"], got["task"], got["index"]) == (12, "q-1", 3)
    assert got["meta"] == {"list": [1]}
    assert "reward" not in got
    assert got["messages"] == [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "yo",
            "tokens": {"ids": [1, 2, 3], "logprob": [-0.5, None, "NaN"]},
        },
    ]


def test_a_step_of_its_own_wins_over_the_step_of_the_batch(own_store: Path) -> None:
    run = rollscope.init()
    run.log([Rollout(task="a", step=3), Rollout(task="b")], step=7)
    run.finish()
    assert {r["task"]: r["step"] for r in reading.rollouts(own_store)} == {"a": 3, "b": 7}


def test_one_object_that_is_changed_and_logged_again_is_another_rollout(own_store: Path) -> None:
    run = rollscope.init()
    rollout = Rollout(messages=said("2+2?"))
    ids = []
    for n in range(8):
        rollout.messages = said(f"{n}+{n}?", str(2 * n))
        ids += run.log(rollout, step=n)
    batch = run.log([rollout, rollout])
    run.finish()
    found = reading.rollouts(own_store)
    assert [r["id"] for r in found] == [*ids, *batch]
    assert [r.get("step") for r in found] == [*range(8), None, None]
    assert len({r["task"] for r in found}) == 8, "the task is a hash of each one's own prompt"
    assert rollout == Rollout(messages=said("7+7?", "14")), "the caller's object is the caller's"


def test_messages_may_come_from_a_generator(own_store: Path) -> None:
    run = rollscope.init()
    given: Any = (message for message in said("2+2?", "4"))
    spans: Any = (Span(name=name) for name in ("think", "answer"))
    run.log(Rollout(messages=given, spans=spans))
    run.log(Rollout(task="t", messages=tuple(said("a", "b"))))  # type: ignore[arg-type]
    run.log([Rollout(task="t", messages=iter(said(str(n)))) for n in range(2)])  # type: ignore[arg-type]
    run.log(Rollout(task="none", messages=None, spans=None))  # type: ignore[arg-type]
    run.finish()
    assert run.counters.dropped == {}
    found = reading.rollouts(own_store)
    texts = [[m["content"] for m in r["messages"]] for r in found]
    assert texts == [["2+2?", "4"], ["a", "b"], ["0"], ["1"], []]
    assert found[0]["task"].startswith("prompt-")
    assert [s["name"] for s in found[0]["spans"]] == ["think", "answer"]


def test_a_rollout_without_a_task_gets_the_hash_of_its_prompt(own_store: Path) -> None:
    run = rollscope.init()
    run.log([Rollout(messages=said("2+2?", answer)) for answer in ("4", "5")])
    run.log(Rollout(messages=said("3+3?", "6")))
    run.finish()
    one, two, other = [r["task"] for r in reading.rollouts(own_store)]
    assert one == two != other
    assert one.startswith("prompt-")


def test_chat_messages_are_taken_as_they_are(own_store: Path) -> None:
    call = {"id": "c1", "function": {"name": "add", "arguments": '{"a": 1}'}}
    chat: Any = [
        {"role": "user", "content": [{"type": "text", "text": "add"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    run = rollscope.init()
    run.log(Rollout(task="t", messages=chat))
    run.finish()
    (got,) = reading.rollouts(own_store)
    assert got["messages"][0]["content"] == "add"
    assert got["messages"][1]["tool_calls"][0]["name"] == "add"


def test_any_process_of_the_launch_can_annotate_by_key(own_store: Path) -> None:
    run = rollscope.init()
    (id,) = run.log(Rollout(key="7/q-1/0", task="q-1"))
    run.annotate(key="7/q-1/0", advantage=0.5)
    run.finish()
    (fact,) = reading.facts(own_store)
    assert fact["rollout"] == id == keyed_id(run.project, run.name, run.launch, "7/q-1/0")


def test_every_kind_of_fact_has_its_name(own_store: Path) -> None:
    run = rollscope.init()
    run.annotate(
        "r",
        author="me",
        fate="dropped",
        fate_reason="zero variance",
        reward=None,
        rewards={"format": 1.0, "absent": None},
        meta={"lang": "zh"},
        label=["good", "odd"],
        flag={"loop": "3 times"},
        note="look here",
        error=Error(kind="tool", text="timeout"),
        streams={"advantage": np.array([0.5, math.nan]), "absent": None},
    )
    run.finish()
    facts = {f["name"]: f.get("value", f.get("stream")) for f in reading.facts(own_store)}
    assert facts == {
        "fate": "dropped",
        "fate_reason": "zero variance",
        "rewards.format": 1.0,
        "meta.lang": "zh",
        "label.good": True,
        "label.odd": True,
        "flag.loop": "3 times",
        "note": "look here",
        "error": {"kind": "tool", "text": "timeout"},
        "tokens.advantage": [0.5, "NaN"],
    }
    assert {f["author"] for f in reading.facts(own_store)} == {"me"}


def test_an_unknown_fact_is_told_not_raised(
    own_store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = rollscope.init()
    run.annotate("r", advantge=1.0)
    run.annotate(advantage=1.0)
    run.finish()
    assert reading.facts(own_store) == []
    assert "'advantge' is not known" in caplog.text
    assert "needs the id of a rollout" in caplog.text


def test_the_later_fact_of_a_writer_wins_though_the_clock_jumps_back(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = rollscope.init()
    run.annotate("r", reward=1.0)
    monkeypatch.setattr("time.time", lambda: 1000.0)
    run.annotate("r", reward=2.0)
    run.log(Rollout(task="t"))
    monkeypatch.undo()
    run.finish()
    first, second = reading.facts(own_store)
    assert (first["time"], first["n"]) < (second["time"], second["n"])
    assert len(reading.rollouts(own_store)) == 1


def test_metrics_keep_numbers_and_name_what_is_none(own_store: Path) -> None:
    run = rollscope.init()
    run.metrics(3, {"loss": np.float32(0.5), "kl": math.inf, "word": "x"})
    run.finish()
    (got,) = [line["metrics"] for line in reading.lines(own_store) if "metrics" in line]
    assert got["step"] == 3
    assert got["values"] == {"loss": 0.5, "kl": "Infinity"}
    (info,) = reading.infos(own_store)
    assert "metrics.word: expected a number" in info.problems[0].text


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int


class TensorLikeTorch:
    """Stands for a torch tensor on a GPU: torch itself is tested with the trainers."""

    def __init__(self, values: list[float]) -> None:
        self._values = values
        self.moves = 0

    def detach(self) -> TensorLikeTorch:
        return self

    def cpu(self) -> TensorLikeTorch:
        self.moves += 1
        return self

    def tolist(self) -> list[float]:
        return self._values


def test_odd_values_are_kept_faithfully_or_refused_by_name(own_store: Path) -> None:
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    run = rollscope.init()
    run.log(
        Rollout(
            task="t",
            step=np.int64(3),  # type: ignore[arg-type]
            reward=np.float32(0.5),
            meta={
                "enum": Colour.RED,
                "dataclass": Point(1),
                "numpy": np.array([1, 2]),
                "scalar": np.float64(1.5),
                "bytes": b"\x00",
                "date": datetime.date(2026, 1, 2),
                "set": {1},
                "tensor_like": TensorLikeTorch([1.0]),
                "nan": math.nan,
                "big": 2**70,
                7: "key",
                "surrogate": "\ud800",
                "cycle": cycle,
                "object": object(),
            },
        )
    )
    run.finish()
    (got,) = reading.rollouts(own_store)
    assert (got["step"], got["reward"]) == (3, 0.5)
    meta = got["meta"]
    assert meta["object"].startswith("<object not stored")
    assert meta["cycle"]["self"].startswith("<dict not stored")
    del meta["object"], meta["cycle"]
    assert meta == {
        "enum": "red",
        "dataclass": {"x": 1},
        "numpy": [1, 2],
        "scalar": 1.5,
        "bytes": "AA==",
        "date": "2026-01-02",
        "set": [1],
        "tensor_like": [1.0],
        "nan": "NaN",
        "big": 2**70,
        "7": "key",
        "surrogate": "\ufffd",
    }
    (info,) = reading.infos(own_store)
    assert len(info.problems) == 2


def test_token_arrays_that_are_none_are_left_out_by_name(own_store: Path) -> None:
    run = rollscope.init()
    bad: Any = Tokens(["a", "b"], logprob=[-1.0, -2.0], mask=[[1], [2, 3]])
    run.log(Rollout(task="odd", messages=[Message(role="assistant", content="x", tokens=bad)]))
    run.annotate("r", streams={"advantage": ["x"]}, reward=1.0)
    run.log(Rollout(task="next"))
    run.finish()
    odd, after = reading.rollouts(own_store)
    assert odd["messages"][0]["tokens"] == {"logprob": [-1.0, -2.0]}
    assert after["task"] == "next"
    assert [f.get("value") for f in reading.facts(own_store)] == [1.0, None]
    told = " ".join(p.text for p in reading.infos(own_store)[0].problems)
    assert all(name in told for name in ("tokens.ids", "tokens.mask", "stream: expected numbers"))


def test_what_is_no_rollout_is_counted_and_training_goes_on(own_store: Path) -> None:
    run = rollscope.init()
    run.log(42)  # type: ignore[arg-type]
    run.log([Rollout(task="good"), "bad", Rollout(task="fine", messages=[42])])  # type: ignore[list-item]
    run.finish()
    assert [r["task"] for r in reading.rollouts(own_store)] == ["good"]
    (info,) = reading.infos(own_store)
    assert info.counters.dropped == {"could not be encoded": 2}
    assert len(info.problems) >= 3


def test_a_message_of_100_mb_is_stored_whole(own_store: Path) -> None:
    run = rollscope.init()
    run.log(Rollout(task="large", messages=[Message(role="user", content="x" * 100_000_000)]))
    run.finish()
    (got,) = reading.rollouts(own_store)
    assert len(got["messages"][0]["content"]) == 100_000_000


def test_what_is_larger_than_the_queue_is_refused_with_a_reason(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLSCOPE_QUEUE", "1MB")
    run = rollscope.init()
    run.log(Rollout(task="large", messages=[Message(role="user", content="x" * 2_000_000)]))
    run.log(Rollout(task="small"))
    run.finish()
    assert [r["task"] for r in reading.rollouts(own_store)] == ["small"]
    assert reading.infos(own_store)[0].counters.dropped == {"larger than the queue": 1}


def test_ten_thousand_messages_in_one_rollout(own_store: Path) -> None:
    run = rollscope.init()
    run.log(Rollout(task="long", messages=said(*map(str, range(10_000)))))
    run.finish()
    (got,) = reading.rollouts(own_store)
    assert [m["content"] for m in got["messages"]] == [str(n) for n in range(10_000)]


def test_text_that_looks_like_null_is_only_text(own_store: Path) -> None:
    texts = ['{"a":null}', "[null,null]", "x,null,", "null", 'a":null}']
    run = rollscope.init()
    run.log(Rollout(task="t", messages=said(*texts), meta={"none": None}))
    run.finish()
    (got,) = reading.rollouts(own_store)
    assert [m["content"] for m in got["messages"]] == texts
    assert got["meta"] == {"none": None}


def test_the_same_names_continue_the_same_run(own_store: Path) -> None:
    with rollscope.init(project="p", run="r") as first:
        first.log(Rollout(task="a"))
        assert rollscope.init(project="p", run="r") is first
    with rollscope.init(project="p", run="r") as second:
        second.log(Rollout(task="b"))
    assert first.writer != second.writer
    assert sorted(r["task"] for r in reading.rollouts(own_store)) == ["a", "b"]


@pytest.mark.parametrize("name", ["step=5", "lr[1e-5]", "Qwen/x", "..", ".", "%", "é ü", "a" * 400])
def test_any_text_names_a_run(own_store: Path, name: str) -> None:
    with rollscope.init(project=name, run=name) as run:
        run.log(Rollout(task="t"))
    (names,) = own_store.glob("*/*/run.json")
    body = json.loads(names.read_text())
    assert (body["project"], body["run"]) == (name, name)
    assert {c for p in (names.parent, names.parent.parent) for c in p.name} <= set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-%"
    )


def test_one_line_at_the_start_and_one_at_the_end(
    own_store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with rollscope.init(project="math", run="r1") as run:
        run.log(Rollout(task="t"))
    run.finish()
    start, end = capfd.readouterr().err.splitlines()
    assert start == (
        f"rollscope: recording math/r1 to {own_store}/math/r1; look with: rollscope view"
    )
    assert end.startswith("rollscope: recorded 1 rollout of math/r1, dropped none, 0.0 MB")


def test_what_is_logged_after_finish_is_told(
    own_store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = rollscope.init()
    run.finish()
    run.log(Rollout(task="late"))
    assert reading.rollouts(own_store) == []
    assert "logged after finish" in caplog.text
