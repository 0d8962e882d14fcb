"""`rollscope.open()`: everything that was recorded, to be read from Python.

>>> store = rollscope.open()                    # $ROLLSCOPE_DIR, else ~/.rollscope
>>> for row in store.rollouts("reward:<0.2 split:eval", order="-advantage", limit=50):
...     print(row.id, row.step, row.reward)
>>> rollout = store.get(row.id)                 # whole, with messages and tokens
>>> store.rollouts("fate:dropped").to_polars()
>>> store.sql("SELECT step, avg(reward) FROM rollouts GROUP BY step ORDER BY step").fetchall()
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rollscope.model import Finding, Message, Rollout, Span
from rollscope.model.algorithm import Algorithm
from rollscope.model.solved import SOLVED, Kind

from . import facets as counted
from . import findings, flags, groups, guarded, named, notes, overview, writing
from . import runs as run_list
from . import tasks as task_list
from .compile import Query, compile_query
from .engine import Engine
from .errors import NotFound
from .facets import FACETS, HISTOGRAMS, Facet, FacetValue, Histogram, StepHistogram
from .findings import Findings, StoredFinding
from .groups import Neighbours
from .matrix import Matrix
from .matrix import matrix as make_matrix
from .named import NamedKey
from .notes import Note
from .order import DEFAULT_ORDER, parse_order
from .overview import Failure, RibbonStep, Tally, exactly, joined
from .results import Result
from .rows import COLUMNS, OpenedRollout, Row, Rows
from .runs import RunSummary
from .search import Search
from .selection import Selection
from .sql import Sql
from .tasks import Task
from .writing import Written

if TYPE_CHECKING:
    from rollscope.store.read.bodies import Sketch, StoredRollout
    from rollscope.store.read.reader import Reader

T = TypeVar("T")

_HISTORY = "run,split,step,index"


class Store:
    """All runs under one directory. Cheap to keep; each question sees what is new."""

    def __init__(
        self, dir: str | os.PathLike[str] | None = None, *, reader: Reader | None = None
    ) -> None:
        if reader is None:
            from rollscope.store.read.reader import Reader as StoreReader

            place = os.fspath(dir) if dir is not None else None
            if place is not None and "://" in place:
                from rollscope.store.read.far import Far

                reader = StoreReader(far=Far(place))
            else:
                reader = StoreReader(place)
        self.reader = reader
        self.engine = Engine(reader)

    def __repr__(self) -> str:
        far = getattr(self.reader, "far", None)
        return f"Store({far.url if far is not None else getattr(self.reader, 'root', '')!s})"

    def close(self) -> None:
        """Give back memory and temporary files."""
        self.reader.close()

    @property
    def version(self) -> int:
        """Goes up whenever a question, or `refresh`, has found something new in the store."""
        return self.reader.version

    def refresh(self) -> bool:
        """See whether anything is new. Every question does this by itself."""
        return self.reader.refresh()

    def runs(self) -> list[RunSummary]:
        """The runs, with their projects, counts and times; the newest last."""
        self.reader.refresh()
        return run_list.runs(self.engine, self.reader.runs())

    def algorithm(
        self, run: str, launch: str | None = None, *, project: str | None = None
    ) -> Algorithm | None:
        """What the trainer's settings say about rewards, advantages and the loss.

        Those of a launch, or else of the newest one. None: no adapter knows them.
        """
        self.reader.refresh()
        return run_list.algorithm(self.reader.runs(), run, launch, project)

    def live_runs(self) -> set[tuple[str, str]]:
        """Project and name of each run that a process is still writing to."""
        return run_list.live(self.reader.writers())

    def rollouts(
        self,
        query: str = "",
        *,
        order: str | Sequence[str] = DEFAULT_ORDER,
        limit: int | None = None,
        columns: Sequence[str] = COLUMNS,
    ) -> Selection:
        """The rollouts that a query finds (docs/query.md), newest first. Read when needed.

        `order`: keys, `-` before one for the greatest first: `"-advantage"`, `"step,index"`.
        `columns`: fewer are faster.
        """
        _check_columns(columns)
        _check_limit(limit)
        compiled = self._compiled(query)  # the selection looks for what is new when it is read
        return Selection(self.engine, compiled, parse_order(order), limit, columns)

    def query(self, text: str) -> Query:
        """Compile a query and try its patterns, over the newest state of the store."""
        self.reader.refresh()
        return self._compiled(text)

    def _compiled(self, text: str) -> Query:
        compiled = compile_query(text)
        self.engine.check(compiled)
        return compiled

    def search(
        self, query: str, *, columns: Sequence[str] = COLUMNS, limit: int | None = None
    ) -> Search:
        """The same rollouts, reported while the search goes on: for text searches.

        >>> search = store.search('"sys.exit(0)"')
        >>> for found in search:
        ...     print(found.rows, found.scanned / found.total)    # search.cancel() ends it
        """
        _check_limit(limit)
        return Search(self.engine, self.query(query), columns, limit)

    def find(self, id: str) -> str:
        """The whole id of the rollout that an id, or the beginning of exactly one, names."""
        self.reader.refresh()
        exact = self.engine.rows(Sql('SELECT r."id" FROM rollouts r WHERE r."id" = ?', (id,)))
        if exact:
            return id
        like = 'SELECT DISTINCT r."id" FROM rollouts r WHERE starts_with(r."id", ?) LIMIT 4'
        found = sorted(row[0] for row in self.engine.rows(Sql(like, (id,)))) if id else []
        if not found:
            raise NotFound(f"no rollout {id!r}")
        if len(found) > 1:
            shown = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
            raise NotFound(f"{id!r} is the beginning of several ids: {shown}")
        return str(found[0])

    def row(self, id: str) -> Row:
        """The thin row of a rollout, superseded or not."""
        return self._named(id, groups.row)

    def get(self, id: str) -> Rollout:
        """A whole rollout by its id, or by the beginning of its id if no other rollout's begins
        so."""
        self.reader.refresh()
        rollout = self.reader.get(id)
        if rollout is None:
            rollout = self.reader.get(self.find(id))
        if rollout is None:
            raise NotFound(f"no rollout {id!r}")
        return rollout

    # -- one rollout, in pieces ------------------------------------------------------------

    def opened(self, id: str, most: int) -> OpenedRollout:
        """The thin row of a rollout; the whole as well, if it has at most `most` messages."""
        self.reader.refresh()
        found = self.reader.opened(id, most) or self.reader.opened(self.find(id), most)
        if found is None:
            raise NotFound(f"no rollout {id!r}")
        row = Row(COLUMNS, [found.row[name] for name in COLUMNS])
        flags.added(self.engine, [(row.id, row)])
        return OpenedRollout(row, found.rollout)

    def outline(self, id: str) -> list[Sketch]:
        """Every message of a rollout in a few words and numbers, without its body."""
        return self.reader.outline(id)

    def messages(self, id: str, first: int = 0, stop: int | None = None) -> list[Message]:
        """Messages `first` up to, not including, `stop` of a rollout; the rest is not read."""
        return self.reader.messages(id, first, stop)

    def written(self, id: str) -> list[Written]:
        """When each message of a rollout was written, and by which versions of the policy."""
        return writing.written(self.engine, id)

    def spans(self, id: str) -> list[Span]:
        """All spans of a rollout."""
        return self.reader.spans(id)

    def count_spans(self, id: str) -> int:
        """How many spans a rollout has."""
        sql = Sql("SELECT count(*) FROM spans s WHERE s.rollout = ?", (id,))
        return int(self.engine.rows(sql)[0][0])

    def notes(self, id: str) -> list[Note]:
        """Labels, flags and notes about a rollout and its messages, as they hold now."""
        return notes.notes(self.engine, id)

    def findings_of(self, id: str) -> list[Finding]:
        """What checks found about a rollout, dismissed or not, in the order of its messages."""
        return findings.of_rollout(self.engine, self.find(id))

    # -- many rollouts ---------------------------------------------------------------------

    def through(self, ids: Iterable[str]) -> Iterator[StoredRollout]:
        """Whole rollouts (`.rollout`), one after the other, however many: faster than `get`."""
        from rollscope.store.read.outgoing import outgoing

        self.reader.refresh()
        return outgoing(self.reader, ids, has_tags=False)

    def files(self, table: str) -> list[str]:
        """The exact list of Parquet files of a table, for other engines."""
        self.reader.refresh()
        return [str(path) for path in self.reader.files(table)]

    def to_ray(self, query: str = "", *, columns: Sequence[str] = COLUMNS) -> Any:
        """The rollouts that a query finds as a `ray.data.Dataset` of thin rows, in no order.

        >>> store.to_ray("split:eval", columns=["step", "reward"]).groupby("step").mean("reward")

        Tasks of Ray read them from the same files, each some row groups and the columns that are
        asked for. All nodes must see the store. `pip install 'rollscope[ray]'`
        """
        from .on_ray import rollouts

        _check_columns(columns)
        return rollouts(self, query, columns)

    def sql(self, statement: str, params: Sequence[Any] = ()) -> Result:
        """Run one SELECT over the views `rollouts`, `messages`, `spans`, `facts`, `metrics`.

        It cannot write, read any other file, or change a setting.
        """
        self.reader.refresh()
        return guarded.run(self.reader, statement, params)

    def _named(self, id: str, ask: Callable[[Engine, str], T]) -> T:
        """The answer of `ask` about the rollout with this id. Most ids are whole, and then there is
        no need to look for ids that begin so."""
        self.reader.refresh()
        try:
            return ask(self.engine, id)
        except KeyError:
            return ask(self.engine, self.find(id))

    # -- groups and tasks ------------------------------------------------------------------

    def group(self, id: str) -> Rows:
        """The rollouts of a rollout's group, itself included, in the order of their index."""
        return self._named(id, groups.siblings)

    def neighbours(self, id: str) -> Neighbours:
        """The groups before and after a rollout's, and its task at other steps, as ids."""
        return self._named(id, groups.neighbours)

    def mixed(self, query: str = "") -> str | None:
        """A rollout of the newest group whose rewards differ; None: there is none."""
        return groups.mixed(self.engine, self.query(query))

    def tasks(
        self,
        query: str = "",
        *,
        kind: Kind | None = None,
        solved: float = SOLVED,
        limit: int = 1000,
    ) -> list[Task]:
        """Tasks over time. `kind`: `flipped`, `regressed`, `mixed`, `never` or `always` solved, or
        `not scored`; every task is of one kind."""
        return task_list.tasks(self.engine, self.query(query), kind, solved, limit)

    def matrix(
        self,
        query: str = "",
        across: str = "",
        *,
        order: str = "-spread",
        base: str = "",
        other: str = "",
        solved: float = SOLVED,
        limit: int = 1000,
        at: int = 0,
    ) -> Matrix:
        """Tasks against the values of a key: `run`, `step`, `meta.model`; many steps as ranges.

        >>> found = store.matrix("project:evals", order="-difference", base="run:a", other="run:b")
        >>> for task in found.tasks:
        ...     print(task.task, {found.columns[c.column].name: c.rate for c in task.cells})

        `across`: empty, runs if there are several, else steps. `base`, `other`: the `q` of two
        columns, whose difference is told. `order`: `task`, `rollouts`, `rate`, `spread` (between
        the columns) or `difference`, `-` before it for the greatest first.
        """
        _check_limit(limit)
        compiled = self.query(query)
        return make_matrix(self.engine, compiled, across, order, base, other, limit, at, solved)

    def with_previews(self, tasks: Sequence[Task]) -> list[Task]:
        """The same tasks, each with the beginning of its prompt."""
        return task_list.with_previews(self.engine, tasks)

    def task_history(
        self,
        task: str | int,
        dataset: str | None = None,
        query: str = "",
        *,
        limit: int | None = None,
        columns: Sequence[str] = COLUMNS,
    ) -> Selection:
        """Every rollout of one task, by run, split, step and place."""
        terms = [exactly("task", str(task))]
        terms += [exactly("dataset", dataset)] if dataset is not None else []
        found = joined(query, *terms)
        return self.rollouts(found, order=_HISTORY, limit=limit, columns=columns)

    # -- checks ----------------------------------------------------------------------------

    def findings(self, query: str = "") -> Findings:
        """What checks found in a selection: iterate it, or take its `counts()`.

        Nothing is computed here: `rollscope scan`, the viewer, or `rollscope.checks.scan` looks.
        """
        return Findings(self.engine, self.query(query))

    def alarms(self, run: str, project: str | None = None) -> list[StoredFinding]:
        """What checks found in the steps of a run, in the order of the steps. The `query` of each
        finds the rollouts that it is made of."""
        self.reader.refresh()
        return findings.alarms(self.engine, project, run)

    # -- at a glance -----------------------------------------------------------------------

    def facets(self, query: str = "", keys: Sequence[str] = FACETS, limit: int = 12) -> list[Facet]:
        """How often each value of these keys stands in a selection."""
        return counted.facets(self.engine, self.query(query), keys, limit)

    def histograms(
        self, query: str = "", keys: Sequence[str] = HISTOGRAMS, bars: int = 30
    ) -> list[Histogram]:
        """Histograms of these numbers over a selection."""
        return counted.histograms(self.engine, self.query(query), keys, bars)

    def histogram(
        self,
        query: str = "",
        key: str = "reward",
        bars: int = 30,
        low: float | None = None,
        high: float | None = None,
    ) -> Histogram:
        """One histogram, between bounds if they are given."""
        return counted.histogram(self.engine, self.query(query), key, bars, low, high)

    def histogram_by_step(
        self, query: str = "", key: str = "reward", bars: int = 20
    ) -> StepHistogram:
        """One histogram a step, all with the same bars."""
        return counted.by_step(self.engine, self.query(query), key, bars)

    def values(
        self, key: str, beginning: str = "", *, query: str = "", limit: int = 20
    ) -> list[FacetValue]:
        """Values of a key that begin so, the commonest first."""
        return counted.values(self.engine, self.query(query), key, beginning, limit)

    def named_keys(self, query: str = "") -> list[NamedKey]:
        """The keys below `rewards.` and `meta.` that rollouts of a selection have, by a sample."""
        return named.named_keys(self.engine, self.query(query))

    def ribbon(self, query: str = "") -> list[RibbonStep]:
        """Reward band, truncation, dead groups and errors of each step."""
        return overview.ribbon(self.engine, self.query(query))

    def funnel(self, query: str = "") -> list[Tally]:
        """generated → scored → kept → trained, with what was lost on the way and why."""
        return overview.funnel(self.engine, self.query(query))

    def fates(self, query: str = "") -> list[Tally]:
        """Where rollouts ended, each fate with its reasons; the commonest first."""
        return overview.fates(self.engine, self.query(query))

    def failures(self, query: str = "", examples: int = 3) -> list[Failure]:
        """Failures by whose fault they were and their type, with examples."""
        return overview.failures(self.engine, self.query(query), examples)

    def failure_kinds(self, failures: Iterable[Failure], query: str = "") -> list[Tally]:
        """Failures of a selection, only by whose fault they were; the commonest first."""
        return overview.failure_kinds(self.query(query), failures)

    def metrics(self, run: str, project: str | None = None) -> dict[str, list[tuple[int, float]]]:
        """The trainer's own numbers of a run, by name: (step, value) in order."""
        self.reader.refresh()
        return overview.metrics(self.engine, project, run)


def _check_columns(columns: Sequence[str]) -> None:
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown:
        raise ValueError(f"no such column: {', '.join(unknown)} (known: {', '.join(COLUMNS)})")


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 0:
        raise ValueError(f"limit is {limit}: it is at least 0, or None for all")


def open(dir: str | os.PathLike[str] | None = None) -> Store:
    """Open a store: a directory, else `$ROLLSCOPE_DIR`, else `~/.rollscope`.

    An address such as `s3://bucket/rollouts` is read where it lies: what a question needs comes
    here, through a bounded cache.
    """
    return Store(dir)
