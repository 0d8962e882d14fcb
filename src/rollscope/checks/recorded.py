"""What the doctor tells of the checks that ask whether the record is right: what they found, how
much they could look at, and which of them broke. It only reads what a scan has stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ..model.counted import counted
from ..query import Store
from ..query.findings import CheckCount
from .counts import counts
from .doctor import Finding

KIND = "record"


def recorded(store: Store) -> Iterator[Finding]:
    """Everything that stored findings say about the record."""
    checks = [count for count in counts(store) if count.kind == KIND]
    yield from _found(store, {count.check: count for count in checks})
    yield from _of_steps(store, checks)
    yield from _coverage(checks)
    yield from _broken(store)


def _found(store: Store, checks: dict[str, CheckCount]) -> Iterator[Finding]:
    """What was found and nobody dismissed, by run."""
    rows = store.reader.reading(
        lambda db: (
            db.cursor()
            .execute(
                'SELECT r."project", r."run", f."check", count(DISTINCT r.id), min(r.id) '
                "FROM flagged f JOIN rollouts r ON r.id = f.rollout WHERE NOT r.superseded "
                'AND f."check" IN (SELECT unnest(?::VARCHAR[])) GROUP BY ALL ORDER BY 1, 2, 4 DESC',
                [list(checks)],
            )
            .fetchall()
        )
    )
    for project, run, id, found, example in rows:
        yield Finding(
            "error",
            f"{id}: {counted(found, 'rollout')}, e.g. {example}. {checks[id].means}",
            f"{project}/{run}",
            f"rollscope findings 'project:{project} run:{run}' --check {id}",
        )


def _of_steps(store: Store, checks: Sequence[CheckCount]) -> Iterator[Finding]:
    """What was found of steps: where, and what."""
    for count in checks:
        if count.subject != "step" or not count.found:
            continue
        by_run = groupby(store.findings().of(count.check), key=lambda f: (f.project, f.run))
        for (project, run), (first, *others) in by_run:
            more = f" (and {len(others):,} more)" if others else ""
            yield Finding(
                "error",
                f"{count.check}: step {first.step}: {first.text}{more}. {count.means}",
                f"{project}/{run}",
                f"rollscope findings 'project:{project} run:{run}' --check {count.check}",
            )


def _coverage(checks: Sequence[CheckCount]) -> Iterator[Finding]:
    """How much of the record was looked at. What nobody looked at is not called right."""
    looked = [count for count in checks if count.found or count.clear or count.unobserved]
    unlooked = max((count.unlooked for count in checks if count.subject != "step"), default=0)
    if not unlooked and not looked:
        return  # there are no rollouts
    if not looked:
        text = "no check has looked yet whether the record is right"
        yield Finding("note", text, advice="rollscope doctor --scan")
        return
    seen = [count for count in looked if count.found or count.clear]
    bad = sum(1 for count in seen if count.found)
    text = (
        f"{counted(len(seen), 'check')} looked whether the record is right; {bad:,} found something"
    )
    yield Finding("ok", text)
    blind = sorted(count.check for count in looked if not (count.found or count.clear))
    if blind:
        text = "could not look, because the evidence was not recorded:"
        text = f"{counted(len(blind), 'check')} {text} {', '.join(blind)}"
        yield Finding("note", text, advice="docs/checks.md says what each needs")
    if unlooked:
        text = f"{counted(unlooked, 'rollout')} that not every check has looked at"
        yield Finding("note", text, advice="rollscope doctor --scan")


def _broken(store: Store) -> Iterator[Finding]:
    """Checks that raised an error, as the newest scan of each run tells it."""
    for unit in store.reader.found.all_units:
        for id, broken in unit.info.broken.items():
            where = f", e.g. with {broken.rollout}" if broken.rollout else ""
            text = (
                f"the check {id} is broken: {broken.error} ({counted(broken.count, 'time')}{where})"
            )
            run = unit.directory.parent.parent
            info = next((r for r in store.reader.runs() if r.directory == run), None)
            yield Finding("warning", text, info and f"{info.project}/{info.run}")
