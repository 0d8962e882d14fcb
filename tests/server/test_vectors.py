"""What the page's own tests are held against is what Python answers now."""

from __future__ import annotations

from . import vectors


def test_the_answers_that_the_page_is_tested_against_are_not_stale() -> None:
    assert vectors.PATH.read_text() == vectors.text(), "run: make generated"
