"""A sample counts groups, and draws them by their task."""

from __future__ import annotations

import duckdb
from hypothesis import given
from hypothesis import strategies as st

from rollscope.model import Rollout
from rollscope.model.sample import DRAWN_BY, Sample, Sampler, drawn_by

DB = duckdb.connect()
names = st.sampled_from([None, "", "7"])


@given(names, names, names)
def test_what_is_drawn_for_is_the_same_to_the_engine(
    task: str | None, group: str | None, key: str | None
) -> None:
    columns = "?::VARCHAR AS task, ?::VARCHAR AS \"group\", ?::VARCHAR AS key, 'id' AS id"
    found = DB.execute(f"SELECT {DRAWN_BY} FROM (SELECT {columns}) r", [task, group, key])
    assert found.fetchall() == [(drawn_by(Rollout(id="id", task=task, group=group, key=key)),)]


def test_a_task_of_two_datasets_counts_as_two_groups() -> None:
    both = [Rollout(step=1, task=7, dataset=dataset) for dataset in ("math", "code", "math")]
    assert Sampler(Sample(groups_per_step=1)).keep(both, is_batch=True) == [True, False, True]
    assert Sampler(Sample(groups_per_step=2)).keep(both, is_batch=True) == [True, True, True]
