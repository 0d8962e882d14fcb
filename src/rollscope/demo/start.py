"""The whole demo: tokenizer, warm start, then the runs one after the other."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

import rollscope
from rollscope.capture.settings import aside
from rollscope.store import paths

from . import problems, warmup
from .agents import World
from .chat import Chat
from .division import Course, Study
from .tools import Service
from .trainer import Plan, Tally, Trainer

PROJECT = "demo"
PLANS: tuple[Plan | Course, ...] = (
    Course("long-division"),
    Plan("lr-1e-3", steps=42, rate=1e-3),
    Plan("lr-6e-3", steps=8, rate=6e-3),
)
"""Long replies; and two learning rates from the same start: one that teaches, one that breaks the
policy."""


def run(
    dir: str | Path | None = None,
    seed: int = 0,
    *,
    plans: Sequence[Plan | Course] = PLANS,
    warm_steps: int = 700,
    tasks: tuple[int, int] = (432, 96),
    weights_dir: str | Path | None = None,
    progress: Callable[[str], None] = print,
) -> dict[str, Tally]:
    """Train the demo's policies and record every rollout to project `demo`.

    An earlier demo in the store is replaced. `dir` is the store (default `$ROLLSCOPE_DIR`,
    else `~/.rollscope`); `tasks` how many problems there are to train on and to be examined
    on; with `weights_dir` the weights of every version are saved there. The same seed gives
    the same rollouts on the same machine. Returns what happened, by run.
    """
    root = Path(dir) if dir is not None else paths.root()
    shutil.rmtree(root / paths.encode_name(PROJECT), ignore_errors=True)
    with threadpool_limits(1, user_api="blas"):
        chat = Chat(warmup.tokenizer(seed))
        progress(f"warm start: imitating {warm_steps * warmup.PROBLEMS:,} sloppy worked examples")
        weights = warmup.warm_start(chat, seed, warm_steps)
        split = problems.split(seed, *tasks)
        saved = None if weights_dir is None else Path(weights_dir)
        tallies = {}
        for plan in plans:
            config = {"seed": seed, "warm_steps": warm_steps, "tasks": tasks, **asdict(plan)}
            world = World(chat, Service(seed))
            with _recorder(root, plan.name, config) as recorder:
                trainer = (
                    Study(plan, recorder, chat, seed)
                    if isinstance(plan, Course)
                    else Trainer(plan, recorder, world, weights, split, seed, saved)
                )
                tallies[plan.name] = trainer.steps(progress)
    return tallies


def _recorder(root: Path, name: str, config: dict[str, Any]) -> rollscope.Run:
    # The demo is the demo, whatever the environment says about a user's own runs.
    with aside("ROLLSCOPE", "ROLLSCOPE_QUIET"):
        recorder = rollscope.init(PROJECT, name, config=config, dir=root)
    if not recorder.is_on:
        raise RuntimeError("nothing can be recorded: ROLLSCOPE=off is set. Unset it.")
    return recorder
