"""One short demo for all tests that look at it: the real thing, with fewer steps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import rollscope.demo
from rollscope.demo.trainer import Plan, Tally

SHORT = Plan("short", steps=12, rate=1e-3, groups=12, ahead=4, eval_every=6)


@dataclass
class Demo:
    dir: Path
    weights: Path
    tally: Tally
    lines: list[str]


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    dir, weights = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("weights")
    lines: list[str] = []
    tallies = rollscope.demo.run(
        dir,
        seed=1,
        plans=[SHORT],
        warm_steps=400,
        tasks=(24, 12),
        weights_dir=weights,
        progress=lines.append,
    )
    return Demo(dir, weights, tallies["short"], lines)
