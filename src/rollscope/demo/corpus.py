"""Worked examples for the warm start, composed by a program from a grammar of arithmetic.

The grammar is sloppy on purpose, as text found in the world is: now and then it slips in a
sum, takes the wrong operation, writes a call that the calculator does not understand,
checks again and again without coming to an end, or forgets the unit. A policy that imitates
it is right about a third of the time. What GRPO then teaches it is found nowhere in here.
"""

from __future__ import annotations

import random

from .chat import SYSTEM, Chat, Turn
from .problems import KINDS, Problem, apply, make
from .tools import calculate

Row = tuple[list[int], list[int]]
"""Token ids of one conversation, and 1 for each token that the policy should learn to write."""


SLIPS = {
    "sum": 0.03,
    "operation": 0.08,
    "syntax": 0.35,
    "guess": 0.08,
    "again": 0.2,
    "once more": 0.75,
    "unit": 0.25,
}
"""How often the grammar errs."""


class Examples:
    """An endless source of worked examples."""

    def __init__(self, chat: Chat, seed: int) -> None:
        self.chat = chat
        self.rng = random.Random(f"examples {seed}")

    def rows(self, number: int) -> list[Row]:
        """The conversations of `number` problems. A helper's is a row of its own."""
        out: list[Row] = []
        for _ in range(number):
            problem = make(self.rng.choices(KINDS, (3, 1, 2))[0], self.rng)
            out += getattr(self, "_" + problem.kind)(problem)
        return out

    def texts(self, number: int) -> list[str]:
        """All texts of `number` examples, for training the tokenizer."""
        decode = self.chat.tokenizer.decode
        return [decode(ids)[0] for ids, _ in self.rows(number)]

    # -- one conversation of each kind ---------------------------------------------------

    def _words(self, problem: Problem) -> list[Row]:
        row = self._open("words", problem.prompt)
        result, lines = 0, []
        for n, (op, a, b) in enumerate(problem.steps):
            left = result if n else a
            line, result = self._work(self._operation(op), left, b)
            lines.append(line)
        while self._slips("again" if len(lines) < 3 else "once more"):
            lines.append(lines[-1])
        self._say(row, Turn(" ".join(lines), self._answer(result, problem.unit), call=False))
        return [row]

    def _calculator(self, problem: Problem) -> list[Row]:
        row = self._open("calculator", problem.prompt)
        result = 0
        for n, (op, a, b) in enumerate(problem.steps):
            if self._slips("guess"):
                result = self.rng.randint(100, 2999)
                break
            result = self._calculate(row, self._operation(op), result if n else a, b)
        self._say(row, Turn(None, self._answer(result, problem.unit), call=False))
        return [row]

    def _team(self, problem: Problem) -> list[Row]:
        row = self._open("team", problem.prompt)
        rows, values = [row], []
        for op, a, b in problem.steps[:2]:
            asked = f"{a}{op}{b}"
            self._say(row, Turn(None, f"helper({asked})", call=True))
            helper = self._open("helper", asked)
            line, value = self._help(helper, op, a, b)
            self._hear(row, line)
            rows.append(helper)
            values.append(value)
        thinking: str | None = None
        if self._slips("guess"):
            result = self.rng.randint(20, 1999)
        elif max(values) > 99:
            result = self._calculate(row, "+", *values)
        else:
            thinking, result = self._work("+", *values)
        self._say(row, Turn(thinking, self._answer(result, problem.unit), call=False))
        return rows

    def _help(self, row: Row, op: str, a: int, b: int) -> tuple[str, int]:
        """The helper's side: by heart if it can, else with the calculator."""
        if max(a, b) < 10:
            line, value = self._work(op, a, b)
        else:
            value = self._calculate(row, op, a, b)
            line = f"{a}{op}{b}={value}."
        self._say(row, Turn(None, line, call=False))
        return line, value

    # -- pieces ----------------------------------------------------------------------------

    def _slips(self, how: str) -> bool:
        return self.rng.random() < SLIPS[how]

    def _operation(self, op: str) -> str:
        return self.rng.choice("+-") if self._slips("operation") else op

    def _value(self, op: str, a: int, b: int) -> int:
        value = apply(op, a, b)
        return abs(value + self.rng.choice((-1, 1))) if self._slips("sum") else value

    def _work(self, op: str, a: int, b: int) -> tuple[str, int]:
        """`a op b` done in writing, and what came out."""
        if op == "×" or max(a, b) > 99:
            value = self._value(op, a, b)
            return f"{a}{op}{b}={value}.", value
        (ta, ua), (tb, ub) = divmod(a, 10), divmod(b, 10)
        if op == "+":
            units = self._value("+", ua, ub)
            carry = units // 10
            tens = self._value("+", ta + carry, tb)
            carried = ", carry 1, tens {}+{}+1={}" if carry else ", tens {}+{}={}"
            text = f"{a}+{b}: units {ua}+{ub}={units}{carried.format(ta, tb, tens)}"
        else:
            borrow = ua < ub
            units = self._value("-", ua + 10 * borrow, ub)
            tens = abs(self._value("-", ta - borrow, tb))
            carried = ", borrow 1, tens {}-{}-1={}" if borrow else ", tens {}-{}={}"
            text = f"{a}-{b}: units {ua + 10 * borrow}-{ub}={units}{carried.format(ta, tb, tens)}"
        value = 10 * tens + units % 10
        return f"{text}, so {value}.", value

    def _call(self, op: str, a: int, b: int) -> str:
        sign = "*" if op == "×" else op
        if not self._slips("syntax"):
            return f"calculator({a}{sign}{b})"
        broken = [f"calculator({a}{op}{b}", f"calc({a}{sign}{b})", f"calculator {a}{sign}{b}"]
        if op == "×":
            broken += [f"calculator({a}×{b})"] * 3
        return self.rng.choice(broken)

    def _calculate(self, row: Row, op: str, a: int, b: int) -> int:
        """Call the calculator until it understands (three times at most)."""
        for _ in range(3):
            call = self._call(op, a, b)
            self._say(row, Turn(None, call, call=True))
            reply, value = calculate(call)
            self._hear(row, reply)
            if value is not None:
                return value
        return self.rng.randint(100, 2999)

    def _answer(self, value: int, unit: str) -> str:
        return f"{value}." if self._slips("unit") else f"{value} {unit}."

    def _open(self, part: str, prompt: str) -> Row:
        ids = [
            *self.chat.given("system", SYSTEM[part], False)[0],
            *self.chat.given("user", prompt, True)[0],
        ]
        return ids, [0] * len(ids)

    def _hear(self, row: Row, text: str) -> None:
        ids = self.chat.given("tool", text, True)[0]
        row[0].extend(ids)
        row[1].extend([0] * len(ids))

    def _say(self, row: Row, turn: Turn) -> None:
        ids = self.chat.written(turn)
        row[0].extend(ids)
        row[1].extend([1] * len(ids))
