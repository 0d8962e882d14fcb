"""Labels and notes: late facts. The server writes them with a writer of its own, like any other
process."""

from __future__ import annotations

import getpass
import threading
from pathlib import Path
from typing import Any

from ..capture.run import Run
from ..capture.setup import Setup
from ..query import Store
from ..query.rows import Row
from ..query.runs import LABELS
from .shapes import Label
from .version import VERSION


class Labels:
    """Writes labels into the runs that they are about."""

    def __init__(self, store: Store) -> None:
        self._root = Path(getattr(store.reader, "root", ""))
        self._runs: dict[tuple[str, str], Run] = {}
        self._lock = threading.Lock()

    def write(self, row: Row, label: Label) -> None:
        """Keep a label or a note of a rollout; it is on disk, and can be queried, when this
        returns."""
        run = self._run(row.project or "default", row.run or "default")
        author = label.author or getpass.getuser()
        if label.label:
            said: dict[str, Any] = {f"label.{label.label}": label.value}
            run.annotate(row.id, message=label.message, author=author, **said)
        if label.note:
            run.annotate(row.id, message=label.message, author=author, note=label.note)
        if not run.flush(10):
            raise TimeoutError("the label was not written within 10 seconds; is the disk full?")

    def close(self) -> None:
        with self._lock:
            for run in self._runs.values():
                run.finish()
            self._runs.clear()

    def _run(self, project: str, name: str) -> Run:
        with self._lock:
            run = self._runs.get((project, name))
            if run is None:
                setup = Setup(
                    project=project,
                    run=name,
                    launch=LABELS,
                    worker="viewer",
                    root=self._root,
                    version=VERSION,
                    is_quiet=True,
                )
                run = self._runs[project, name] = Run(setup)
                run.start()
            return run
