"""Token ids do not decode to the text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated

from ...model import Tokens
from ..check import Spot, check
from ..evidence import ENDS
from ..subject import OneRollout


@check(
    "tokens.ends",
    kind="record",
    means="Token ids and text do not belong together: whatever is shown or trained by token stands "
    "at the wrong words.",
    source="ours: ends rise and stay inside the text, and an id stands for one text",
    needs=[ENDS],
)
def ends(
    one: OneRollout,
    *,
    share: Annotated[float, "of comparable tokens that may contradict; ours"] = 0.05,
    least: Annotated[int, "contradictions; ours"] = 3,
) -> Iterator[Spot]:
    known: dict[int, str] = {}
    compared, wrong = 0, []
    for n, message in enumerate(one.messages):
        tokens = message.tokens
        if tokens is None or tokens.ends is None:
            continue
        text = one.texts[n]
        trouble = _trouble(tokens, len(text))
        if trouble is not None:
            yield Spot(trouble, message=n)
            continue
        for i, id, piece in _pieces(tokens, text):
            before = known.setdefault(id, piece)
            compared += 1
            if before != piece:
                wrong.append((n, i, id, before, piece))
    if len(wrong) >= max(least, share * compared):
        n, i, id, before, piece = wrong[0]
        yield Spot(
            f"{len(wrong)} of {compared} tokens stand for two texts, e.g. id {id} for {before!r} "
            f"and for {piece!r}",
            message=n, tokens=(i, i + 1), value=len(wrong) / compared,
        )  # fmt: skip


def _trouble(tokens: Tokens, size: int) -> str | None:
    ends = tokens.ends
    if tokens.ids is not None and len(tokens.ids) != len(ends):
        return f"it has {len(tokens.ids)} token ids, but the ends of {len(ends)} tokens"
    if ends and max(ends) > size:
        return f"a token ends at character {max(ends)} of a text of {size}"
    back = next((i for i, (a, b) in enumerate(pairwise([0, *ends])) if b < a), None)
    return None if back is None else f"token {back} ends before the one before it"


def _pieces(tokens: Tokens, text: str) -> Iterator[tuple[int, int, str]]:
    """Tokens with the text that each stands for, where that does not depend on its neighbours: not
    at the edges of a message, where blanks are cut, nor for parts of a character."""
    if tokens.ids is None or not text.isascii():
        return
    for i in range(1, len(tokens.ids) - 1):
        piece = text[tokens.ends[i - 1] : tokens.ends[i]]
        if piece.strip():
            yield i, tokens.ids[i], piece
