"""`docs/tutorial.md`: its commands and programs run, and answer in the form that it shows."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import rollscope
from rollscope import Message, Rollout, Tokens
from rollscope.checks import scan
from rollscope.model import Error

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "tutorial.md").read_text()
TIMEOUT = Error(kind="infrastructure", type="ServiceTimeout", text="no answer within 2 s")


def runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_run", DOCS / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def two_runs(own_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shape of the demo: one run that learns, one whose first update breaks it."""
    monkeypatch.setenv("ROLLSCOPE_QUIET", "on")
    monkeypatch.setenv("COLUMNS", "80")
    for name, rate in (("lr-1e-3", 0.001), ("lr-6e-3", 0.006)):
        with rollscope.init(project="demo", run=name) as run:
            for step in (0, 1, 41):
                broken = name == "lr-6e-3" and step > 0
                for index in range(4):
                    run.log(answer("words-270", step, index, "train", 0.2 if broken else index / 3))
                for task in range(470, 476):
                    run.log(answer(f"words-{task}", step, 0, "eval", 0.2 if broken else 1.0))
                run.metrics(step, {"rate": rate})
            if name == "lr-6e-3":
                for index in range(3):
                    run.log(answer("words-271", 0, index, "train", 0.5, trained=-17.0))
            run.log(Rollout(task="team-1", step=1, error=TIMEOUT))
    scan(rollscope.open(own_store))
    return own_store


def answer(
    task: str, step: int, index: int, split: str, reward: float, trained: float = -0.1
) -> Rollout:
    logprob = [-0.01 * (1 + n % 17) for n in range(40)]
    said = Message(
        role="assistant",
        content=f"49-18 = {31 if reward > 0.5 else 60}".ljust(40, "."),
        sampled=True,
        tokens=Tokens(
            range(40),
            ends=range(1, 41),
            logprob=logprob,
            train_logprob=[*logprob[:-1], trained],
        ),
    )
    fate = "trained" if split == "train" else "scored"
    return Rollout(
        key=f"{task}/{step}/{index}", task=task, step=step, index=index, split=split,
        group=f"{task}@{step}", reward=reward, rewards={"correct": float(reward > 0.5)}, fate=fate,
        trained_step=step if split == "train" else None,
        messages=[Message(role="user", content=f"What is left of {task}?"), said],
    )  # fmt: skip


def test_every_step_runs_and_answers_as_shown(two_runs: Path) -> None:
    steps = list(runner().steps(PAGE))
    assert len(steps) > 12
    for step in steps:
        differ = step.typed.startswith("rollscope diff")
        assert step.code == differ, (step.typed, step.said)
        if step.shown is None:
            continue
        shown, said = step.shown.splitlines(), step.said.splitlines()
        assert shown and said, step.typed
        assert form(shown[0]) == form(said[0]), step.typed
        assert max(map(len, shown)) <= 80, step.typed


def form(line: str) -> list[str]:
    """A line without numbers, ids, and what stands in a place of its own in every store."""
    return re.sub(r"[0-9a-f]{20}|[\d.,e+-]+", " ", line).split()[:4]


def test_an_id_that_is_typed_is_the_one_that_stands_in_its_place_now(own_store: Path) -> None:
    with rollscope.init(project="demo", run="one") as run:
        (id,) = run.log(Rollout(key="3/474", task="words-474", step=3, reward=1.0))
    old = "0" * 18 + "1f"
    new = runner().written(
        f"```console\n$ rollscope ls task:words-474\n{old}\n```\nWords stay.\n"
        f"```console\n$ rollscope show {old[:8]}\n```\n"
    )
    assert f"```\nWords stay.\n```console\n$ rollscope show {id[:8]}\n" in new
    assert "reward 1\n" in new
    assert old[:8] not in new
