"""The calculator that the policy calls, and the service it runs on.

The calculator reads what the policy really wrote and says what is wrong with it. The service is the
only simulated thing in the demo. Like a real one, it is overloaded now and then: a fixed, seeded
share of calls times out.
"""

from __future__ import annotations

import hashlib
import re

TIMEOUTS = 0.01
"""Share of calls that the service does not answer."""

_NUMBER = re.compile(r"\d+")
_CALL = re.compile(r"(\w*)(\(?)(.*)", re.DOTALL)


class ServiceTimeout(TimeoutError):
    """The tool service did not answer in time."""


def calculate(call: str) -> tuple[str, int | None]:
    """What the calculator says to `calculator(37*24)`: its reply, and the value if it has one."""
    match = _CALL.fullmatch(call.strip())
    assert match is not None  # it matches any text
    name, paren, rest = match.groups()
    if name != "calculator":
        return f"error: no tool {name[:12]!r}", None
    if not paren or not rest.endswith(")"):
        return "error: expected (...)", None
    return _evaluate(rest[:-1])


def _evaluate(text: str) -> tuple[str, int | None]:
    """`a+b`, `a-b` or `a*b` over whole numbers."""
    left = _NUMBER.match(text)
    if left is None:
        return "error: expected a number", None
    op, rest = text[left.end() : left.end() + 1], text[left.end() + 1 :]
    if op not in ("+", "-", "*"):
        return f"error: unknown sign {op!r}" if op else "error: expected a sign", None
    if not _NUMBER.fullmatch(rest):
        return "error: expected a number", None
    if len(left[0]) + len(rest) > 12:
        return "error: too large", None
    a, b = int(left[0]), int(rest)
    value = a + b if op == "+" else a - b if op == "-" else a * b
    return str(value), value


class Service:
    """Runs the calculator. A seeded share of calls times out."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def call(self, text: str, ticket: str) -> tuple[str, int | None]:
        """The calculator's reply. `ticket` names the call, so that the outcome is reproducible."""
        digest = hashlib.blake2b(f"{self.seed} {ticket}".encode(), digest_size=4).digest()
        if int.from_bytes(digest, "big") < TIMEOUTS * 2**32:
            raise ServiceTimeout("calculator service: no answer within 2 s")
        return calculate(text)
