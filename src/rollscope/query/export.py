"""A selection goes out, rollout by rollout, and can be interrupted and continued."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rollscope.formats import Cleaner, Plan, State, Target, Work
from rollscope.model import grouping

if TYPE_CHECKING:
    from rollscope.model import Rollout
    from rollscope.model.redact import Redactor
    from rollscope.store.read.bodies import StoredRollout

    from .store import Store


def export(
    store: Store,
    plan: Plan,
    out: Path,
    target: Callable[[Cleaner | None], Target],
    clean: Redactor | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> State:
    """Write what the plan asks for to `out`, from where an earlier try stopped."""
    work = Work(out, plan, lambda: chosen(store, plan.query, plan.order))
    cleaner = Cleaner(clean, bytes.fromhex(work.state.secret)) if clean is not None else None
    done = work.state.rollouts

    def wholes(ids: Iterator[str]) -> Iterator[StoredRollout]:
        nonlocal done
        for whole in store.through(ids):
            whole.rollout = outgoing(whole, cleaner, plan.format != "parquet")
            yield whole
            done += 1
            progress(done, work.state.total)

    progress(done, work.state.total)
    return work.run(target(cleaner), wholes)


def chosen(store: Store, query: str, order: str) -> Iterator[tuple[str, bool]]:
    """The ids that a query finds, in order, each with whether a group begins with it."""
    before = None
    for row in store.rollouts(query, order=order, columns=grouping.FIELDS):
        group = grouping.group_of(row)
        yield row.id, group != before
        before = group


def outgoing(whole: StoredRollout, cleaner: Cleaner | None, with_tags: bool = True) -> Rollout:
    """The rollout as it is given away: redacted, and where the format has no table of facts, with
    people's labels and checks' flags in `meta`."""
    rollout = whole.rollout
    extra = {"labels": whole.labels, "flags": whole.flags} if with_tags else {}
    new = {name: tags for name, tags in extra.items() if tags and name not in rollout.meta}
    if new:
        rollout = msgspec.structs.replace(rollout, meta={**rollout.meta, **new})
    return rollout if cleaner is None else cleaner.rollout(rollout)
