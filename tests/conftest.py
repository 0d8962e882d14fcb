"""Every test has a store of its own and knows nothing of the caller's settings."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from pathlib import Path

import pytest

from rollscope.capture.problems import problems

# For fixtures of a whole session, which are made before `own_store`: a full disk records nothing.
os.environ["ROLLSCOPE_MIN_FREE"] = "0"

with contextlib.suppress(ImportError):  # the trainers' environments have no property tests
    from hypothesis import HealthCheck, settings

    # A busy machine must not fail a test: no deadlines, no judgement of how slow data comes.
    settings.register_profile(
        "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
    )
    settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """xdist silently runs only one of several tests with the same id."""
    twice = [id for id, count in Counter(item.nodeid for item in items).items() if count > 1]
    if twice:
        raise pytest.UsageError(f"several tests have the same id: {', '.join(twice)}")


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`ROLLSCOPE_DIR` in a temporary directory; no other Rollscope variable is set.

    Sealing by processes of their own is off: they would outlive the test. Tests of it turn it on.
    """
    for name in list(os.environ):
        if name == "ROLLSCOPE" or name.startswith("ROLLSCOPE_"):
            monkeypatch.delenv(name)
    store = tmp_path / "store"
    monkeypatch.setenv("ROLLSCOPE_DIR", str(store))
    monkeypatch.setenv("ROLLSCOPE_SEAL", "off")
    monkeypatch.setenv("ROLLSCOPE_MIN_FREE", "0")
    problems.forget()
    return store
