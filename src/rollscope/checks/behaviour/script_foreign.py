"""It falls into another script."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

from ..check import Evidence, Spot, check
from ..subject import OneRollout

SCRIPTS = {
    "Chinese": "\u3400-\u4dbf\u4e00-\u9fff",
    "Japanese": "\u3040-\u30ff",
    "Korean": "\uac00-\ud7af\u1100-\u11ff",
    "Cyrillic": "\u0400-\u04ff",
    "Arabic": "\u0600-\u06ff",
    "Hebrew": "\u0590-\u05ff",
    "Indic": "\u0900-\u0dff",
    "Thai": "\u0e00-\u0e7f",
    "Greek": "\u0370-\u03ff\u1f00-\u1fff",
}
_RUNS = {
    name: re.compile(f"[{chars}]+(?:[\\W\\d_]*[{chars}]+)*") for name, chars in SCRIPTS.items()
}
_LETTERS = {name: re.compile(f"[{chars}]") for name, chars in SCRIPTS.items()}
_LETTERS["Greek"] = re.compile(f"[{SCRIPTS['Greek']}]{{4,}}")
"""Greek letters by themselves are formulas, so only words of them count."""

_ASKED = re.compile(
    r"\b(translat\w*|language|chinese|mandarin|japanese|korean|russian|ukrainian|arabic|hebrew"
    r"|hindi|bengali|tamil|thai|persian|urdu|unicode|kanji|multilingual)\b",
    re.I,
)
"""A prompt that says so asks for another script, or may."""

_PROMPT = Evidence("what it was asked, in words",
                   lambda one: bool(one.turns and re.search(r"[^\W\d_]", one.prompt)))  # fmt: skip


@check(
    "script.foreign",
    version=2,
    kind="behaviour",
    means="The policy falls into a script that nothing it read is written in: languages mix, as "
    "in R1-Zero.",
    source="DeepSeek-R1; prime-rl#1700 counts Chinese characters; ours for the others",
    needs=[_PROMPT],
)
def foreign(
    one: OneRollout,
    *,
    least: Annotated[int, "letters of that script in a message; ours"] = 4,
) -> Iterator[Spot]:
    if all(turn.text.isascii() for turn in one.turns) or _ASKED.search(one.prompt):
        return
    wrote = {turn.n for turn in one.turns}
    read = "\n".join(text for n, text in enumerate(one.texts) if n not in wrote)
    for turn in one.turns:
        if turn.text.isascii():
            continue
        for name, letters in _LETTERS.items():
            count = sum(map(len, letters.findall(turn.text)))
            if count < least or letters.search(read):
                continue
            where = max(_RUNS[name].finditer(turn.text), key=lambda m: m.end() - m.start())
            yield Spot(
                f"{count} {name} letters in one message, e.g. “{where[0][:30]}”; it read none",
                message=turn.n, chars=where.span(), value=count,
            )  # fmt: skip
            break
