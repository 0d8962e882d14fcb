"""Beginning and ending runs: `init` for people, `join` for adapters, forks, and the end of the
program."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..model.redact import Redactor, redact_text
from ..model.sample import Sample
from .carrying import placed
from .cluster import adopt, share
from .launch import export_launch
from .problems import guard, problems, report
from .run import Run
from .settings import setting
from .setup import Setup, resolve
from .trainings import has_ended, of_its_own

_lock = threading.RLock()
_runs: list[Run] = []
"""Runs of this process that are not finished; the last one is active."""
_trained: dict[str, set[Path]] = {}
"""By adapter: the runs that hold a training of this process, finished or not."""


def init(
    project: str | None = None,
    run: str | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    dir: str | Path | None = None,
    sample: Sample | None = None,
    redact: str | Redactor | Iterable[str | Redactor] | None = None,
    sinks: Iterable[str] | None = None,
    worker: str | None = None,
) -> Run:
    """Begin to record a run, or go on with one: the same names continue the same run.

    >>> run = rollscope.init(project="math", run="qwen3-4b-grpo")  # doctest: +SKIP

    `dir` is the store (default `$ROLLSCOPE_DIR`, else `~/.rollscope`), `config` any settings
    worth keeping, `sample` a cap on volume, `redact` what to clean out of texts, `sinks` other
    systems to forward to. Wrong arguments raise; afterwards nothing does. `ROLLSCOPE=off`
    gives a run that records nothing. Environment variables win over arguments; see
    docs/configuration.md.
    """
    adopt()
    setup = resolve(
        project,
        run,
        dir=dir,
        config=config,
        sample=sample,
        redact=redact,
        sinks=sinks,
        worker=worker,
    )
    if setting("ROLLSCOPE") is False:
        return Run(setup, is_off=True)
    run_ = _begin(setup)
    run_.is_own = True
    return run_


def active() -> Run | None:
    """The run that rollouts are recorded to, if any."""
    runs = _runs
    while runs:
        run = runs[-1]
        if run.is_on:
            return run
        with _lock:
            if run in runs:
                runs.remove(run)
    return None


def join(
    project: str | None = None,
    run: str | None = None,
    *,
    adapter: str,
    version: str | None = None,
    seams: Iterable[str] = (),
    asked: bool = False,
    config: Mapping[str, Any] | None = None,
    sample: Sample | None = None,
    named: bool = False,
    anew: bool = False,
) -> Run | None:
    """For adapters: the run of these names, or a new one if somebody asked for it, else None.

    People ask by `ROLLSCOPE=on` or by the trainer's own option (`asked`). `ROLLSCOPE=off` wins.
    Project and run are what the trainer calls them. A run that a person began by `init` is joined
    whatever these names are, unless a person gave them, too (`named`). Without names, the
    active run is joined. `anew`: a training begins here, and continues no other one; see
    `trainings`. Never raises.
    """
    with guard(f"adapter {adapter}: joining a run"):
        adopt()
        is_on = setting("ROLLSCOPE")
        if is_on is False:
            return None
        taken = _trained.setdefault(adapter, set()) if anew else set[Path]()
        joined = _known(project, run, named, taken)
        if joined is not None:
            joined.add_adapter(adapter, version, seams)
        elif asked or is_on:
            setup = resolve(project, run, config=config, sample=sample)
            setup = of_its_own(setup, taken) if anew else setup
            joined = _begin(setup, adapter, version, seams)
        if anew and joined is not None:
            taken.add(joined.directory)
            joined.trainings[adapter] += 1
        return joined
    return None


def _known(
    project: str | None, run: str | None, named: bool, taken: Collection[Path]
) -> Run | None:
    """The run of this process that these names mean, if there is one."""
    running = [known for known in reversed(_runs) if known.is_on]
    own = next((known for known in running if known.is_own), None)
    if own is not None and not named:
        return own
    wanted = setting("ROLLSCOPE_PROJECT") or project, setting("ROLLSCOPE_RUN") or run
    for known in running:
        names = known.project, known.setup.asked or known.name
        if known.directory not in taken and all(
            name in (None, its) for name, its in zip(wanted, names, strict=True)
        ):
            return known
    return None


def finish() -> None:
    """Write everything, and end the runs of this process, as the end of the program does.

    For notebooks, where the program does not end when the training does.
    """
    while (run := active()) is not None:
        run.finish()


def child_env() -> dict[str, str]:
    """Variables that let a process started elsewhere (a Ray actor) record into the same run."""
    run = active()
    if run is None:
        off = setting("ROLLSCOPE") is False
        return {"ROLLSCOPE": "off"} if off else {}
    setup = run.setup
    env = {
        "ROLLSCOPE": "on",
        "ROLLSCOPE_DIR": str(setup.root),
        "ROLLSCOPE_PROJECT": setup.project,
        "ROLLSCOPE_RUN": setup.run,
        "ROLLSCOPE_LAUNCH": setup.launch,
    }
    if setup.sample is not None:
        env["ROLLSCOPE_SAMPLE"] = str(setup.sample)
    if setup.sinks:
        env["ROLLSCOPE_SINKS"] = ";".join(setup.sinks)
    if setup.redact:
        env["ROLLSCOPE_REDACT"] = _redact_text(setup.redact)
    passed = "STREAMS QUEUE MIN_FREE MODE SEAL CARRY SINKS_WAIT STRICT QUIET"
    for name in passed.split():
        if os.environ.get(f"ROLLSCOPE_{name}"):
            env[f"ROLLSCOPE_{name}"] = os.environ[f"ROLLSCOPE_{name}"]
    return env


def _redact_text(redact: Any) -> str:
    """The redaction as a variable of the environment. A function without a name cannot be passed
    on. The other process then records nothing, rather than what should have been cleaned."""
    items = [redact] if isinstance(redact, str) or callable(redact) else list(redact)
    names = [
        item if isinstance(item, str) else f"{item.__module__}:{item.__qualname__}"
        for item in items
    ]
    if any(("<" in name and "=" not in name) or name.startswith("__main__:") for name in names):
        report(
            "redact",
            f"{', '.join(names)}: other processes cannot find such a function and will not record. "
            "Put it into a module and give its name: redact='module:function'",
        )
    return redact_text(names)


def _begin(
    setup: Setup,
    adapter: str | None = None,
    version: str | None = None,
    seams: Iterable[str] = (),
) -> Run:
    with _lock:
        for known in _runs:
            if known.is_on and known.directory == setup.directory:
                _runs.remove(known)
                _runs.append(known)
                return known
        run = Run(placed(setup))
        if adapter is not None:
            run.add_adapter(adapter, version, seams)
        _runs.append(run)
    _finish_with_multiprocessing()
    export_launch(setup.launch)
    had_ended = False
    with guard("run.start"):
        had_ended = has_ended(setup.directory)
    run.start(had_ended)
    share()
    return run


def _finish_all() -> None:
    # The exception that ended the program; multiprocessing calls this while it is on its way out.
    ended_by = getattr(sys, "last_value", None) or sys.exception()
    is_crash = ended_by is not None and not isinstance(ended_by, SystemExit)
    was_on = gc.isenabled()
    gc.disable()  # garbage may end the process: handles of Ray's actors do, once Ray is shut down
    try:
        for run in list(_runs):
            run.finish(is_crash=is_crash)
    finally:
        if was_on:
            gc.enable()
    _runs.clear()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()
    problems.forget()
    for run in _runs:
        run.after_fork()
    util = sys.modules.get("multiprocessing.util")
    if util is not None and _runs:
        util.register_after_fork(_runs[-1], lambda _: _finish_with_multiprocessing())


_finished_by: tuple[int, Any] | None = None


def _finish_with_multiprocessing() -> None:
    """Finish runs at the end of a child of multiprocessing. It does not call what was registered
    with atexit before the fork, but it calls its own finalizers."""
    global _finished_by
    process, util = map(sys.modules.get, ("multiprocessing.process", "multiprocessing.util"))
    if process is None or util is None or process.parent_process() is None:
        return
    if _finished_by is None or _finished_by[0] != os.getpid():
        _finished_by = os.getpid(), util.Finalize(None, _finish_all, exitpriority=0)


atexit.register(_finish_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
