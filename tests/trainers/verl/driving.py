"""Driving verl's two worker classes in this process."""

from __future__ import annotations

import asyncio
from typing import Any

from world import Engine, Grader, legacy_batch, v1_batch


class Queue:
    """TransferQueue's edge: keeps what is put, gives back what is asked for."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}
        self.tags: dict[str, Any] = {}

    def init(self) -> None: ...

    async def async_kv_put(self, key: str, partition_id: str, tag: dict) -> None:
        self.tags[key] = tag

    async def async_kv_batch_put(self, keys, fields, tags, partition_id) -> None:
        for i, key in enumerate(keys):
            self.rows[key], self.tags[key] = fields[i], tags[i]


def run_legacy(config, columns, fail=None, engine=Engine, **batch):
    """`AgentLoopWorker.generate_sequences`: engine, grader, output, worker."""
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

    grader = Grader()
    engine = engine(config, None, fail)
    worker = AgentLoopWorker(config, engine, reward_loop_worker_handles=[grader])
    engine.tokenizer_real = worker.tokenizer
    output = asyncio.run(worker.generate_sequences(legacy_batch(columns, **batch)))
    return engine, grader, output, worker


def run_v1(config, columns, fail=None, engine=Engine, **batch):
    """`AgentLoopWorkerTQ.generate_sequences`: engine, grader, queue, worker."""
    import verl.trainer.ppo.v1.agent_loop_tq as module

    real, queue = module.tq, Queue()
    module.tq = queue
    cls = module.AgentLoopWorkerTQ.__ray_metadata__.modified_class
    grader, engine = Grader(), engine(config, None, fail)

    async def go() -> None:
        await worker.generate_sequences(v1_batch(columns, **batch))
        await asyncio.gather(*list(worker.background_tasks), return_exceptions=True)

    try:
        worker = cls(config, engine, reward_loop_worker_handles=[grader])
        engine.tokenizer_real = worker.tokenizer
        asyncio.run(go())
    finally:
        module.tq = real
    return engine, grader, queue, worker
