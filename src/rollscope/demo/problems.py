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


@dataclass(frozen=True)
class Problem:
    """One thing to be solved."""

    kind: str
    task: str
    prompt: str
    steps: tuple[tuple[str, int, int], ...]
    """What to work out, in order: (operator, left, right). Later ones use earlier results."""
    answer: int
    unit: str
    """The word (or sign) that belongs to the answer."""
    story: str


def make(kind: str, rng: random.Random, task: str = "") -> Problem:
    """A new problem of this kind."""
    template = rng.choice(_TEMPLATES[kind])
    return template(kind, rng, task)


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


# -- stories: one turn ---------------------------------------------------------------------


def _buys(kind: str, rng: random.Random, task: str) -> Problem:
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    a, b = rng.randint(12, 49), rng.randint(11, 39)
    text = f"{name} has {a} {thing} and gets {b} more. How many {thing} does {name} have now?"
    return _one(kind, task, text, "+", a, b, thing, "gets")


def _gives(kind: str, rng: random.Random, task: str) -> Problem:
    name, friend = rng.sample(NAMES, 2)
    thing = rng.choice(THINGS)
    a = rng.randint(32, 69)
    b = rng.randint(11, min(a - 10, 39))
    text = f"{name} had {a} {thing} and gave {b} to {friend}. How many {thing} are left?"
    return _one(kind, task, text, "-", a, b, thing, "gives")


def _boxes(kind: str, rng: random.Random, task: str) -> Problem:
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    a, b, c = rng.randint(2, 6), rng.randint(3, 9), rng.randint(11, 18)
    text = (
        f"{name} fills {a} boxes with {b} {thing} each and has {c} left over. "
        f"How many {thing} are there?"
    )
    return _two(kind, task, text, ("×", a, b), "+", c, thing, "boxes")


def _trays(kind: str, rng: random.Random, task: str) -> Problem:
    name, thing = rng.choice(NAMES), rng.choice(("rolls", "cakes", "pies"))
    a, b = rng.randint(3, 6), rng.randint(4, 9)
    c = rng.randint(3, 9)
    text = f"{name} bakes {a} trays of {b} {thing} and burns {c}. How many {thing} are left?"
    return _two(kind, task, text, ("×", a, b), "-", c, thing, "trays")


# -- stories: with a calculator --------------------------------------------------------------


def _pallets(kind: str, rng: random.Random, task: str) -> Problem:
    thing, place = rng.choice(("jars", "bottles", "tins")), rng.choice(PLACES)
    a, b, c = rng.randint(12, 48), rng.randint(13, 60), rng.randint(14, 99)
    text = f"The {place} gets {a} pallets of {b} {thing} and sells {c}. How many {thing} are left?"
    return _two(kind, task, text, ("×", a, b), "-", c, thing, "pallets")


def _tickets(kind: str, rng: random.Random, task: str) -> Problem:
    place = rng.choice(PLACES)
    a, b, c = rng.randint(21, 95), rng.randint(12, 39), rng.randint(110, 240)
    text = (
        f"{a} guests of the {place} pay {b} euros each. With {c} euros before, what is in the till?"
    )
    return _two(kind, task, text, ("×", a, b), "+", c, "euros", "tickets")


def _product(kind: str, rng: random.Random, task: str) -> Problem:
    thing = rng.choice(("rows", "crates", "shelves"))
    a, b = rng.randint(13, 89), rng.randint(12, 79)
    text = f"There are {a} {thing} with {b} seats each. How many seats is that?"
    if thing != "rows":
        text = f"There are {a} {thing} with {b} cups each. How many cups is that?"
    return _one(kind, task, text, "×", a, b, "seats" if thing == "rows" else "cups", "product")


# -- stories: with a helper ----------------------------------------------------------------


def _fruit(kind: str, rng: random.Random, task: str) -> Problem:
    one, two = rng.sample(FRUIT, 2)
    place = rng.choice(PLACES)
    a, b, c, d = (rng.randint(low, high) for low, high in ((2, 6), (3, 9)) * 2)
    text = (
        f"The {place} orders {a} crates of {b} {one} and {c} crates of {d} {two}. "
        "How many pieces of fruit?"
    )
    return _sum_of_products(kind, task, text, (a, b, c, d), "pieces", "fruit")


def _prizes(kind: str, rng: random.Random, task: str) -> Problem:
    name, friend = rng.sample(NAMES, 2)
    a, b, c, d = (rng.randint(low, high) for low, high in ((2, 6), (3, 9)) * 2)
    text = (
        f"{name} wins {a} games of {b} points, {friend} wins {c} games of {d} points. "
        "How many points together?"
    )
    return _sum_of_products(kind, task, text, (a, b, c, d), "points", "prizes")


def _furniture(kind: str, rng: random.Random, task: str) -> Problem:
    place = rng.choice(PLACES)
    one, two = rng.sample(("chairs", "tables", "lamps", "shelves"), 2)
    a, b, c, d = (rng.randint(11, 39) for _ in range(4))
    text = f"The {place} buys {a} {one} at {b} euros and {c} {two} at {d} euros. What does it pay?"
    return _sum_of_products(kind, task, text, (a, b, c, d), "euros", "furniture")


_TEMPLATES: dict[str, tuple[Callable[[str, random.Random, str], Problem], ...]] = {
    "words": (_buys, _gives, _boxes, _trays),
    "calculator": (_pallets, _tickets, _product),
    "team": (_fruit, _prizes, _furniture),
}


def _one(
    kind: str, task: str, text: str, op: str, a: int, b: int, unit: str, story: str
) -> Problem:
    return Problem(kind, task, text, ((op, a, b),), apply(op, a, b), unit, story)


def _two(
    kind: str,
    task: str,
    text: str,
    first: tuple[str, int, int],
    op: str,
    c: int,
    unit: str,
    story: str,
) -> Problem:
    middle = apply(*first)
    steps = (first, (op, middle, c))
    return Problem(kind, task, text, steps, apply(op, middle, c), unit, story)


def _sum_of_products(
    kind: str, task: str, text: str, abcd: tuple[int, int, int, int], unit: str, story: str
) -> Problem:
    a, b, c, d = abcd
    steps = (("×", a, b), ("×", c, d), ("+", a * b, c * d))
    return Problem(kind, task, text, steps, a * b + c * d, unit, story)
