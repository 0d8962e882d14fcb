"""The training loop: generation that never waits, and a learner that takes what is complete.

More groups are under way than one step needs. As soon as enough are complete, the learner takes
them and publishes new weights. Rollouts that are still being written go on with the new weights. So
they hold tokens of two versions and are learned from in a later step than the one that asked for
them. Asynchronous trainers work this way. Here everything happens in one thread, in a fixed order,
so that a run can be repeated exactly.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rollscope.capture import Run
from rollscope.model import Error
from rollscope.model.normalise import as_error

from . import record
from .agents import Episode, Play, World
from .chat import Chat
from .engine import Engine, Request
from .grader import Grade, grade
from .grpo import Learner, Row, advantages
from .policy import Weights
from .problems import KINDS, Problem
from .tools import ServiceTimeout

TRIES = 3
"""How often a rollout is tried before it is given up."""
OLDEST = 2
"""Rollouts that began more versions ago than this are masked: too far off-policy."""


@dataclass(frozen=True)
class Plan:
    """One run: its name and what is particular to it."""

    name: str
    steps: int
    rate: float
    """Of learning, at the beginning; it falls to a seventh."""
    groups: int = 48
    """Groups that one step learns from."""
    siblings: int = 8
    ahead: int = 16
    """Groups under way beyond those that a step needs."""
    eval_every: int = 6


@dataclass(eq=False)
class Group:
    """Rollouts of one task at one step."""

    name: str
    problem: Problem
    missing: int
    """How many are still to come."""
    done: list[tuple[Episode, Grade]] = field(default_factory=list)


@dataclass
class Tally:
    """What happened in a run."""

    rollouts: int = 0
    retries: int = 0
    rewards: list[float] = field(default_factory=list)
    """Mean reward of each step."""


class Trainer:
    """One run of GRPO, from a policy to a better one."""

    def __init__(
        self,
        plan: Plan,
        run: Run,
        world: World,
        weights: Weights,
        problems: tuple[list[Problem], list[Problem]],
        seed: int,
        weights_dir: Path | None = None,
    ) -> None:
        self.plan, self.run, self.world = plan, run, world
        self.train, self.held_out = problems
        self.weights_dir = weights_dir
        self.tally = Tally()
        self._learner = Learner(weights)
        chat: Chat = world.chat
        slots = (plan.groups + plan.ahead) * plan.siblings + len(self.held_out)
        self._engine = Engine(weights, chat.stops, seed, slots)
        self._tasks = self._endless(random.Random(f"order {seed}"))
        self._asked: set[str] = set()
        self._open: dict[str, Group] = {}
        self._complete: list[Group] = []
        self._plays: dict[Request, tuple[Episode, Play]] = {}
        self._examined: list[tuple[Episode, Grade]] = []
        self._save()

    def _endless(self, rng: random.Random) -> Iterator[Problem]:
        while True:
            yield from rng.sample(self.train, len(self.train))

    def steps(self, progress: Callable[[str], None]) -> Tally:
        """Train to the end."""
        for step in range(self.plan.steps):
            began = time.time()
            self._ask(step)
            examines = step % self.plan.eval_every == 0 or step == self.plan.steps - 1
            if examines:
                self._examine(step)
            while len(self._complete) < self.plan.groups or self._is_examining():
                for request in self._engine.tick():
                    self._advance(*self._plays.pop(request), request)
            numbers = self._learn(step)
            if examines:
                numbers |= self._exam_results()
            numbers["seconds"] = time.time() - began
            self.run.metrics(step, numbers)
            progress(self._line(step, numbers))
        return self.tally

    # -- asking for rollouts ---------------------------------------------------------------

    def _ask(self, step: int) -> None:
        """Keep enough groups under way; in the last step, no more than can be learned from."""
        plan = self.plan
        wanted = plan.groups + (plan.ahead if step < plan.steps - 1 else 0)
        while len(self._open) + len(self._complete) < wanted:
            problem = next(self._tasks)
            name = f"{problem.task}@{step}"
            if name in self._asked:  # two rounds through the problems met in one step
                continue
            self._asked.add(name)
            self._open[name] = Group(name, problem, plan.siblings)
            for index in range(plan.siblings):
                self._begin(Episode(problem, step, "train", name, index))

    def _examine(self, step: int) -> None:
        for problem in self.held_out:
            name = f"{problem.task}@{step}"
            self._begin(Episode(problem, step, "eval", name, 0))

    def _is_examining(self) -> bool:
        return any(episode.split == "eval" for episode, _ in self._plays.values())

    def _begin(self, episode: Episode) -> None:
        episode.key = f"{self.plan.name}/{episode.split}/{episode.group}/{episode.index}"
        if episode.attempt:
            episode.key += f"/{episode.attempt}"
        self._advance(episode, self.world.play(episode), None)

    def _advance(self, episode: Episode, play: Play, written: Request | None) -> None:
        """Hand a turn back to its conversation and take the next one, or its end."""
        try:
            request = play.send(written)  # type: ignore[arg-type]
        except StopIteration:
            self._finish(episode)
        except ServiceTimeout as error:
            self._fail(episode, error)
        else:
            self._plays[request] = (episode, play)
            self._engine.submit(request)

    def _finish(self, episode: Episode) -> None:
        judged = grade(episode)
        self._log(episode, judged)
        if episode.split == "eval":
            self._examined.append((episode, judged))
            return
        self._open[episode.group].done.append((episode, judged))
        self._close(episode.group)

    def _fail(self, episode: Episode, error: Exception) -> None:
        """A tool did not answer, which is not the policy's fault. Try again from the beginning."""
        episode.end = time.time()
        self._log(episode, None, as_error(error, "infrastructure"))
        if episode.attempt + 1 < TRIES:
            self.tally.retries += 1
            e = episode
            self._begin(Episode(e.problem, e.step, e.split, e.group, e.index, e.attempt + 1))
        elif episode.split == "train":
            self._close(episode.group)

    def _close(self, name: str) -> None:
        """One rollout fewer to wait for."""
        group = self._open[name]
        group.missing -= 1
        if group.missing == 0:
            self._complete.append(self._open.pop(name))

    def _log(self, episode: Episode, judged: Grade | None, error: Error | None = None) -> None:
        self.run.log(record.rollout(episode, judged, error))
        self.tally.rollouts += 1

    # -- learning --------------------------------------------------------------------------

    def _learn(self, step: int) -> dict[str, float]:
        """Learn from the groups that were complete first. Returns what happened, in numbers."""
        groups = self._complete[: self.plan.groups]
        del self._complete[: self.plan.groups]
        chosen: list[tuple[Episode, list[Row]]] = []
        dropped = 0
        for group in groups:
            values = advantages([judged.reward for _, judged in group.done])
            if values is None:
                dropped += 1
                self._drop(group)
                continue
            for (episode, _), value in zip(group.done, values, strict=True):
                rows = record.rows(episode)
                for row in rows:
                    row.advantage = value
                if not self._mask(episode, step, value):
                    chosen.append((episode, rows))
        # Groups are spread over the minibatches, so that each of them is a fair sample.
        rate = self.plan.rate * (1 - 0.85 * step / self.plan.steps)
        numbers = self._learner.step([rows for _, rows in chosen], rate)
        for episode, rows in chosen:
            self.run.annotate(
                key=episode.key,
                advantage=rows[0].advantage,
                fate="trained",
                trained_step=step,
                streams=record.streams(episode, rows, rows[0].advantage),
            )
        self._engine.load(self._learner.weights, step + 1)
        self._save()
        return (
            numbers | {"rate": rate, "dropped_groups": dropped} | self._step_numbers(groups, step)
        )

    def _drop(self, group: Group) -> None:
        reward = group.done[0][1].reward if group.done else None
        for episode, _ in group.done:
            self.run.annotate(
                key=episode.key,
                advantage=0.0,
                fate="dropped",
                fate_reason=f"zero variance: every reward of the group is {reward}",
            )

    def _mask(self, episode: Episode, step: int, advantage: float) -> bool:
        oldest = min(episode.versions())
        if step - oldest <= OLDEST:
            return False
        self.run.annotate(
            key=episode.key,
            advantage=advantage,
            fate="masked",
            fate_reason=f"off-policy: begun by version {oldest}, the learner is at {step}",
        )
        return True

    def _save(self) -> None:
        if self.weights_dir is not None:
            self.weights_dir.mkdir(parents=True, exist_ok=True)
            name = f"{self.plan.name}-{self._engine.version}.npz"
            np.savez(self.weights_dir / name, **self._engine.weights)  # type: ignore[arg-type]

    # -- numbers ---------------------------------------------------------------------------

    def _step_numbers(self, groups: list[Group], step: int) -> dict[str, float]:
        done = [pair for group in groups for pair in group.done]
        reward = mean([judged.reward for _, judged in done])
        self.tally.rewards.append(reward)
        return {
            "reward": reward,
            "correct": mean([judged.rewards["correct"] for _, judged in done]),
            "truncated": mean([float(episode.truncated) for episode, _ in done]),
            "response_tokens": mean([float(episode.written()) for episode, _ in done]),
            "staleness": mean([float(step - episode.step) for episode, _ in done]),
        }

    def _exam_results(self) -> dict[str, float]:
        right = [(e.problem.kind, judged.rewards["correct"]) for e, judged in self._examined]
        self._examined = []
        solved = mean([value for _, value in right])
        by_kind = {f"eval/{kind}": mean([v for k, v in right if k == kind]) for kind in KINDS}
        return {"eval/correct": solved} | by_kind

    def _line(self, step: int, numbers: dict[str, float]) -> str:
        line = (
            f"{self.plan.name}  step {step + 1:2d}/{self.plan.steps}"
            f"  reward {numbers['reward']:.2f}  solved {numbers['correct']:.0%}"
        )
        if "eval/correct" in numbers:
            line += f"  held out {numbers['eval/correct']:.0%}"
        return line


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
