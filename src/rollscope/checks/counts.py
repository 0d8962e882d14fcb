"""The table of checks: what each says about a selection, the worst first."""

from __future__ import annotations

from pathlib import Path

from ..query import Store
from ..query.findings import CheckCount
from .registry import known
from .settings import FILE, Settings


def counts(store: Store, query: str = "", settings: Settings | None = None) -> list[CheckCount]:
    """The numbers of every check, also of those that never looked.

    The worst come first: the record itself is wrong, then the largest share of what was looked at.
    """
    asked = store.findings(query)
    found = {count.check: count for count in asked.counts()}
    totals: dict[bool, int] = {}
    for id in enabled(store, settings) - found.keys():
        check = known()[id]
        of_steps = check.subject == "step"
        if of_steps not in totals:
            totals[of_steps] = asked.total(of_steps)
        found[id] = CheckCount(
            check=id, kind=check.kind, subject=check.subject, means=check.means,
            unlooked=totals[of_steps],
        )  # fmt: skip
    return sorted(found.values(), key=_badness)


def enabled(store: Store, settings: Settings | None = None) -> set[str]:
    """The checks that look at any project of a store."""
    settings = settings or Settings(Path(store.reader.root) / FILE)
    projects = {run.project for run in store.reader.runs()} or {""}
    return {bound.check.id for project in projects for bound in settings.bound(project)}


def _badness(count: CheckCount) -> tuple[bool, float, str]:
    looked = count.found + count.clear
    is_wrong = count.kind == "record" and count.found > 0
    return not is_wrong, -count.found / looked if looked else 0.0, count.check
