"""What cannot be recorded is told in one line, and verl runs as it does without us."""

from pathlib import Path

import pytest
import verl
from asking import PLACES
from driving import run_legacy
from world import dataset_rows, make_config, stored

import rollscope
from rollscope.adapters.verl import attach

BACKEND = "actor_rollout_ref.rollout.trace.backend"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "rollscope"]


@pytest.mark.parametrize("version", ["0.7.1", "0.8.0"])
def test_an_older_verl_is_refused_in_one_line_and_left_as_it_is(
    version: str, model: Path, own_store: Path, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(verl, "__version__", version)
    before = [getattr(owner, name) for owner, name in PLACES]
    config = make_config(model, f"{BACKEND}=rollscope")
    assert attach(config) is None
    run_legacy(config, dataset_rows(1, 2))
    assert [getattr(owner, name) for owner, name in PLACES] == before
    assert not own_store.exists()
    (line,) = told(caplog)
    assert (
        f"verl {version} is too old: nothing is recorded" in line and "verl 0.9 and newer" in line
    )


def test_nobody_hears_about_an_older_verl_who_has_not_asked(
    model: Path, own_store: Path, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(verl, "__version__", "0.7.1")
    run_legacy(make_config(model), dataset_rows(1, 2))
    assert told(caplog) == [] and not own_store.exists()


def test_a_version_in_the_making_is_newer_than_the_last_one(
    model: Path, own_store: Path, monkeypatch
) -> None:
    monkeypatch.setattr(verl, "__version__", "0.10.0.dev0")
    with rollscope.init(project="p", run="r"):
        run_legacy(make_config(model), dataset_rows(1, 2))
    assert len(stored(own_store)) == 2


@pytest.mark.parametrize(("backend", "is_told"), [("rolscope", 1), ("trackio", 0), ("null", 0)])
def test_a_misspelt_backend_is_told(
    backend: str, is_told: int, model: Path, own_store: Path, caplog
) -> None:
    attach(make_config(model, f"{BACKEND}={backend}")).finish()
    lines = [text for text in told(caplog) if "trace.backend" in text]
    assert len(lines) == is_told
    assert all("trace.backend=rolscope" in t and "trace.backend=rollscope" in t for t in lines)


def test_verls_own_mark_of_a_rollout_tells_where_it_marks_nothing(
    model: Path, own_store: Path, caplog
) -> None:
    import verl.utils.rollout_trace as module

    config = make_config(model, f"{BACKEND}=rollscope")
    with rollscope.init(project="p", run="r", sample=rollscope.Sample(rollouts_per_step=0)):
        attach(config)
        run_legacy(config, dataset_rows(1, 2))  # chosen or not, a worker's rollout is one
        assert told(caplog) == []
        with module.rollout_trace_attr(step=1, sample_index=2):
            pass
    (line,) = told(caplog)
    assert "rollout_trace_attr" in line and "rollscope.rollout_trace_attr" in line
