"""The right answer stands in what the policy read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from ..answers import places, says
from ..check import Spot, check
from ..evidence import PROMPT, REFERENCE
from ..subject import OneRollout


@check(
    "answer.leaked",
    version=2,
    kind="behaviour",
    means="The right answer stood in what the policy read before it said it: it may have copied "
    "instead of solved.",
    source="ours",
    needs=[REFERENCE, PROMPT],
)
def leaked(
    one: OneRollout,
    *,
    least: Annotated[int, "characters of an answer that is no chance; ours"] = 4,
    tools: Annotated[bool, "look at answers of tools too: not where tools compute; ours"] = False,
) -> Iterator[Spot]:
    answer = one.reference or ""
    if len(answer) < least:
        return
    wrote = {turn.n for turn in one.turns}
    for n, text in enumerate(one.texts):
        if n in wrote:
            if says(text, answer):
                return
            continue
        if one.messages[n].role == "tool" and not tools:
            continue
        where = next(places(text, answer), None)
        if where is not None:
            role = one.messages[n].role
            yield Spot(f"the right answer, “{answer}”, stands in a message with role {role}",
                       message=n, chars=where)  # fmt: skip
            return
