"""Patterns are looked for fast, and found wherever `re` finds them."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rollscope.checks import answers, digest
from rollscope.checks.behaviour import reward_gamed
from rollscope.checks.sought import Sought, words

OURS = [*reward_gamed.SIGNS.values(), *digest.FORMS.values(), *answers._MARKED]


@pytest.mark.parametrize("sought", OURS, ids=lambda sought: sought.pattern.pattern[:30])
def test_whatever_a_pattern_matches_has_one_of_its_words(sought: Sought) -> None:
    assert words(sought.pattern), "it is looked for the slow way"
    matching = st.from_regex(sought.pattern)

    @settings(max_examples=25, deadline=None, derandomize=True, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(matching | matching.map(str.upper) | st.text())
    def holds(text: str) -> None:
        found, here = sought.pattern.search(text), sought.search(text)
        assert (found and found.span()) == (here and here.span())
        spans = [match.span() for match in sought.finditer(text)]
        assert spans == [match.span() for match in sought.pattern.finditer(text)]

    holds()


ATOMS = st.sampled_from(
    ["a", "ab", "k", "i", "[ab]", "[^a]", r"\d", ".", "(?:a|bc)", "(?:ab|)", "(?i:k)", "(b)", "^"]
)
REPEATS = st.sampled_from(["", "?", "*", "+", "{2}", "{0,3}", "??", "*+"])
PATTERNS = st.lists(
    st.lists(st.tuples(ATOMS, REPEATS).map("".join), max_size=4).map("".join), min_size=1,
    max_size=3,
).map("|".join)  # fmt: skip


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(PATTERNS, st.booleans(), st.text("abckKiı0İ\n", max_size=12))
@example("dear (?:judge|grader)", True, "DEAR GRADER")
@example("hi", True, "Hİ")
def test_any_pattern_is_found_where_re_finds_it(pattern: str, folds: bool, text: str) -> None:
    try:
        known = re.compile(pattern, re.I if folds else 0)
    except re.error:
        return
    sought = Sought(pattern, re.I if folds else 0)
    assert bool(sought.search(text)) == bool(known.search(text)), words(known)


@pytest.mark.parametrize(
    ("pattern", "least"),
    [
        (r"\b(?:os\._|sys\.)exit\s*\(", ["os._exit", "sys.exit"]),
        (r"(?:final|the) answer(?: is)?", ["final answer", "the answer"]),
        (r"\d+", []),
        (r"a?b?", []),
        (r"(?!never)ever", ["ever"]),
    ],
)
def test_the_words_of_a_pattern(pattern: str, least: list[str]) -> None:
    assert words(re.compile(pattern)) == least
