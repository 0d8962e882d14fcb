"""The sinks against the real systems. Runs in `.venv-peers` (requirements/peers.txt)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SHOTS = Path(__file__).parents[2] / "out" / "screenshots"
"""Build output: the other systems' own pages, showing rollouts that a test forwarded."""

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]


@pytest.fixture
def page() -> Iterator[Any]:
    """A page of a real browser, for looking at what the other system shows."""
    if CHROMIUM is None:
        pytest.skip("no chromium here: make chromium")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=60_000)  # a busy machine must not fail a test
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(60_000)
        yield page
        browser.close()


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a small run of the demo in it, project `demo`, run `short`."""
    import rollscope.demo
    from rollscope.demo.trainer import Plan

    folder = tmp_path_factory.mktemp("demo")
    rollscope.demo.run(
        folder,
        plans=[Plan("short", steps=2, rate=1e-3, groups=6, siblings=4, ahead=2)],
        warm_steps=100,
        tasks=(24, 4),
        progress=lambda line: None,
    )
    return folder


@pytest.fixture
def own_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of one test's MLflow reaches another."""
    import mlflow

    from rollscope.sinks.mlflow import MLflow

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROLLSCOPE_QUIET", "1")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    for name in ("MLFLOW_RUN_ID", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_ID"):
        monkeypatch.setenv(name, "")  # MLflow sets them itself: so they are put back, too
        monkeypatch.delenv(name)
    monkeypatch.setattr(MLflow, "_last_run", None)
    yield
    while mlflow.active_run():
        mlflow.end_run()
    mlflow.set_tracking_uri(None)
    mlflow.tracking.fluent._active_experiment_id = None


@pytest.fixture
def shots() -> Path:
    SHOTS.mkdir(parents=True, exist_ok=True)
    return SHOTS
