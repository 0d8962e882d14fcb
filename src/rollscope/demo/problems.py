"""The problems of the demo: three kinds, written by a program, each with its true answer.

| kind | what the policy must do |
|---|---|
| `words` | one turn: think in writing, then answer |
| `calculator` | several turns: numbers too large to do by heart, so call the calculator |
| `team` | lead a helper: hand products to it, then add what it says |

A problem is `a op b`, or `(a op b) op c`, or `a×b + c×d`, told as a story.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

KINDS = ("words", "calculator", "team")
_MIX = ("words", "calculator", "team", "calculator", "words")
"""One in five is for two: such rollouts are the longest."""

NAMES = ("Zoë", "Omar", "Mia", "Ines", "Jonas", "Aiko", "Łukasz", "Priya", "Sam", "Noor")
THINGS = ("apples", "pens", "shells", "stickers", "plums", "eggs", "cards", "books")
FRUIT = ("melons", "kiwis", "plums", "apples", "mangos", "pears")
PLACES = ("school", "café", "market", "bakery", "hotel")


Step = tuple[str, int, int]
"""(operator, left, right)"""


@dataclass(frozen=True)
class Problem:
    """One thing to be solved."""

    kind: str
    task: str
    prompt: str
    steps: tuple[Step, ...]
    """What to work out, in order. Later ones use earlier results."""
    answer: int
    unit: str
    """The word (or sign) that belongs to the answer."""
    story: str


def make(kind: str, rng: random.Random, task: str = "") -> Problem:
    """A new problem of this kind."""
    story = rng.choice(_STORIES[kind])
    text, steps, unit = story(rng)
    return Problem(kind, task, text, steps, apply(*steps[-1]), unit, story.__name__.strip("_"))


def split(seed: int, train: int, held_out: int) -> tuple[list[Problem], list[Problem]]:
    """Different problems of all kinds: `train` to learn from, `held_out` to be examined on."""
    rng = random.Random(f"problems {seed}")
    seen: set[str] = set()
    problems: list[Problem] = []
    while len(problems) < train + held_out:
        kind = _MIX[len(problems) % len(_MIX)]
        problem = make(kind, rng, f"{kind}-{len(problems):03d}")
        if problem.prompt not in seen:
            seen.add(problem.prompt)
            problems.append(problem)
    return problems[:train], problems[train:]


def apply(op: str, a: int, b: int) -> int:
    return {"+": a + b, "-": a - b, "×": a * b}[op]


Story = tuple[str, tuple[Step, ...], str]
"""What is asked, the steps to the answer, and the unit."""


# -- stories: one turn ---------------------------------------------------------------------


def _gets(rng: random.Random) -> Story:
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    a, b = rng.randint(12, 49), rng.randint(11, 39)
    text = f"{name} has {a} {thing} and gets {b} more. How many {thing} does {name} have now?"
    return text, (("+", a, b),), thing


def _gives(rng: random.Random) -> Story:
    name, friend = rng.sample(NAMES, 2)
    thing = rng.choice(THINGS)
    a = rng.randint(32, 69)
    b = rng.randint(11, min(a - 10, 39))
    text = f"{name} had {a} {thing} and gave {b} to {friend}. How many {thing} are left?"
    return text, (("-", a, b),), thing


def _boxes(rng: random.Random) -> Story:
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    a, b, c = rng.randint(2, 6), rng.randint(3, 9), rng.randint(11, 18)
    text = (
        f"{name} fills {a} boxes with {b} {thing} each and has {c} left over. "
        f"How many {thing} are there?"
    )
    return text, (("×", a, b), ("+", a * b, c)), thing


def _trays(rng: random.Random) -> Story:
    name, thing = rng.choice(NAMES), rng.choice(("rolls", "cakes", "pies"))
    a, b, c = rng.randint(3, 6), rng.randint(4, 9), rng.randint(3, 9)
    text = f"{name} bakes {a} trays of {b} {thing} and burns {c}. How many {thing} are left?"
    return text, (("×", a, b), ("-", a * b, c)), thing


# -- stories: with a calculator --------------------------------------------------------------


def _pallets(rng: random.Random) -> Story:
    thing, place = rng.choice(("jars", "bottles", "tins")), rng.choice(PLACES)
    a, b, c = rng.randint(12, 48), rng.randint(13, 60), rng.randint(14, 99)
    text = f"The {place} gets {a} pallets of {b} {thing} and sells {c}. How many {thing} are left?"
    return text, (("×", a, b), ("-", a * b, c)), thing


def _tickets(rng: random.Random) -> Story:
    place = rng.choice(PLACES)
    a, b, c = rng.randint(21, 95), rng.randint(12, 39), rng.randint(110, 240)
    text = (
        f"{a} guests of the {place} pay {b} euros each. With {c} euros before, what is in the till?"
    )
    return text, (("×", a, b), ("+", a * b, c)), "euros"


def _product(rng: random.Random) -> Story:
    thing = rng.choice(("rows", "crates", "shelves"))
    a, b = rng.randint(13, 89), rng.randint(12, 79)
    unit = "seats" if thing == "rows" else "cups"
    text = f"There are {a} {thing} with {b} {unit} each. How many {unit} is that?"
    return text, (("×", a, b),), unit


# -- stories: with a helper ----------------------------------------------------------------


def _fruit(rng: random.Random) -> Story:
    one, two = rng.sample(FRUIT, 2)
    place = rng.choice(PLACES)
    a, b, c, d = (rng.randint(low, high) for low, high in ((2, 6), (3, 9)) * 2)
    text = (
        f"The {place} orders {a} crates of {b} {one} and {c} crates of {d} {two}. "
        "How many pieces of fruit?"
    )
    return text, _sum_of_products(a, b, c, d), "pieces"


def _prizes(rng: random.Random) -> Story:
    name, friend = rng.sample(NAMES, 2)
    a, b, c, d = (rng.randint(low, high) for low, high in ((2, 6), (3, 9)) * 2)
    text = (
        f"{name} wins {a} games of {b} points, {friend} wins {c} games of {d} points. "
        "How many points together?"
    )
    return text, _sum_of_products(a, b, c, d), "points"


def _furniture(rng: random.Random) -> Story:
    place = rng.choice(PLACES)
    one, two = rng.sample(("chairs", "tables", "lamps", "shelves"), 2)
    a, b, c, d = (rng.randint(11, 39) for _ in range(4))
    text = f"The {place} buys {a} {one} at {b} euros and {c} {two} at {d} euros. What does it pay?"
    return text, _sum_of_products(a, b, c, d), "euros"


def _sum_of_products(a: int, b: int, c: int, d: int) -> tuple[Step, ...]:
    return ("×", a, b), ("×", c, d), ("+", a * b, c * d)


_STORIES: dict[str, tuple[Callable[[random.Random], Story], ...]] = {
    "words": (_gets, _gives, _boxes, _trays),
    "calculator": (_pallets, _tickets, _product),
    "team": (_fruit, _prizes, _furniture),
}
