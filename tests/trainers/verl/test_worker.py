"""verl's own workers end to end: what the engine wrote is what is stored."""

import asyncio
import functools
import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from driving import run_legacy, run_v1
from world import (
    CALL,
    Engine,
    Grader,
    dataset_rows,
    flat,
    legacy_batch,
    make_config,
    stored,
)

import rollscope
from rollscope import capture
from rollscope.adapters._record import Later


@pytest.mark.parametrize("version", ["legacy", "v1"])
def test_every_rollout_is_stored_as_the_engine_wrote_it(
    version: str, model: Path, own_store: Path
) -> None:
    config = make_config(model)
    with rollscope.init(project="p", run="r"):
        if version == "legacy":
            engine, grader, _, worker = run_legacy(config, dataset_rows(3, 2))
        else:
            engine, grader, _, worker = run_v1(config, dataset_rows(3, 1))
    found = stored(own_store)
    told = engine.conversations()
    assert len(found) == len(told) == 6
    by_ids = {tuple(flat(r)): r for r in found}
    for turns in told:
        last = turns[-1]
        rollout = by_ids.pop(tuple(last["prompt"] + last["ids"]))
        sampled = [m for m in rollout.messages if m.sampled]
        assert [m.content for m in sampled] == [t["text"] for t in turns]
        n_prompt = len(turns[0]["prompt"])
        response = flat(rollout)[n_prompt:]
        assert rollout.reward == grader.given[tuple(response)]
        assert rollout.rewards == {"acc": float(rollout.reward > 0.5)}
        assert rollout.reward_texts == {"pred": "5"}
        mask, logprobs = flat(rollout, "mask"), flat(rollout, "logprob")
        wrote = [i for i, m in zip(flat(rollout), mask, strict=True) if m]
        assert wrote == [i for t in turns for i in t["ids"]]
        kept = [p for p, m in zip(logprobs, mask, strict=True) if m]
        assert kept == [p for t in turns for p in t["logprobs"]]
        assert all(p is None for p, m in zip(logprobs, mask, strict=True) if not m)
        assert [v for v in flat(rollout, "version") if v is not None] == [7] * len(wrote)
        text = worker.tokenizer.decode(flat(rollout))
        assert text == "".join(
            m.meta.get("before", "") + m.content + m.meta.get("after", "") for m in rollout.messages
        )
        assert [m.role for m in rollout.messages] == [
            "system", "system", "user", "assistant", "tool", "assistant",
        ]  # fmt: skip
        assert rollout.messages[3].tool_calls[0].name == "add"
        assert rollout.messages[4].name == "add" and rollout.messages[4].content == "5"
        assert rollout.fate == "scored" and rollout.stop_reason == "completed"
    assert {(r.group, r.index) for r in found} == {
        (f"uid-{i}", j) for i in range(3) for j in (0, 1)
    }
    assert {str(r.task) for r in found} == {"100", "101", "102"}
    one = found[0]
    assert (one.step, one.split, one.dataset, one.reference) == (3, "train", "sums", "5")
    assert one.policy_version == 7 and one.meta["extra_info"]["level"] == "easy"
    assert one.sampling["temperature"] == 1.0 and one.sampling["logprobs"] == "processed"


def test_calls_inside_a_rollout_are_spans_with_times_and_without_token_lists(
    model: Path, own_store: Path
) -> None:
    config = make_config(model, "actor_rollout_ref.rollout.trace.token2text=True")
    with rollscope.init(project="p", run="r"):
        run_legacy(config, dataset_rows(1, 2))
    for rollout in stored(own_store):
        names = [span.name for span in rollout.spans]
        assert names == [
            "ToolAgentLoop.run",
            "Engine.generate",
            "HermesToolParser.extract_tool_calls",
            "ToolAgentLoop._call_tool",
            "Engine.generate",
            "HermesToolParser.extract_tool_calls",
        ]
        root, *rest = rollout.spans
        assert all(span.parent == root.id for span in rest) and root.parent is None
        assert all(root.start <= span.start <= span.end <= root.end for span in rest)
        assert [span.message for span in rest] == [3, None, None, 5, None]
        assert rest[0].inputs["prompt_ids"]["length"] > 16
        assert rest[0].outputs["token_ids"]["length"] > 16
        assert rest[2].outputs[0]["text"] == "5"
        assert root.outputs["response_text"].startswith(CALL)
        assert root.outputs["prompt_text"].endswith("<|im_start|>assistant\n")
        assert rollout.messages[3].start == rest[0].start
        assert rollout.messages[3].stop_reason == "completed"


