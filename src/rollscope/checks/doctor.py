"""Is everything recorded, readable and right?

`examine(reader)` looks for lost data, unreadable files and things that do not fit together. It
describes each in plain words and says what to do.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from ..adapters._trainers import TRAINERS, found
from ..model.counted import counted
from ..model.tokens import KNOWN_STREAMS
from ..sinks import state as states
from ..store import listing, paths, writers
from ..store.carry import state as carry
from ..store.carry.home import was_away
from ..store.fold import left_out
from ..store.read.reader import Reader
from ..store.runs import RunInfo
from ..store.writers import WriterInfo

Level = Literal["ok", "note", "warning", "error"]

Launch = tuple[str, str, str]
"""Project, run, and the launch's name."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that the doctor found."""

    level: Level
    """`error`: data was lost or cannot be read. `warning`: look into it. `note`: good to know."""
    text: str
    run: str | None = None
    """`project/run`; None: the store."""
    advice: str | None = None


def examine(reader: Reader, *, deep: bool = False) -> Iterator[Finding]:
    """Everything worth saying about a store, the writers of each run first. `deep`: every sealed
    file is read and compared with its checksum."""
    reader.refresh()
    unread: dict[str, str] = {}
    infos = reader.writers(unread)
    counts = {} if all(info.finished for info in infos) else _found(reader)
    for info in infos:
        yield from _writer(info, counts.get(info.writer, 0))
    if not infos and not unread:
        yield from _trainers()
    for run in reader.runs():
        yield from _killed(run)
        yield from _cut(run)
        yield from _carried(run, counts)
        yield from _sinks(run)
    asked = [
        *_orphans(reader),
        *_left_out(reader),
        *_doubles(reader),
        *_launches(reader, infos),
        *_misfits(reader),
    ]
    for problem in reader.problems():  # also those that were met while we asked
        yield Finding("error", f"{problem.path}: {problem.text}")
    for path, why in (unread | (reader.damage() if deep else {})).items():
        yield Finding("error", f"{path}: {why}")
    yield from asked


def _rows(reader: Reader, sql: str) -> list[tuple[Any, ...]]:
    return reader.reading(lambda db: db.execute(sql).fetchall())


def _trainers() -> Iterator[Finding]:
    """Nothing is recorded yet: what could be, in this environment?"""
    installed = found()
    for trainer, version in installed:
        is_supported, words = trainer.about(version)
        level: Level = "note" if is_supported else "warning"
        advice = f"type: {trainer.how}   (docs/trainers/{trainer.page}.md)"
        text = f"{trainer.name} {version} is installed: {words}"
        yield Finding(level, text, advice=advice if is_supported else None)
    if not installed:
        names = ", ".join(trainer.name for trainer in TRAINERS)
        yield Finding("note", f"none of these is installed in this environment: {names}")


def _found(reader: Reader) -> dict[str, int]:
    """How many rollouts of each writer can be read. A writer that ended without finishing counted
    them only up to its last heartbeat."""
    return dict(_rows(reader, "SELECT writer, count(*) FROM rollouts GROUP BY writer"))


def _writer(info: WriterInfo, found: int) -> Iterator[Finding]:
    run, name, counters = f"{info.project}/{info.run}", info.writer, info.counters
    state = _state(info)
    recorded = counted(max(counters.recorded, found), "rollout")
    if state in (_FINISHED, _WRITING):  # else nobody counted after the last heartbeat
        recorded += f", {counters.bytes / 1e6:.1f} MB"
    through = "; ".join(
        f"{a.name} {a.version or ''}".strip() + (f" ({', '.join(a.seams)})" if a.seams else "")
        for a in info.adapters
    )
    yield Finding("ok", f"{name}: {state}; {recorded}{'; ' + through if through else ''}", run)
    for reason, count in counters.dropped.items():
        yield Finding(
            "error", f"{name}: {counted(count, 'rollout')} lost: {reason}", run, _ADVICE.get(reason)
        )
    for reason, count in counters.dropped_other.items():
        yield Finding("error", f"{name}: {count:,} facts, metrics or pieces lost: {reason}", run)
    if counters.sampled_out:
        yield Finding("note", f"{name}: {counters.sampled_out:,} left out by sampling", run)
    for problem in info.problems:
        times = f" ({problem.count:,} times)" if problem.count > 1 else ""
        yield Finding("warning", f"{name}: {problem.text}{times}", run)


def _killed(run: RunInfo) -> Iterator[Finding]:
    """Nobody can count what a killed process had not handed to the disk yet."""
    infos = writers.read_infos(run.directory).values()
    killed = sum(1 for info in infos if info.finished is None and writers.is_gone(info))
    if killed:
        yield Finding(
            "note",
            f"{counted(killed, 'process')} ended without finishing, so what was logged in the last "
            "50 ms may be lost",
            f"{run.project}/{run.run}",
            "`with multiprocessing.Pool()` kills its workers: end it by `close()` and `join()`, "
            "or call `rollscope.finish()` in them",
        )


