"""Rollscope: record, keep, find, read and compare every rollout of RL training.

Recording, in a training program:

    import rollscope

    run = rollscope.init(project="math", run="qwen3-4b-grpo")
    run.log(rollouts, step=12)

Reading, anywhere and at any time:

    store = rollscope.open()
    for row in store.rollouts("reward:<0.2", order="-advantage", limit=50): ...
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if importlib.util.find_spec("fcntl") is None:  # before anything else fails in a way that says less
    raise ImportError(
        "rollscope runs on Linux and macOS. On Windows, install and use it inside WSL."
    )

from .capture import (
    LiveRollout,
    Run,
    Sample,
    bind,
    finish,
    init,
    op,
    rollout_trace_attr,
    rollout_trace_op,
)
from .capture import forwarding as _forwarding
from .model import Error, Message, Part, Rollout, Span, Tokens, ToolCall

if TYPE_CHECKING:
    from .query import Store, open

    __version__: str

__all__ = [
    "Error",
    "LiveRollout",
    "Message",
    "Part",
    "Rollout",
    "Run",
    "Sample",
    "Span",
    "Store",
    "Tokens",
    "ToolCall",
    "bind",
    "finish",
    "init",
    "op",
    "open",
    "rollout_trace_attr",
    "rollout_trace_op",
]


def _sinks() -> _forwarding.Sinks:
    from . import sinks

    return sinks


_forwarding.sinks = _sinks  # capture does not know them: it is handed them here


def __getattr__(name: str) -> Any:
    # The reading side brings an engine of 70 MB: only for those who read.
    if name in ("open", "Store"):
        from . import query

        return getattr(query, name)
    if name in ("adapters", "demo"):  # so that what the pages show works after `import rollscope`
        return importlib.import_module(f"{__name__}.{name}")
    if name == "__version__":
        from .capture.setup import installed

        return installed("rollscope") or "0"  # from a bare checkout
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__", "adapters", "demo"})
