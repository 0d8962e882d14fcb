"""One is not said like two."""

from __future__ import annotations

import pytest

from rollscope.model.counted import counted


@pytest.mark.parametrize(
    ("count", "what", "said"),
    [
        (0, "error", "0 errors"),
        (1, "error", "1 error"),
        (2000, "rollout", "2,000 rollouts"),
        (2, "process", "2 processes"),
    ],
)
def test_numbers_with_what_they_count(count: int, what: str, said: str) -> None:
    assert counted(count, what) == said