def test_text_of_the_whole_row_is_added_to_the_run_span_only_when_asked(
    model: Path, own_store: Path
) -> None:
    with rollscope.init(project="p", run="r"):
        run_legacy(make_config(model), dataset_rows(1, 2))
    assert all("response_text" not in r.spans[0].outputs for r in stored(own_store))


@pytest.mark.parametrize("run", [run_legacy, run_v1])
def test_a_failed_rollout_is_recorded_and_its_error_goes_on(run, model: Path, own_store: Path):
    def fail(text: str) -> None:
        if "(1)" in text and "<|im_start|>tool" in text:
            raise ConnectionError("engine is gone")

    repeat = 2 if run is run_legacy else 1
    with rollscope.init(project="p", run="r"):
        if run is run_legacy:
            with pytest.raises(ConnectionError, match="engine is gone"):
                run(make_config(model), dataset_rows(2, repeat), fail)
        else:
            _, _, queue, _ = run(make_config(model), dataset_rows(2, repeat), fail)
            assert queue.tags["uid-0"] == {"status": "finished"}
            assert queue.tags["uid-1"] == {"status": "failure"}
    failed = [r for r in stored(own_store) if r.group == "uid-1"]
    assert len(failed) == 2 and {r.fate for r in failed} == {"failed"}
    # The legacy worker gives up at the first error: its sibling may be cancelled then.
    raised = [r for r in failed if r.error.type == "ConnectionError"]
    assert len(raised) == 2 if run is run_v1 else raised
    for rollout in raised:
        assert [m.content for m in rollout.messages if m.sampled] == [CALL]
        assert rollout.spans[-1].error.text == "engine is gone"


def test_a_cancelled_rollout_is_recorded_and_stays_cancelled(model: Path, own_store: Path) -> None:
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

    config = make_config(model)

    class Slow(Engine):
        async def generate(self, *args: Any, **kwargs: Any) -> Any:
            if self.turns:
                self.is_hanging.set()
                await asyncio.sleep(600)
            return await super().generate(*args, **kwargs)

    async def go() -> None:
        engine = Slow(config, None)
        worker = AgentLoopWorker(config, engine)
        engine.tokenizer_real, engine.is_hanging = worker.tokenizer, asyncio.Event()
        task = asyncio.create_task(worker.generate_sequences(legacy_batch(dataset_rows(1, 1))))
        await asyncio.wait_for(engine.is_hanging.wait(), 300)
        task.cancel()
        await task

    with rollscope.init(project="p", run="r"), pytest.raises(asyncio.CancelledError):
        asyncio.run(go())
    (rollout,) = stored(own_store)
    assert (rollout.fate, rollout.fate_reason) == ("failed", "cancelled")
    assert [m.content for m in rollout.messages if m.sampled] == [CALL]


def test_a_reward_that_cannot_be_computed_is_the_graders_error(
    model: Path, own_store: Path, monkeypatch
) -> None:
    async def broken(self: Grader, data: Any) -> Any:
        raise ZeroDivisionError("grader")

    monkeypatch.setattr(Grader, "remote", broken)
    with rollscope.init(project="p", run="r"), pytest.raises(ZeroDivisionError):
        run_legacy(make_config(model), dataset_rows(1, 1))
    (rollout,) = stored(own_store)
    assert rollout.error.kind == "grader" and rollout.fate == "failed" and rollout.reward is None
    assert next(m.content for m in rollout.messages if m.sampled) == CALL


@pytest.mark.parametrize("run", [run_legacy, run_v1])
def test_verls_cap_is_obeyed_with_whole_groups(run, model: Path, own_store: Path) -> None:
    config = make_config(
        model,
        "actor_rollout_ref.rollout.trace.backend=rollscope",
        "actor_rollout_ref.rollout.trace.max_samples_per_step_per_worker=2",
    )
    run(config, dataset_rows(5, 2 if run is run_legacy else 1))
    capture.active().finish()
    found = stored(own_store)
    assert len(found) == 4 and len({r.group for r in found}) == 2
    assert all(len(r.messages) == 6 for r in found)
    (directory,) = own_store.glob("*/*")
    assert (directory.parent.name, directory.name) == ("maths", "tiny")


