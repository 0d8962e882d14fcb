"""What is noted of a rollout for checks of groups and steps, as numbers by name.

They go on with these numbers, so nobody reads a rollout twice. A text becomes a number that two
texts share only if they are the same; what the policy said, if they are but for blanks, quotes and
capitals.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping

from .sought import Sought
from .subject import OneRollout
from .thoughts import thought

VERSION = 4
"""Goes up when the same rollout may get other numbers."""

FORMS = {
    "\\boxed{…}": Sought(r"\\boxed\s*\{"),
    "<answer>…</answer>": Sought(r"<answer>.*?</answer>", re.S | re.I),
    "#### …": Sought(r"^####[ \t]*\S", re.M),
    "a ``` block": Sought(r"^```", re.M),
    "an object of JSON": Sought(r"\A\s*\{.*\}\s*\Z", re.S),
    "<tool_call>…</tool_call>": Sought(r"<tool_call>.*?</tool_call>", re.S),
    "'Answer: …'": Sought(r"^\W*(?:final )?answer\W*:", re.I | re.M),
}
"""Forms that an answer may have. A bit each, in this order, in the number `forms`."""

_BARE = str.maketrans("", "", "\"'`#$_")
"""Takes marks from a text that two tellings of the same may differ in. What may be a part of an
answer stays: signs, brackets, commas."""


def digest(one: OneRollout) -> dict[str, float]:
    """The numbers that could be worked out; what is not known is not there."""
    found: dict[str, float] = {}
    if one.messages and one.prompt:
        found["prompt"] = number(one.prompt)
    if one.said:
        found["said"] = number(" ".join(one.said.casefold().translate(_BARE).split()).rstrip(".!"))
        found["chars"] = float(len(one.said))
        if one.rollout.sampling.get("temperature") == 0:
            found["greedy"] = 1.0
        found["forms"] = float(
            sum(bool(form.search(one.said)) << n for n, form in enumerate(FORMS.values()))
        )
        thoughts = [thought(turn.message, turn.text) for turn in one.turns]
        if any(t is not None for t in thoughts):
            found["thought"] = float(sum(t.chars for t in thoughts if t is not None))
    weighed = _weighed(one.rollout.rewards, one.rollout.meta.get("reward_weights"))
    if weighed is not None:
        found["weighed"] = weighed
    if one.concluded is not None:
        found["answer"] = number(one.concluded[1])
    entropies = [v for _, values in one.streams("entropy") for v in values if v is not None]
    if entropies and math.isfinite(total := sum(entropies)):
        found["entropy"] = total / len(entropies)
    drawn = [v for _, values in one.streams("logprob") for v in values if v is not None]
    if drawn and math.isfinite(total := sum(drawn)):
        found["surprise"] = -total / len(drawn)
    gaps = [gap for _, _, gap in one.gaps if abs(gap) < 50]
    if gaps:
        found |= _apart(gaps)
    return found


def _weighed(parts: Mapping[str, float], weights: object) -> float | None:
    """What the parts of a reward make with the weights that stand beside it."""
    if not parts or not isinstance(weights, Mapping) or not parts.keys() <= weights.keys():
        return None
    try:
        total = sum(value * weights[name] for name, value in parts.items())
    except TypeError:
        return None
    return float(total) if math.isfinite(total) else None


def _apart(gaps: list[float]) -> dict[str, float]:
    """How far trainer and engine are apart: means over tokens, with r the ratio of the two."""
    n, ratios = len(gaps), [math.exp(gap) for gap in gaps]
    return {
        "gap": sum(r - gap - 1 for r, gap in zip(ratios, gaps, strict=True)) / n,
        "gap_weight": sum(ratios) / n,
        "gap_square": sum(r * r for r in ratios) / n,
        "gap_kl": -sum(gaps) / n,
        "gap_error": sum(math.exp(abs(gap)) for gap in gaps) / n,
    }


def number(text: str) -> float:
    """A text as a number that a float holds exactly."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return float(int.from_bytes(digest, "big"))