def _cut(run: RunInfo) -> Iterator[Finding]:
    """Logs that are shorter than their writer left them, or gone without having been sealed."""
    where = f"{run.project}/{run.run}"
    carried = {name for state in carry.read_all(run.directory) for name in state.writers}
    is_away = was_away(run.directory)  # then what is not here is at home
    for info in writers.read_infos(run.directory).values():
        if info.writer in carried or (is_away and info.carried):
            continue
        for log, end in info.ends.items():
            path = run.directory / "live" / (log + paths.LOG_ENDING)
            try:
                size = None if paths.is_gone(path) else path.stat().st_size
            except OSError:
                continue  # it cannot be looked at, as the problems of the store say
            if size is None and listing.taken(run.directory, log) is None:
                yield Finding(
                    "error", f"{path} was removed: {counted(end, 'byte')} had been written", where
                )
            elif size is not None and size < end:
                text = f"{path} was cut: {end:,} bytes were written, {size:,} are there"
                yield Finding("error", text, where, "what is missing can only come from a copy")


_SILENT = 120.0
"""Seconds without an answer from a node after which nobody seems to fetch from it."""


def _carried(run: RunInfo, found: Mapping[str, int]) -> Iterator[Finding]:
    """What has come from other nodes, and what has not, by node."""
    where = f"{run.project}/{run.run}"
    infos = writers.read_infos(run.directory)
    for state in carry.read_all(run.directory):
        name = f"node {state.node[:8]} ({state.host})"
        wrote = [infos[writer] for writer in state.writers if writer in infos]
        ends = {log.removesuffix(paths.LOG_ENDING): there for log, (_, there) in state.left.items()}
        for info in wrote:
            ends |= {log: max(end, ends.get(log, 0)) for log, end in info.ends.items()}
        lacking = sum(max(0, end - _here(run, log)) for log, end in ends.items())
        lost = sum(max(0, i.counters.recorded - found.get(i.writer, 0)) for i in wrote if found)
        open_ = sum(info.finished is None for info in wrote)
        if state.is_shared:
            yield Finding(
                "ok", f"{name} shares this directory: nothing is carried from there", where
            )
        elif state.gone is not None:
            text = f"{name} went away: {lacking:,} bytes that it had written are not here"
            text += f", and {lost:,} of the rollouts that it had counted"
            if open_:
                text += (
                    f"; what its {open_:,} processes wrote in their last 100 ms may be lost, too"
                )
            level: Level = "error" if lacking or lost else "warning" if open_ else "ok"
            yield Finding(level, text, where)
        elif state.heard is None:
            why = f": {state.problem}" if state.problem else ""
            yield Finding("warning", f"{name}: nothing has come from there yet{why}", where)
        elif lacking and time.time() - (state.heard or 0.0) > _SILENT:
            why = f" ({state.problem})" if state.problem else ""
            text = f"{name}: {lacking:,} bytes are still there, and nobody carries them{why}"
            advice = f"record this run on that node again, or copy the files of {state.directory}"
            yield Finding("warning", text, where, advice)
        else:
            rest = f"; {lacking:,} bytes are on their way" if lacking else ""
            yield Finding("ok", f"{name}: carried here by Ray{rest}", where)


def _here(run: RunInfo, log: str) -> int:
    """How many bytes of a log are in this store, sealed or not."""
    path = run.directory / "live" / (log + paths.LOG_ENDING)
    try:
        return path.stat().st_size
    except OSError:
        return listing.taken(run.directory, log) or 0


def _sinks(run: RunInfo) -> Iterator[Finding]:
    """How far the run is forwarded, and what is in the way."""
    where = f"{run.project}/{run.run}"
    for name, state in states.read_all(run.directory).items():
        yield Finding("ok", f"sink {name}: {states.words(state)}", where)
        rest = f"rollscope export {name} project:{run.project} run:{run.run}"
        trouble = states.trouble(state)
        if trouble is not None:
            yield Finding("warning", f"sink {name}: {trouble}", where)
        if state.counts.waiting and not states.is_forwarding(run.directory, name):
            text = f"sink {name}: {state.counts.waiting:,} are not sent, and no process sends them"
            yield Finding("warning", text, where, rest)
        if state.counts.gave_up:
            text = (
                f"sink {name}: it refused {counted(state.counts.gave_up, 'rollout')} for good; "
                f"the last time it said: {state.gave_up_why}"
            )
            yield Finding("warning", text, where, f"{rest} --again")
        if state.not_updated_why:
            text = f"sink {name}: it took rollouts without some of their facts, and said: "
            yield Finding("warning", text + state.not_updated_why, where)
        for note in state.notes:
            yield Finding("warning", f"sink {name}: {note}", where)


_ADVICE = {
    "queue full": "record fewer (Sample) or raise ROLLSCOPE_QUEUE",
    "disk full": "free space, or lower ROLLSCOPE_MIN_FREE if you must",
}


_FINISHED, _WRITING = "finished", "writing"


