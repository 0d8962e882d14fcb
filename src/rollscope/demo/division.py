"""Long replies: a policy that divides by taking away, step by step, for thousands of tokens.

`947-3=944. 944-3=941. ...` goes on until less than 3 is left. Each step is easy, and one slip on
the way makes the answer wrong. The policy learns it by imitating pieces of ten steps, and is
examined on whole divisions. No piece says how long a division may be.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rollscope.capture import Run

from . import policy, record
from .agents import LIMITS, Episode, World
from .chat import SYSTEM, Chat
from .engine import Engine
from .grader import Grade, grade
from .grpo import Row
from .policy import Weights
from .problems import NAMES, THINGS, Problem
from .tools import Service
from .trainer import Tally, mean
from .warmup import imitate

PIECE = 10
"""Steps of one example."""
LENGTH = LIMITS["division"] + 100
"""Longest conversation, in tokens."""


@dataclass(frozen=True)
class Course:
    """A run in which a policy learns by imitation only, and is examined now and then."""

    name: str
    steps: int = 900
    exams: int = 3
    tasks: int = 3
    siblings: int = 8


def problem(rng: random.Random, task: str = "", sizes: tuple[int, int] = (2, 9)) -> Problem:
    """How many are left when boxes of one size are filled?"""
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    total, size = rng.randint(700, 999), rng.randint(*sizes)
    text = f"{name} has {total} {thing} and fills boxes of {size}. How many {thing} are left?"
    steps = tuple(("-", left, size) for left in range(total, size - 1, -size))
    return Problem("division", task, text, steps, total % size, thing, "boxes")


class Pieces:
    """An endless source of examples: beginnings, ends and middles of divisions."""

    def __init__(self, chat: Chat, seed: int) -> None:
        self.chat = chat
        self.rng = random.Random(f"pieces {seed}")

    def batches(self, size: int = 8) -> Iterator[list[Row]]:
        while True:
            yield [self.row() for _ in range(size)]

    def row(self) -> Row:
        """Everything is to be learned but the question and, in a middle, where it begins."""
        given = problem(self.rng)
        last = len(given.steps) - PIECE
        begin = self.rng.choice((0, self.rng.randrange(last), self.rng.randrange(last), last))
        lines = [f"{a}-{b}={a - b}." for _, a, b in given.steps[begin : begin + PIECE]]
        encode, special = self.chat.tokenizer.encode, self.chat.special
        ids = [
            *self.chat.given("system", SYSTEM["division"], False)[0],
            *self.chat.given("user", given.prompt, True)[0],
            special["<think>"],
        ]
        read = len(ids) - 1 if begin == 0 else len(ids) + len(encode(f"{lines[0]} 1")) - 1
        # The first digit of what follows is there because a space belongs to the digit after it.
        text = " ".join(lines) + (" 1" if begin < last else "")
        ids += encode(text)[: -1 if begin < last else None]
        if begin == last:
            answer = encode(f"{given.answer} {given.unit}.")
            ids += [special["<answer>"], *answer, special["<end>"]]
        return Row(ids, [0] * read + [1] * (len(ids) - read), [])


class Study:
    """One course, from a policy that knows nothing to the last exam."""

    def __init__(self, course: Course, run: Run, chat: Chat, seed: int) -> None:
        self.course, self.run, self.seed = course, run, seed
        self.world = World(chat, Service(seed), LENGTH)
        rng = random.Random(f"divisions {seed}")
        self.problems = [problem(rng, f"division-{n}", (3, 5)) for n in range(course.tasks)]
        self.tally = Tally()

    def steps(self, progress: Callable[[str], None]) -> Tally:
        """Imitate, and be examined, until the course is over."""
        course = self.course
        weights = policy.init(len(self.world.chat.tokenizer), self.seed)
        batches = Pieces(self.world.chat, self.seed).batches()
        every = max(1, course.steps // course.exams)
        for n in imitate(weights, batches, course.steps):
            if n % every == 0:
                numbers = self._examine(n // every, weights)
                self.run.metrics(n // every, {"imitated": n, **numbers})
                solved = f"solved {numbers['correct']:.0%}"
                progress(f"{course.name}  exam {n // every}/{course.exams}  {solved}")
        return self.tally

    def _examine(self, step: int, weights: Weights) -> dict[str, float]:
        """Every problem, as often as there are siblings."""
        slots = len(self.problems) * self.course.siblings
        stops = self.world.chat.stops
        engine = Engine(weights, stops, self.seed + step, slots, LENGTH, version=step)
        plays = {}
        for asked in self.problems:
            for index in range(self.course.siblings):
                group = f"{asked.task}@{step}"
                key = f"{self.course.name}/{group}/{index}"
                episode = Episode(asked, step, "eval", group, index, key=key)
                play = self.world.play(episode)
                request = next(play)
                engine.submit(request)
                plays[request] = (episode, play)
        done: list[tuple[Episode, Grade]] = []
        while plays:
            for request in engine.tick():
                episode, play = plays.pop(request)
                with contextlib.suppress(StopIteration):
                    play.send(request)
                judged = grade(episode)
                self.run.log(record.rollout(episode, judged))
                done.append((episode, judged))
        self.tally.rollouts += len(done)
        self.tally.rewards.append(mean([judged.reward for _, judged in done]))
        return {
            "correct": mean([judged.rewards["correct"] for _, judged in done]),
            "response_tokens": mean([float(episode.written()) for episode, _ in done]),
        }
