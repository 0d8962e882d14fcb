"""What checks found in a selection: four numbers for each check, and the findings themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from rollscope.model import Finding, show

from .compile import Query
from .engine import Engine, select
from .sql import Sql

_STEP = '({0}."project", {0}."run", {0}."split", {0}."step")'
"""A step of a run."""

_FIELDS = tuple(name for name in Finding.__struct_fields__ if name not in ("step", "split"))


class CheckCount(msgspec.Struct, kw_only=True):
    """How many rollouts of a selection a check found something in. The four numbers add up to all
    rollouts of the selection."""

    check: str
    kind: str
    """`record`: is the record right? `behaviour`: what did the policy do? `run`: how does it go?"""
    subject: str
    """What it looks at: `rollout`, `group`; of a `step`, it is steps that are counted."""
    means: str
    """What a finding means, and why it matters."""
    found: int = 0
    clear: int = 0
    unobserved: int = 0
    """The evidence is not there."""
    unlooked: int = 0
    """Nobody has looked yet."""


State = Literal["found", "clear", "unobserved", "unlooked"]


class StoredFinding(Finding, frozen=True, kw_only=True):
    """A finding, and where it belongs."""

    project: str | None = None
    run: str | None = None


class Findings:
    """What `store.findings(...)` gives: count it, iterate it, or ask about one check.

    >>> found = store.findings("split:train")
    >>> for check in found.counts():
    ...     print(check.check, check.found, check.clear, check.unobserved, check.unlooked)
    >>> for finding in found.of("reply.loop"):
    ...     print(finding.rollout, finding.message, finding.text)
    """

    def __init__(self, engine: Engine, query: Query, check: str | None = None) -> None:
        self._engine = engine
        self.query = query
        self.check = check

    def __repr__(self) -> str:
        only = "" if self.check is None else f", {self.check}"
        return f"Findings({self.query.text!r}{only})"

    def _repr_html_(self) -> str:
        names = ("check", "found", "clear", "unobserved", "unlooked")
        rows = ([getattr(count, name) for name in names] for count in self.counts())
        return show.table(names, rows)

    def of(self, check: str) -> Findings:
        """Only those of one check."""
        return Findings(self._engine, self.query, check)

    def __iter__(self) -> Iterator[StoredFinding]:
        """Findings that nobody dismissed, by check and step."""
        names = ("project", "run", "split", "step", *_FIELDS)
        picked = ", ".join(f't."{name}"' for name in names)
        also = Sql("TRUE") if self.check is None else Sql('t."check" = ?', (self.check,))
        ids = select(self.query, Sql('r."id"'))
        sql = Sql(
            f"SELECT {picked} FROM findings t WHERE {{}} AND (t.rollout IN ({{}}) "
            'AND (t."check", t.rollout) NOT IN (SELECT ("check", rollout) FROM flags.dismissed) '
            f"OR t.subject = 'step' AND {_STEP.format('t')} IN ({{}})) "
            'ORDER BY t."check", t.project, t.run, t.step NULLS LAST, t.rollout, '
            't.message, t."start"'
        )
        for batch in self._engine.batches(sql.fill(also, ids, self._steps()), 2048):
            for row in batch:
                yield StoredFinding(**dict(zip(names, row, strict=True)))

    def _steps(self) -> Sql:
        """The steps of the selection."""
        return Sql(f"SELECT DISTINCT {_STEP.format('s')} FROM ({{}}) s").fill(
            select(self.query, Sql('r."project", r."run", r."split", r."step"'))
        )

    def total(self, of_steps: bool = False) -> int:
        """How many rollouts, or steps of runs, the selection has."""
        count = select(self.query, Sql('count(r."superseded")'))
        if of_steps:
            count = Sql("SELECT count(*) FROM ({})").fill(self._steps())
        return int(self._engine.rows(count)[0][0])

    def counts(self) -> list[CheckCount]:
        """The numbers of each check that has looked at anything, by kind and id."""
        known = self._engine.reader.found.checks
        if self.check is not None:
            known = {self.check: known[self.check]} if self.check in known else {}
        counts = {
            id: CheckCount(check=id, kind=s.kind, subject=s.subject, means=s.means)
            for id, s in known.items()
        }
        totals = {s: self.total(s) for s in {count.subject == "step" for count in counts.values()}}
        self._add_answers(counts)
        self._add_annotated(counts)
        for count in counts.values():
            of = totals[count.subject == "step"]
            count.unlooked = of - count.found - count.clear - count.unobserved
        return sorted(counts.values(), key=lambda c: (_KINDS.index(c.kind), c.check))

    def _add_answers(self, counts: dict[str, CheckCount]) -> None:
        """What the checks said. Most rollouts share their answer with many others."""
        looked = self._engine.reader.found.looked
        sql = Sql(
            "SELECT c.unit, c.subject, c.found, c.unobserved, count(*) FROM flags.rows c "
            f"WHERE c.rollout IN ({{}}) OR c.subject = 'step' AND {_STEP.format('c')} IN ({{}}) "
            "GROUP BY ALL"
        )
        for unit, subject, found, unobserved, n in self._engine.rows(
            sql.fill(select(self.query, Sql('r."id"')), self._steps())
        ):
            for id in looked[unit].get(subject, ()):
                if id in counts:
                    _add(counts[id], _state(id, found, unobserved), n)

    def _add_annotated(self, counts: dict[str, CheckCount]) -> None:
        """What people said wins: a flag that they set counts as found, one that they took back as
        clear."""
        chosen = select(self.query, Sql('r."id" AS id, r."flags" AS flags'))
        sql = Sql(
            "WITH chosen AS MATERIALIZED ({}), said AS ("
            "SELECT id, unnest(flags) AS \"check\", 'found' AS now FROM chosen UNION ALL "
            "SELECT rollout, \"check\", 'clear' FROM flags.dismissed "
            "WHERE rollout IN (SELECT id FROM chosen)) "
            "SELECT s.\"check\", s.now, CASE WHEN c.rollout IS NULL THEN 'unlooked' "
            "WHEN list_contains(c.found, s.\"check\") THEN 'found' "
            "WHEN list_contains(c.unobserved, s.\"check\") THEN 'unobserved' ELSE 'clear' END "
            'AS before, count(*) FROM said s LEFT JOIN (SELECT c.*, l."check" FROM flags.rows c '
            "JOIN flags.looked l ON l.unit = c.unit AND l.subject = c.subject) c "
            'ON c.rollout = s.id AND c."check" = s."check" GROUP BY ALL'
        )
        for id, now, before, n in self._engine.rows(sql.fill(chosen)):
            if id in counts and now != before and not (now == "clear" and before != "found"):
                _add(counts[id], before, -n)
                _add(counts[id], now, n)


_KINDS = ("record", "behaviour", "run")


def _state(id: str, found: list[str], unobserved: list[str]) -> State:
    if id in found:
        return "found"
    return "unobserved" if id in unobserved else "clear"


def _add(count: CheckCount, state: State, n: int) -> None:
    if state != "unlooked":
        setattr(count, state, getattr(count, state) + n)


def alarms(engine: Engine, project: str | None, run: str) -> list[StoredFinding]:
    """What checks found in the steps of a run, in the order of the steps."""
    if not engine.reader.found.units:
        return []
    names = ("project", "run", "split", "step", *_FIELDS)
    picked = ", ".join(f't."{name}"' for name in names)
    sql = Sql(
        f"SELECT {picked} FROM findings t "
        "WHERE t.subject = 'step' AND t.run = ? AND t.project = coalesce(?, t.project) "
        'ORDER BY t.step, t.split, t."check", t.text',
        (run, project),
    )
    return [StoredFinding(**dict(zip(names, row, strict=True))) for row in engine.rows(sql)]


def of_rollout(engine: Engine, id: str) -> list[Finding]:
    """What was found about one rollout and nobody dismissed, in the order of its messages."""
    names = ", ".join(f't."{name}"' for name in _FIELDS)
    sql = Sql(
        f'SELECT {names} FROM findings t WHERE t.rollout = ? AND (t."check", t.rollout) NOT IN '
        '(SELECT ("check", rollout) FROM flags.dismissed) '
        'ORDER BY t.message NULLS FIRST, t."start" NULLS FIRST, t."check"',
        (id,),
    )
    if not engine.reader.found.units:
        return []
    return [Finding(**dict(zip(_FIELDS, row, strict=True))) for row in engine.rows(sql)]
