"""Rows of verl's v1 trainer carry the launch that made them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import rollscope
from rollscope.adapters._seam import Seams
from rollscope.adapters.verl import trainer_v1
from rollscope.model import keyed_id


def test_a_row_that_another_launch_made_keeps_its_rollout(own_store: Path) -> None:
    stored: list[Any] = []

    async def async_kv_batch_put(keys: Any, partition_id: str, tags: Any = None) -> None:
        stored.extend(zip(keys, tags or (), strict=False))

    queue = SimpleNamespace(async_kv_batch_put=async_kv_batch_put)
    seams = Seams("verl", "verl")
    seams.watch(queue, {"async_kv_batch_put": trainer_v1.row_tags}, "nothing")
    given = [{"global_steps": 3, "seq_len": 7}]
    with rollscope.init(project="maths", run="tiny") as run:
        asyncio.run(queue.async_kv_batch_put(["u-1_0_0"], "train", tags=given))
        asyncio.run(queue.async_kv_batch_put(["u-1"], "train"))
        first = run.launch
    assert given == [{"global_steps": 3, "seq_len": 7}], "verl's own tags stay as they are"
    ((key, tag),) = stored
    assert tag == {**given[0], trainer_v1.LAUNCH: first}
    with rollscope.init(project="maths", run="tiny") as run:
        run.launch = "another"
        theirs, own = trainer_v1._sessions(run, [key, "u-2_0_0"], [tag, {"global_steps": 4}])
        assert theirs == keyed_id("maths", "tiny", first, "train/3/u-1/0")
        assert own == keyed_id("maths", "tiny", "another", "train/4/u-2/0")
