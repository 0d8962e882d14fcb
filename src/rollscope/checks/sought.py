"""Patterns that are looked for fast: most texts lack a word that the pattern cannot do without.

`re` tries an alternative of words at every character of a text. Finding out that none of the words
is there takes a hundredth of that, and then there is nothing to try. Which words these are is read
off the pattern itself, so a check says what it looks for once.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

_MOST = 8
"""Texts that one piece of a pattern may stand for; beyond, it counts as not known."""

Texts = frozenset[str]


class Sought:
    """A pattern, with texts of which one stands wherever it is found."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.pattern = re.compile(pattern, flags)
        self._folds = bool(self.pattern.flags & re.I)
        self._words = words(self.pattern)
        """Without the case, if the pattern has none. Empty: nothing is known."""

    def may_be_in(self, text: str) -> bool:
        """False: the pattern is not found in this text."""
        if not self._words:
            return True
        if self._folds:
            if "\u0130" in text or "\u0131" in text:
                return True  # for `re` these two are like an i; folded, they are not
            text = text.casefold()
        return any(word in text for word in self._words)

    def search(self, text: str) -> re.Match[str] | None:
        return self.pattern.search(text) if self.may_be_in(text) else None

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        return self.pattern.finditer(text) if self.may_be_in(text) else iter(())


def words(pattern: re.Pattern[str]) -> list[str]:
    """Texts of which every match has at least one; empty: none are known."""
    try:
        # The parser of `re` is private. Where it is another one, patterns are just not as fast.
        parser = importlib.import_module("re._parser")
        found = _needed(parser.parse(pattern.pattern, pattern.flags))
    except (ImportError, AttributeError, LookupError, TypeError):
        return []
    folded = {word.casefold() for word in found} if pattern.flags & re.I else found
    # Whatever has a longer one has the shorter one in it.
    return sorted(w for w in folded if not any(o != w and o in w for o in folded))


def _needed(items: Iterable[Any]) -> Texts:
    """Long but few texts of which every match of this sequence has one."""
    best, known = Texts(), Texts([""])
    for item in items:
        exact = _exact(item)
        longer = None if exact is None else _joined(known, exact)
        if longer is not None:
            known = longer
            continue
        best = max(best, known, _inside(item), key=_worth)
        known = exact or Texts([""])
    return max(best, known, key=_worth)


def _worth(found: Texts) -> tuple[int, int]:
    """Texts of eight letters are rare enough; each costs a look through the text."""
    return min(8, *map(len, found)) if found else 0, -len(found)


def _joined(before: Texts, after: Texts) -> Texts | None:
    if len(before) * len(after) > _MOST:
        return None
    return Texts(a + b for a in before for b in after)


def _exact(item: Any) -> Texts | None:
    """Everything that a piece stands for, if that is little."""
    kind, of = str(item[0]), item[1]
    if kind == "LITERAL":
        return Texts([chr(of)])
    if kind == "AT":
        return Texts([""])
    if kind == "IN" and all(str(one[0]) == "LITERAL" for one in of):
        return Texts(chr(one[1]) for one in of)
    if kind == "SUBPATTERN" and not of[1] and not of[2]:
        return _exact_of(of[3])
    if kind == "BRANCH":
        return _either([_exact_of(one) for one in of[1]])
    if kind in ("MAX_REPEAT", "MIN_REPEAT") and tuple(of[:2]) == (0, 1):
        return _either([Texts([""]), _exact_of(of[2])])
    return None


def _exact_of(items: Iterable[Any]) -> Texts | None:
    known: Texts | None = Texts([""])
    for item in items:
        exact = _exact(item)
        known = None if exact is None or known is None else _joined(known, exact)
    return known


def _either(several: Sequence[Texts | None]) -> Texts | None:
    found = Texts().union(*(one for one in several if one is not None))
    return None if None in several or len(found) > _MOST else found


def _inside(item: Any) -> Texts:
    """Texts of which every match of a piece has one; empty: none are known."""
    kind, of = str(item[0]), item[1]
    if kind == "SUBPATTERN" and not of[1] and not of[2]:
        return _needed(of[3])
    if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") and of[0] > 0:
        return _needed(of[2])
    if kind == "BRANCH":
        several = [_needed(one) for one in of[1]]
        return Texts().union(*several) if all(map(_worth_asking, several)) else Texts()
    return Texts()


def _worth_asking(found: Texts) -> bool:
    return _worth(found)[0] > 0
