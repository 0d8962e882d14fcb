"""Every option that comes from the environment, declared once.

`docs/configuration.md` is made from this table. A bad value warns loudly and counts as not
set: a typing error in a job script must never stop a training run.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..model.redact import redact_names
from ..model.sample import Sample
from ..model.streams import Streams
from ..store.paths import PRIVATE
from . import forwarding
from .problems import report

QUEUE = 10**9
"""Bytes that may be on their way to the disk: one large training step, logged at once."""
MIN_FREE = 2 * 10**9
"""Bytes that must be free on the disk."""
SINKS_WAIT = 10.0
"""Seconds that the end of the program may wait for forwarding."""


class Option(NamedTuple):
    name: str
    parse: Callable[[str], Any]
    expected: str
    """What a value looks like, for the docs and for the warning about a bad one."""
    default: str
    """What applies if it is not set, in words."""
    doc: str


def _on_off(value: str) -> bool:
    word = value.strip().lower()
    if word in ("on", "1", "true", "yes"):
        return True
    if word in ("off", "0", "false", "no"):
        return False
    raise ValueError(value)


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def _size(value: str) -> int:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)b?\s*", value, re.IGNORECASE)
    if not found:
        raise ValueError(value)
    return int(float(found[1]) * _UNITS[found[2].lower()])


def _seconds(value: str) -> float:
    if not 0 <= float(value) < math.inf:
        raise ValueError(value)
    return float(value)


def _mode(value: str) -> int:
    mode = int(value, 8)
    if mode & PRIVATE != PRIVATE or mode > 0o2777:
        raise ValueError(value)  # the writer itself must be able to write
    return mode


def check_sinks(sinks: str | Iterable[str]) -> tuple[str, ...]:
    """The sinks asked for, each as one text. ValueError says what is wrong with them."""
    return forwarding.sinks().check(sinks)


OPTIONS = (
    Option(
        "ROLLSCOPE",
        _on_off,
        "`on` or `off`",
        "not set: only `rollscope.init` and a trainer's own option record",
        "`on` lets hooks that load by themselves (a trainer's plugin) begin a run. "
        "`off` wins over everything: nothing is recorded, `init` included.",
    ),
    Option("ROLLSCOPE_DIR", str, "a directory", "`~/.rollscope`", "Where the store is."),
    Option(
        "ROLLSCOPE_PROJECT",
        str,
        "text",
        "the argument of `init`, else `default`",
        "The project. Wins over the argument.",
    ),
    Option(
        "ROLLSCOPE_RUN",
        str,
        "text",
        "the argument of `init`, else the name of the launch",
        "The run. Wins over the argument.",
    ),
    Option(
        "ROLLSCOPE_LAUNCH",
        str,
        "text, another one for each start of the job",
        "Ray session and job, else torchrun id and restart count, else SLURM job and restart "
        "count, else this process",
        "The launch. Set it when processes that belong together share none of these. `init` "
        "sets it for the processes that this one starts.",
    ),
    Option(
        "ROLLSCOPE_WORKER",
        str,
        "text",
        "`rank<RANK>` under torchrun, else host and process id",
        "The name of this process among the workers of the run.",
    ),
    Option(
        "ROLLSCOPE_SAMPLE",
        Sample.parse,
        "`fraction=0.1`, `groups_per_step=4,seed=7`, ...",
        "the argument of `init`, else everything is recorded",
        "Which rollouts to keep. Wins over the argument.",
    ),
    Option(
        "ROLLSCOPE_REDACT",
        redact_names,
        "names separated by commas: `email`, `key`, `phone`, `ip`, `module:function`, or, as the "
        "last one, `regex=...`",
        "the argument of `init`, else nothing is redacted",
        "What to clean out of every text before it is written. Wins over the argument. A name "
        "that is not known stops recording: nothing is written that should have been cleaned.",
    ),
    Option(
        "ROLLSCOPE_STREAMS",
        Streams.parse,
        "names separated by commas: `logprob,mask` records only these, `-ref_logprob,-entropy` "
        "leaves these out",
        "every stream is recorded",
        "Which token streams are recorded, with rollouts and with later facts. 512 rollouts of "
        "8,192 tokens have 17 MB of each.",
    ),
    Option(
        "ROLLSCOPE_SINKS",
        check_sinks,
        "names with options, `;` between them: `trackio:space_id=u/s,groups_per_step=8;mlflow`",
        "the argument of `init`, else none",
        "Other systems that rollouts are forwarded to (docs/sinks.md). Wins over the argument.",
    ),
    Option(
        "ROLLSCOPE_SINKS_WAIT",
        _seconds,
        "seconds: `10`",
        f"`{SINKS_WAIT:.0f}`",
        "How long the end of the program may wait until the sinks have everything. What is left "
        "then is sent by the forwarding process, which goes on.",
    ),
    Option(
        "ROLLSCOPE_QUEUE",
        _size,
        "a size: `500MB`",
        f"`{QUEUE // 10**9}GB`",
        "Memory that rollouts may take on their way to the disk, those included that an adapter "
        "has not converted yet. When it is full, new ones are dropped and counted.",
    ),
    Option(
        "ROLLSCOPE_MIN_FREE",
        _size,
        "a size: `2GB`",
        f"`{MIN_FREE // 10**9}GB`",
        "Recording pauses when less than this is free on the store's disk.",
    ),
    Option(
        "ROLLSCOPE_MODE",
        _mode,
        "permissions as `chmod` takes them: `0750`",
        f"`{PRIVATE:04o}`: only you",
        "Who may use the directories of the store that are made from now on, whatever the umask "
        "says: `0750` lets your group read, `0755` everybody. Directories that are there already "
        "stay as they are.",
    ),
    Option(
        "ROLLSCOPE_SEAL",
        _on_off,
        "`on` or `off`",
        "`on`",
        "Whether a process of low priority turns finished logs into Parquet while training "
        "goes on. `rollscope compact` and the server do it later otherwise.",
    ),
    Option(
        "ROLLSCOPE_CARRY",
        _on_off,
        "`on` or `off`",
        "`on`",
        "Whether Ray carries what is recorded on other nodes to the driver's store, if they do not "
        "share its directory (docs/nodes.md).",
    ),
    Option(
        "ROLLSCOPE_STRICT",
        _on_off,
        "`on` or `off`",
        "`off`",
        "Raise Rollscope's own errors instead of counting them. For people who work on it.",
    ),
    Option(
        "ROLLSCOPE_QUIET",
        _on_off,
        "`on` or `off`",
        "`off`",
        "Leave out the line at the start and the line at the end. Warnings stay.",
    ),
)


@contextmanager
def aside(*kept: str, **instead: str) -> Iterator[None]:
    """Without the variables that people set for their trainers, but for those that are `kept`,
    and with these `instead`. For commands that record by themselves: afterwards all is as it was.
    """
    is_mine = re.compile("ROLLSCOPE").match
    before = {name: os.environ.pop(name) for name in filter(is_mine, [*os.environ])}
    os.environ |= {name: before[name] for name in kept if name in before} | instead
    try:
        yield
    finally:
        for name in filter(is_mine, [*os.environ]):
            del os.environ[name]
        os.environ |= before


_BY_NAME = {option.name: option for option in OPTIONS}


def setting(name: str) -> Any:
    """The value of an option in the environment; None if it is not set or is wrong."""
    raw = os.environ.get(name)
    if raw is None or not raw.strip():
        return None
    option = _BY_NAME[name]
    try:
        return option.parse(raw)
    except ValueError as error:
        why = f" ({error})" if str(error) and str(error) != raw else ""
        report("settings", f"{name}={raw!r} is not {option.expected}{why}; it is ignored")
        return None