def test_a_cap_holds_for_each_step_and_split_by_itself(model: Path, own_store: Path) -> None:
    config = make_config(
        model,
        "actor_rollout_ref.rollout.trace.backend=rollscope",
        "actor_rollout_ref.rollout.trace.max_samples_per_step_per_worker=1",
        "actor_rollout_ref.rollout.val_kwargs.n=2",
    )
    for batch in ({"step": 3}, {"step": 3}, {"step": 4}, {"step": 4, "validate": True}):
        run_legacy(config, dataset_rows(2, 2), **batch)
    capture.active().finish()
    found = stored(own_store)
    # The second call of step 3 adds none: the cap is the step's, not the call's.
    assert Counter((r.step, r.split) for r in found) == {
        (3, "train"): 2, (4, "train"): 2, (4, "eval"): 2,
    }  # fmt: skip


def test_a_seam_that_is_missing_is_told_and_the_rest_is_recorded(
    model: Path, own_store: Path, monkeypatch
) -> None:
    from verl.experimental.agent_loop import tool_agent_loop

    call_tool = tool_agent_loop.ToolAgentLoop._call_tool
    monkeypatch.delattr(tool_agent_loop.ToolAgentLoop, "_call_tool")
    monkeypatch.setattr(
        tool_agent_loop.ToolAgentLoop, "__getattr__", _finds("_call_tool", call_tool), raising=False
    )
    with rollscope.init(project="p", run="r"):
        run_legacy(make_config(model), dataset_rows(1, 2))
    assert len(stored(own_store)) == 2
    (info,) = own_store.glob("*/*/writers/*.json")
    problems = [p["text"] for p in json.loads(info.read_text())["problems"]]
    assert any("0.9.1" in p and "_call_tool" in p for p in problems), problems


def _finds(name: str, function: Any) -> Any:
    """A version of verl in which the method is no longer where it was, and still works."""

    def find(self: Any, wanted: str) -> Any:
        if wanted == name:
            return functools.partial(function, self)
        raise AttributeError(wanted)

    return find


def test_validation_is_told_apart(model: Path, own_store: Path) -> None:
    with rollscope.init(project="p", run="r"):
        run_v1(make_config(model), dataset_rows(1, 1), validate=True)
        run_legacy(make_config(model), dataset_rows(1, 2), validate=True)
    assert {r.split for r in stored(own_store)} == {"eval"}


def test_text_is_decoded_away_from_the_rollouts_event_loop(model: Path, monkeypatch) -> None:
    threads: set[str] = set()
    from rollscope.adapters import _decode

    decode = _decode._text

    def noted(*args: Any) -> str:
        threads.add(threading.current_thread().name)
        return decode(*args)

    monkeypatch.setattr(_decode, "_text", noted)
    with rollscope.init(project="p", run="r"):
        run_legacy(make_config(model), dataset_rows(1, 2))
    assert threads and threading.main_thread().name not in threads


@pytest.mark.parametrize(("run_worker", "repeat"), [(run_legacy, 2), (run_v1, 1)])
def test_a_rollout_for_which_there_is_no_room_to_wait_ends_without_messages_and_is_counted(
    run_worker, repeat: int, model: Path, own_store: Path, monkeypatch
) -> None:
    monkeypatch.setenv("ROLLSCOPE_QUEUE", "1MB")
    begun, gate = threading.Event(), threading.Event()
    with rollscope.init(project="p", run="r") as run:
        later = Later.of("verl", run)
        later(lambda: begun.set() or gate.wait(60))
        assert begun.wait(60)
        later(str, holds=[[0] * 200_000])  # more than the queue: there is no room beside it
        run_worker(make_config(model), dataset_rows(1, repeat))
        gate.set()
    found = stored(own_store)
    assert len(found) == 2 and all(not r.messages and r.meta["pieces_lost"] == 1 for r in found)
    assert {r.fate for r in found} == {None} and all(r.end is not None for r in found)
    assert run.counters.dropped == {}
    assert run.counters.dropped_other == {"queue full": len(found)}


def test_users_own_ops_are_spans_of_the_rollout_they_run_in(model: Path, own_store: Path) -> None:
    config = make_config(model)

    class Searching(Engine):
        @rollscope.op
        def look_up(self, word: str) -> str:
            return word.upper()

        async def generate(self, *args: Any, **kwargs: Any) -> Any:
            self.look_up("sum")
            return await super().generate(*args, **kwargs)

    with rollscope.init(project="p", run="r"):
        run_legacy(config, dataset_rows(1, 1), engine=Searching)
    (rollout,) = stored(own_store)
    mine = [s for s in rollout.spans if s.name.endswith("look_up")]
    (root,) = [s for s in rollout.spans if s.name == "ToolAgentLoop.run"]
    assert [s.outputs for s in mine] == ["SUM", "SUM"]
    assert {s.parent for s in mine} == {root.id}
