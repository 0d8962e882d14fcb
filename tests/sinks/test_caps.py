"""A cap counts groups as everything else does: by the one definition of a group."""

from __future__ import annotations

from pathlib import Path

import rollscope
from rollscope import Rollout
from rollscope.model.sample import Sample
from rollscope.sinks.look import Looker
from rollscope.store.read.reader import Reader


def test_a_task_of_two_datasets_and_two_environments_is_four_groups(own_store: Path) -> None:
    with rollscope.init(project="p", run="r") as run:
        for dataset in ("math", "code"):
            for environment in ("easy", "hard"):
                run.log([
                    Rollout(step=1, task=7, dataset=dataset, environment=environment, index=n,
                            key=f"{dataset}/{environment}/{n}", reward=float(n), fate="trained")
                    for n in range(3)
                ])  # fmt: skip
    reader = Reader(own_store)
    try:
        for groups in range(1, 5):
            looker = Looker(reader, "p", "r", Sample(groups_per_step=groups))
            found = looker.look(None, is_over=True)
            assert len(found.new) == 3 * groups, "whole groups, and none of them mixed"
            assert found.left_out == 3 * (4 - groups)
    finally:
        reader.close()
