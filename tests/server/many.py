"""Stores with many runs: a training of several runs, and an evaluation of many models."""

from __future__ import annotations

import random
from pathlib import Path

import rollscope
from rollscope.model import Message, Rollout

LANGUAGES = ["en", "de", "日本語"]


def trainings(directory: Path, runs: int = 5, steps: int = 200) -> None:
    """Runs that get better at different paces. Each rollout has parts of the reward and meta."""
    for n in range(runs):
        rng = random.Random(n)
        name = f"qwen3-4b-grpo-lr{n + 1}e-6-kl{n}-seed{n}"
        with rollscope.init(project="long-runs", run=name, dir=directory) as run:
            for step in range(steps):
                chance = min(0.95, 0.1 + (n + 1) * step / (4 * steps))
                run.log([_sample(step, i, chance, rng) for i in range(4)])


def _sample(step: int, i: int, chance: float, rng: random.Random) -> Rollout:
    right = float(rng.random() < chance)
    task = f"q-{step % 8}"
    return Rollout(
        step=step,
        split="train",
        task=task,
        group=f"{step}-{task}",
        index=i,
        reward=right,
        rewards={"correct": right, "exact match": rng.random(), "length": -rng.random()},
        meta={
            "lang": LANGUAGES[step % 3],
            "level": step % 5,
            "tags": ["short", "algebra"][: step % 3],
            "source": {"file": f"part-{step % 4}.jsonl", "line": step},
            "uid": f"{rng.random()}",
        },
        messages=[
            Message(role="user", content=f"What is {step} + {i}?"),
            Message(role="assistant", content=f"It is {step + i}.", sampled=True),
        ],
    )


def models(directory: Path, models: int = 20, tasks: int = 500) -> None:
    """An evaluation of many models: no steps, one run each, one rollout of each task."""
    for n in range(models):
        rng = random.Random(n)
        with rollscope.init(project="models", run=f"model-{n:02}", dir=directory) as run:
            run.log([_answer(n, task, rng) for task in range(tasks)])


def _answer(model: int, task: int, rng: random.Random) -> Rollout:
    hard = (task * 7919) % 100 / 100
    return Rollout(
        split="eval",
        dataset="bench",
        task=f"task-{task:03}",
        reward=float(rng.random() < (model + 2) / 22 * (1.2 - hard)),
        messages=[
            Message(role="user", content=f"Problem {task}"),
            Message(role="assistant", content=f"Answer {task + model}", sampled=True),
        ],
    )
