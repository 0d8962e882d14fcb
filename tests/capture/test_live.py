"""Recording while it happens: live rollouts, and functions that become spans."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import rollscope
from rollscope import Message, Tokens
from rollscope.model import Span
from rollscope.model.repeats import expand

from . import reading


@pytest.fixture
def run(own_store: Path) -> Iterator[rollscope.Run]:
    with rollscope.init(project="p", run="r") as run:
        yield run


def recorded(run: rollscope.Run) -> list[dict[str, Any]]:
    run.finish()
    return reading.rollouts(run.setup.root)


def tree(spans: list[dict[str, Any]]) -> set[tuple[str, str | None]]:
    """(span, the span it was called from) by name."""
    names = {s["id"]: s["name"] for s in spans}
    return {(s["name"], names.get(s.get("parent"))) for s in spans}


def test_a_live_rollout_has_its_messages_outcome_and_times(run: rollscope.Run) -> None:
    with run.rollout(step=12, task="q-381", index=3, split="train") as r:
        assert r.message("user", "2+2?") == 0
        assert r.message("assistant", "4", tokens=Tokens([7]), sampled=True) == 1
        r.reward(1.0, correctness=1.0, texts={"correctness": "right"})
        r.set(stop_reason="stop", truncated=False, meta={"a": 1})
        r.set(meta={"b": 2})
    (got,) = recorded(run)
    assert got["id"] == r._head.id
    assert (got["step"], got["task"], got["index"], got["split"]) == (12, "q-381", 3, "train")
    assert [m["content"] for m in got["messages"]] == ["2+2?", "4"]
    assert got["messages"][1]["tokens"] == {"ids": [7]}
    assert (got["reward"], got["rewards"]) == (1.0, {"correctness": 1.0})
    assert got["reward_texts"] == {"correctness": "right"}
    assert (got["stop_reason"], got["truncated"], got["meta"]) == ("stop", False, {"a": 1, "b": 2})
    assert got["start"] <= got["end"]
    assert not got["open"]


def test_an_unfinished_rollout_is_already_on_disk(run: rollscope.Run, own_store: Path) -> None:
    with run.rollout(task="q") as r:
        r.message("user", "hello")
        reading.wait_for(lambda: any(r["messages"] for r in reading.rollouts(own_store)))
        found = reading.rollouts(own_store)
        assert found[0]["open"] is True
        assert found[0]["messages"][0]["content"] == "hello"


def test_a_history_that_is_given_again_and_again_is_written_once(run: rollscope.Run) -> None:
    history: list[Any] = [{"role": "system", "content": "be brief"}]
    with run.rollout(task="q") as r:
        for turn in range(100):
            history.append({"role": "user", "content": f"question {turn}"})
            r.extend(history)
            r.message("assistant", f"answer {turn}", sampled=True)
            history.append({"role": "assistant", "content": f"answer {turn}"})
    (got,) = recorded(run)
    assert len(got["messages"]) == 201
    assert all("parent" not in m for m in got["messages"])
    assert run.counters.raw_bytes < 40_000


def test_a_rewritten_history_begins_a_branch(run: rollscope.Run) -> None:
    with run.rollout(task="q") as r:
        r.extend([Message(role="user", content="a"), Message(role="user", content="b")])
        r.extend([{"role": "user", "content": "a"}, {"role": "user", "content": "c"}])
        r.extend([{"role": "user", "content": "summary"}])
    (got,) = recorded(run)
    assert [(m["content"], m.get("parent")) for m in got["messages"]] == [
        ("a", None),
        ("b", None),
        ("c", 0),
        ("summary", -1),
    ]


class Agent:
    @rollscope.op
    def plan(self, goal: str, depth: int = 1) -> str:
        return search(goal) + str(depth)

    @rollscope.op
    @classmethod
    def make(cls, name: str) -> str:
        return name

    @staticmethod
    @rollscope.op(name="renamed")
    def helper(x: int) -> int:
        return x


@rollscope.op
def search(query: str) -> str:
    return query.upper()


def test_ops_become_spans_with_inputs_outputs_and_parents(run: rollscope.Run) -> None:
    with run.rollout(task="q") as r:
        assert Agent().plan("x") == "X1"
        assert Agent.make("n") == "n"
        assert Agent.helper(3) == 3
        with r.span("block", size=1) as block:
            search("y")
            block.outputs = "done"
    spans = {s["name"]: s for s in recorded(run)[0]["spans"]}
    assert spans["Agent.plan"]["inputs"] == {"goal": "x", "depth": 1}
    assert spans["Agent.plan"]["outputs"] == "X1"
    assert spans["Agent.make"]["inputs"] == {"name": "n"}
    assert spans["renamed"]["outputs"] == 3
    assert spans["block"]["outputs"] == "done"
    assert tree(list(reading.rollouts(run.setup.root)[0]["spans"])) == {
        ("search", "Agent.plan"),
        ("Agent.plan", None),
        ("Agent.make", None),
        ("renamed", None),
        ("search", "block"),
        ("block", None),
    }
    assert all(s["start"] <= s["end"] for s in spans.values())


def test_outside_a_rollout_an_op_is_only_its_function(run: rollscope.Run) -> None:
    assert search("a") == "A"
    assert recorded(run) == []


def test_inputs_are_recorded_as_they_were_at_the_call(run: rollscope.Run) -> None:
    @rollscope.op
    def spoil(items: list[int]) -> list[int]:
        items.append(2)
        return items

    with run.rollout(task="q"):
        result = spoil([1])
        result.append(3)
    (span,) = recorded(run)[0]["spans"]
    assert (span["inputs"], span["outputs"]) == ({"items": [1]}, [1, 2])


def test_many_rollouts_interleave_in_one_event_loop(run: rollscope.Run) -> None:
    @rollscope.op
    async def think(n: int) -> int:
        await asyncio.sleep(0.001 * (n % 3))
        return await deeper(n)

    @rollscope.op
    async def deeper(n: int) -> int:
        await asyncio.sleep(0)
        return n

    async def one(n: int) -> None:
        with run.rollout(task=f"q-{n}") as r:
            r.message("user", str(n))
            assert await think(n) == n
            assert sum(await asyncio.gather(deeper(n), deeper(n))) == 2 * n

    async def all() -> None:
        await asyncio.gather(*(one(n) for n in range(50)))

    asyncio.run(all())
    for got in recorded(run):
        n = int(got["task"].removeprefix("q-"))
        assert {s["inputs"]["n"] for s in got["spans"]} == {n}
        assert sorted((s["name"], "parent" in s) for s in got["spans"]) == [
            ("deeper", False),
            ("deeper", False),
            ("deeper", True),
            ("think", False),
        ]


def test_generators_keep_their_context_and_leave_the_callers_alone(run: rollscope.Run) -> None:
    @rollscope.op
    def stream(n: int) -> Iterator[Any]:
        got = None
        for i in range(n):
            search(f"inside {i}")
            got = yield (i, got)
        return "end"

    with run.rollout(task="q"):
        generator = stream(3)
        assert inspect.isgeneratorfunction(stream)
        assert next(generator) == (0, None)
        search("outside")
        assert generator.send("s") == (1, "s")
        assert list(generator) == [(2, None)]
    spans = recorded(run)[0]["spans"]
    assert tree(spans) == {("search", "stream"), ("search", None), ("stream", None)}
    outside = [s for s in spans if s["inputs"] == {"query": "outside"}]
    assert "parent" not in outside[0]
    (whole,) = [s for s in spans if s["name"] == "stream"]
    assert whole["outputs"] == [[0, None], [1, "s"], [2, None]]


def test_a_generator_that_is_left_early_is_recorded_without_an_error(run: rollscope.Run) -> None:
    closed = []

    @rollscope.op
    def stream() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            closed.append(True)

    with run.rollout(task="q"):
        generator = stream()
        next(generator)
        generator.close()  # type: ignore[attr-defined]
    (span,) = recorded(run)[0]["spans"]
    assert closed == [True]
    assert span["outputs"] == [1]
    assert "error" not in span


def test_async_generators_are_recorded_and_closed(run: rollscope.Run) -> None:
    closed = []

    @rollscope.op
    async def stream() -> AsyncIterator[int]:
        try:
            for i in range(3):
                await asyncio.sleep(0)
                search(str(i))
                yield i
        finally:
            closed.append(True)

    async def use() -> None:
        with run.rollout(task="q"):
            assert [i async for i in stream()] == [0, 1, 2]
            search("outside")

    asyncio.run(use())
    assert inspect.isasyncgenfunction(stream)
    spans = recorded(run)[0]["spans"]
    assert tree(spans) == {("search", "stream"), ("stream", None), ("search", None)}
    assert closed == [True]


def test_threads_do_not_inherit_the_rollout_and_bind_carries_it(run: rollscope.Run) -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as pool, run.rollout(task="q"):
        pool.submit(search, "lost").result()
        pool.submit(rollscope.bind(search), "kept").result()
    assert [s["inputs"] for s in recorded(run)[0]["spans"]] == [{"query": "kept"}]


@pytest.mark.parametrize("error", [ValueError("boom"), KeyboardInterrupt(), SystemExit(3)])
def test_the_users_exception_is_recorded_and_goes_on_unchanged(
    run: rollscope.Run, error: BaseException
) -> None:
    @rollscope.op
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught, run.rollout(task="q") as r:
        r.message("user", "so far")
        fail()
    assert caught.value is error
    (got,) = recorded(run)
    assert got["fate"] == "failed"
    assert got["error"]["type"] == type(error).__name__
    assert got["messages"][0]["content"] == "so far"
    assert got["spans"][0]["error"]["type"] == type(error).__name__


def test_an_exception_that_cannot_be_printed_is_recorded_by_its_name(run: rollscope.Run) -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    with pytest.raises(Broken), run.rollout(task="q"):
        raise Broken
    (got,) = recorded(run)
    assert (got["fate"], got["error"]) == ("failed", {"type": "Broken"})


def test_a_cancelled_rollout_is_recorded_and_stays_cancelled(run: rollscope.Run) -> None:
    @rollscope.op
    async def hang() -> None:
        await asyncio.sleep(60)

    async def work() -> None:
        with run.rollout(task="q") as r:
            r.message("user", "so far")
            await hang()

    async def main() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    (got,) = recorded(run)
    assert (got["fate"], got["fate_reason"]) == ("failed", "cancelled")
    assert got["error"]["type"] == got["spans"][0]["error"]["type"] == "CancelledError"
    assert len(got["messages"]) == 1


def test_arguments_that_repeat_a_growing_history_take_linear_room(run: rollscope.Run) -> None:
    @rollscope.op
    def generate(messages: list[dict[str, str]], prompt_ids: list[int]) -> str:
        return "answer"

    history: list[dict[str, str]] = []
    given = []
    with run.rollout(task="q"):
        for turn in range(100):
            history.append({"role": "user", "content": f"{turn}: " + "x" * 100})
            ids = list(range(10 * len(history)))
            generate(history, ids)
            given.append({"messages": list(history), "prompt_ids": ids})
    (got,) = recorded(run)
    assert run.counters.raw_bytes < 100_000  # written out it would be 600,000
    spans = [Span(**{k: s[k] for k in ("name", "id", "inputs")}) for s in got["spans"]]
    assert [s.inputs for s in expand(spans)] == given


def test_without_a_run_everything_is_a_no_op(own_store: Path) -> None:
    assert search("a") == "A"
    with rollscope.rollout_trace_attr(sample_index=1, step=1):
        assert search("b") == "B"
    assert not own_store.exists()


class VerlLoop:
    """Marked the way verl's agent loops are."""

    @rollscope.rollout_trace_op
    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {"ids": await self.generate([1, 2])}

    @rollscope.rollout_trace_op
    async def generate(self, prompt_ids: list[int]) -> list[int]:
        return [3]

    @rollscope.rollout_trace_op
    def parse(self, text: str) -> str:
        return text


