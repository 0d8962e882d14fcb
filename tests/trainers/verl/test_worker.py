"""verl's own workers end to end: what the engine wrote is what is stored."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from world import (
    Engine,
    Grader,
    dataset_rows,
    flat,
    legacy_batch,
    make_config,
    stored,
    v1_batch,
)

import rollscope


class Queue:
    """TransferQueue's edge: keeps what is put."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}
        self.tags: dict[str, Any] = {}

    def init(self) -> None: ...

    async def async_kv_put(self, key: str, partition_id: str, tag: dict) -> None:
        self.tags[key] = tag

    async def async_kv_batch_put(self, keys, fields, tags, partition_id) -> None:
        for i, key in enumerate(keys):
            self.rows[key], self.tags[key] = fields[i], tags[i]


def run_legacy(config, columns, fail=None, **batch):
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

    grader = Grader()
    engine = Engine(config, None, fail)
    worker = AgentLoopWorker(config, engine, reward_loop_worker_handles=[grader])
    engine.tokenizer_real = worker.tokenizer
    data = legacy_batch(columns, **batch)
    output = asyncio.run(worker.generate_sequences(data))
    return engine, grader, output, worker


def run_v1(config, columns, fail=None, **batch):
    import verl.trainer.ppo.v1.agent_loop_tq as module

    queue = module.tq = Queue()
    cls = module.AgentLoopWorkerTQ.__ray_metadata__.modified_class
    grader, engine = Grader(), Engine(config, None, fail)
    worker = cls(config, engine, reward_loop_worker_handles=[grader])
    engine.tokenizer_real = worker.tokenizer

    async def go() -> None:
        await worker.generate_sequences(v1_batch(columns, **batch))
        await asyncio.gather(*list(worker.background_tasks), return_exceptions=True)

    asyncio.run(go())
    return engine, grader, queue, worker


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
