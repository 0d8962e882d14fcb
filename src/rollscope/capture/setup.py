"""What a run is begun with: arguments and environment, resolved once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..model.normalise import plain, text
from ..model.redact import Redactor, clean_settings, make_redactor
from ..model.sample import Sample
from ..model.streams import Streams
from ..store import paths
from ..store.write.log import Limits
from ..store.writers import BEAT
from .launch import launch_name, worker_name
from .problems import report
from .settings import MIN_FREE, QUEUE, SINKS_WAIT, check_sinks, setting


class Setup(NamedTuple):
    project: str
    run: str
    launch: str
    worker: str
    root: Path
    asked: str | None = None
    """The run's name without the number that a training of its own got."""
    config: Any = None
    sample: Sample | None = None
    streams: Streams | None = None
    redactor: Redactor | None = None
    redact: Any = None
    """As it was given, to hand it on to other processes."""
    sinks: tuple[str, ...] = ()
    sinks_wait: float = SINKS_WAIT
    version: str | None = None
    is_quiet: bool = False
    queue: int = QUEUE
    beat: float = BEAT
    limits: Limits = Limits()
    carried_to: str | None = None
    """The store at home that is to get what this process writes. None: nobody carries it there."""

    @property
    def host(self) -> str:
        return str(text(os.uname().nodename))

    @property
    def directory(self) -> Path:
        return paths.run_dir(self.root, self.project, self.run)


def resolve(
    project: str | None,
    run: str | None,
    *,
    dir: str | Path | None = None,
    config: Mapping[str, Any] | None = None,
    sample: Sample | None = None,
    redact: Any = None,
    sinks: Iterable[str] | None = None,
    worker: str | None = None,
) -> Setup:
    """Everything a run needs. Wrong arguments raise. A wrong environment only warns, unless going
    on would write text that should have been redacted."""
    launch = _readable(launch_name(), "launch")
    sample_set, redact_set, sinks_set = map(
        setting, ("ROLLSCOPE_SAMPLE", "ROLLSCOPE_REDACT", "ROLLSCOPE_SINKS")
    )
    if sample is not None and not isinstance(sample, Sample):
        raise TypeError(f"init(sample={sample!r}): expected rollscope.Sample(...) or None")
    redact = redact_set if redact_set is not None else redact
    redactor = make_redactor(redact) if redact else None
    return Setup(
        project=_name(_or(setting("ROLLSCOPE_PROJECT"), project, "default"), "project"),
        run=_name(_or(setting("ROLLSCOPE_RUN"), run, launch), "run"),
        launch=launch,
        worker=_readable(str(worker or worker_name()), "worker"),
        root=Path(dir).expanduser().absolute() if dir is not None else paths.root(),
        config=_config(config, redactor),
        sample=_or(sample_set, sample),
        streams=setting("ROLLSCOPE_STREAMS"),
        redactor=redactor,
        redact=redact,
        sinks=sinks_set if sinks_set is not None else check_sinks(sinks) if sinks else (),
        sinks_wait=_or(setting("ROLLSCOPE_SINKS_WAIT"), SINKS_WAIT),
        version=installed("rollscope"),
        is_quiet=_or(setting("ROLLSCOPE_QUIET"), False),
        queue=_or(setting("ROLLSCOPE_QUEUE"), QUEUE),
        limits=limits(),
    )


def limits() -> Limits:
    """Sizes and permissions, as the environment has them."""
    return Limits(
        min_free=_or(setting("ROLLSCOPE_MIN_FREE"), MIN_FREE),
        seal=_or(setting("ROLLSCOPE_SEAL"), True),
        mode=_or(setting("ROLLSCOPE_MODE"), paths.PRIVATE),
    )


def _or(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _name(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TypeError(f"init({what}={value!r}): expected a text that is not empty")
    return _readable(value, what)


def _readable(name: str, what: str) -> str:
    """The name as files and other processes can hold it."""
    readable = str(text(name))
    if readable != name:
        report("settings", f"{what} {name!r} is not UTF-8; it is recorded as {readable!r}")
    return readable


def _config(config: Mapping[str, Any] | None, redactor: Redactor | None) -> Any:
    """A redacted snapshot as JSON. An odd value is replaced by a note."""
    made = None if config is None else plain(config, "config", [])
    return made if redactor is None else clean_settings(made, redactor)


def installed(package: str) -> str | None:
    """The version of an installed package, or None."""
    with suppress(Exception):
        from importlib.metadata import version

        return version(package)
    return None
