"""A small, real training run to look at: `rollscope demo`.

    import rollscope.demo
    rollscope.demo.run()

A policy of 160,000 weights, written in NumPy, learns arithmetic with GRPO in about a minute.
docs/demo.md says what is real about it and what is simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .trainer import Tally

__all__ = ["run"]


def run(
    dir: str | Path | None = None,
    seed: int = 0,
    *,
    progress: Callable[[str], None] = print,
    **options: Any,
) -> dict[str, Tally]:
    """Train the demo's policies and record them to project `demo`; see `demo.start.run`."""
    try:
        from .start import run as train
    except ModuleNotFoundError as error:
        if error.name not in ("numpy", "threadpoolctl"):
            raise
        what = f"the demo trains a policy in NumPy and needs {error.name}, which is not installed"
        raise ModuleNotFoundError(
            f"{what}. Type: pip install 'rollscope[demo]'", name="numpy"
        ) from None

    return train(dir, seed, progress=progress, **options)
