import threading
from pathlib import Path

from rollscope import capture
from rollscope.adapters._later import Later


def test_work_is_done_in_order_and_before_the_run_ends(own_store: Path) -> None:
    done: list[int] = []
    gate = threading.Event()
    with capture.init(project="p", run="r") as run:
        later = Later("test", run)
        later(gate.wait)
        for n in range(100):
            later(done.append, n)
        assert done == []
        gate.set()
    assert done == list(range(100))


def test_what_raises_does_not_stop_what_follows(own_store: Path) -> None:
    done: list[int] = []

    def broken() -> None:
        raise ZeroDivisionError("ours")

    with capture.init(project="p", run="r") as run:
        later = Later("test", run)
        later(broken)
        later(done.append, 1)
        later.drain()
        assert done == [1]