def test_verl_code_records_by_changing_the_import(run: rollscope.Run) -> None:
    with rollscope.rollout_trace_attr(
        sample_index=381, step=7, rollout_n=2, name="agent_loop", validate=True
    ):
        asyncio.run(VerlLoop().run({"temperature": 1.0}, raw_prompt="hi"))
        VerlLoop().parse("t")
    (got,) = recorded(run)
    assert (got["task"], got["step"], got["index"], got["split"]) == ("381", 7, 2, "eval")
    assert got["meta"] == {"name": "agent_loop"}
    assert tree(got["spans"]) == {
        ("VerlLoop.generate", "VerlLoop.run"),
        ("VerlLoop.run", None),
        ("VerlLoop.parse", None),
    }
    top = next(s for s in got["spans"] if s["name"] == "VerlLoop.run")
    assert top["inputs"] == {
        "sampling_params": {"temperature": 1.0},
        "kwargs": {"raw_prompt": "hi"},
    }


def test_verl_trace_false_silences_everything_nested(run: rollscope.Run) -> None:
    with (
        rollscope.rollout_trace_attr(sample_index=1, step=1, trace=False),
        rollscope.rollout_trace_attr(sample_index=1, step=1),
    ):
        VerlLoop().parse("t")
    assert recorded(run) == []


def test_a_verl_op_outside_any_rollout_is_one_of_its_own(run: rollscope.Run) -> None:
    assert VerlLoop().parse("t") == "t"
    (got,) = recorded(run)
    assert got["meta"] == {"name": "VerlLoop.parse"}
    assert got["spans"][0]["outputs"] == "t"
    assert not got["open"]