def _state(info: WriterInfo) -> str:
    if info.finished is not None:
        return _FINISHED
    if info.place == writers.place():
        return "ended without finishing" if writers.is_gone(info) else _WRITING
    return f"on {info.host}; it is not known whether it still writes"


def _orphans(reader: Reader) -> Iterator[Finding]:
    """Facts whose rollout never showed up."""
    (found,) = _rows(
        reader,
        "SELECT count(*), count(DISTINCT f.rollout), min(f.rollout) FROM facts f "
        "WHERE NOT EXISTS (SELECT 1 FROM rollouts r WHERE r.id = f.rollout)",
    )
    if found[0]:
        yield Finding(
            "warning",
            f"{counted(found[0], 'fact')} about {counted(found[1], 'rollout')} never logged, "
            f"e.g. {found[2]}; kept",
            advice="the process that logs and the one that annotates must share launch and key",
        )


def _left_out(reader: Reader) -> Iterator[Finding]:
    """Facts that are shown nowhere, because there is no place that could hold them."""
    for kind, why, count, example in _rows(reader, left_out()):
        yield Finding(
            "warning",
            f"{counted(count, f'{kind} fact')} {why}, e.g. of {example}; kept, but not shown",
        )


def _doubles(reader: Reader) -> Iterator[Finding]:
    """Rollouts that were logged more than once under one id."""
    (found,) = _rows(
        reader,
        "SELECT count(*), min(id) FROM (SELECT id FROM rollouts GROUP BY id HAVING count(*) > 1)",
    )
    if found[0]:
        yield Finding(
            "warning",
            f"{counted(found[0], 'id')} logged more than once, e.g. {found[1]}",
            advice="a key must name one rollout of its launch: add step, split or attempt to it",
        )


def _launches(reader: Reader, infos: Iterable[WriterInfo]) -> Iterator[Finding]:
    """What each launch logged against what is there of it, and what of that is shown."""
    logged: Counter[Launch] = Counter()
    unknown = set()  # a writer that has not finished may have counted less than it wrote
    for info in infos:
        logged[info.project, info.run, info.launch] += info.counters.recorded
        if info.finished is None:
            unknown.add((info.project, info.run, info.launch))
    found = _rows(
        reader,
        "SELECT project, run, launch, count(*), count(*) FILTER (NOT superseded) "
        "FROM rollouts GROUP BY ALL ORDER BY min(time)",
    )
    counts = {(p, r, launch): (there, shown) for p, r, launch, there, shown in found}
    for place, number in logged.items():
        there = counts.get(place, (0, 0))[0]
        if number > there and place not in unknown:
            yield Finding(
                "warning",
                f"launch {place[2]} logged {number:,} rollouts, and {there:,} are there",
                f"{place[0]}/{place[1]}",
                "if no file was lost, several had one id. A key must name one rollout of its "
                "launch: add step, split or attempt to it",
            )
    yield from _shared_steps(reader, counts)


_MOST_LAUNCHES = 5


def _shared_steps(reader: Reader, counts: Mapping[Launch, tuple[int, int]]) -> Iterator[Finding]:
    """Steps that several launches made: a restart repeated them, or a script ran again."""
    rows = _rows(
        reader,
        "SELECT project, run, min(step), max(step), count(*), max(n) FROM ("
        "  SELECT project, run, split, step, count(DISTINCT launch) AS n FROM rollouts "
        "  WHERE step IS NOT NULL GROUP BY ALL HAVING n > 1) GROUP BY ALL ORDER BY 1, 2",
    )
    for project, run, first, last, steps, launches in rows:
        where = f"step {first}" if first == last else f"{steps} steps between {first} and {last}"
        own = [(name, *n) for (p, r, name), n in counts.items() if (p, r) == (project, run)]
        told = [f"{name} logged {there:,}, {shown:,} shown" for name, there, shown in own]
        if len(own) > _MOST_LAUNCHES:
            told = ["...", *told[-_MOST_LAUNCHES:]]
        is_hidden = any(shown < there for _, there, shown in own)
        yield Finding(
            "note",
            f"{where} were made by up to {launches} launches: {'; '.join(told)}",
            f"{project}/{run}",
            "what a later launch made again is shown with `launch:` in a query"
            if is_hidden
            else "each has groups of its own",
        )


def _misfits(reader: Reader) -> Iterator[Finding]:
    """Streams whose length is not that of their message's tokens: they would be shifted."""
    wrong = " OR ".join(f"len({n}) <> len(token_ids)" for n in (*KNOWN_STREAMS, "token_ends"))
    (found,) = _rows(
        reader,
        f"SELECT count(*), min(rollout) FROM messages WHERE token_ids IS NOT NULL AND ({wrong})",
    )
    if found[0]:
        yield Finding(
            "warning",
            f"{counted(found[0], 'message')} with a stream of another length than the tokens, "
            f"e.g. in {found[1]}",
            advice="the adapter or loop that logs them pairs arrays that do not belong together",
        )
