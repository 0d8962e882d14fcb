"""What the forwarding process makes of what the training processes tell."""

from __future__ import annotations

from rollscope.sinks.process import requested
from rollscope.store.writers import WriterInfo


def writer(started: float, **hints: str) -> WriterInfo:
    return WriterInfo(
        writer=f"w{started}",
        project="p",
        run="r",
        launch="l",
        host="h",
        pid=1,
        place="here",
        started=started,
        forwarded_to=["mlflow"],
        hints={"mlflow": hints},
    )


def test_of_what_the_processes_found_the_fullest_holds() -> None:
    """A worker knows the store only; the driver, which began later, knows the run, too."""
    worker, driver = writer(1.0, tracking_uri="a"), writer(2.0, tracking_uri="a", run_id="x")
    found = requested([worker, driver], "mlflow")
    assert found is not None
    assert (found.hints, found.notes) == ({"tracking_uri": "a", "run_id": "x"}, [])


def test_two_places_that_differ_are_said() -> None:
    found = requested([writer(1.0, tracking_uri="a"), writer(2.0, tracking_uri="b")], "mlflow")
    assert found is not None
    assert found.hints == {"tracking_uri": "a"}
    assert "several" in found.notes[0]
