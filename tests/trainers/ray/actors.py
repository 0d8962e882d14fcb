"""What runs on the nodes."""

from __future__ import annotations

import hashlib
import threading

import rollscope
from rollscope import Message, Rollout


class Recorder:
    """Records rollouts that are named after its node."""

    def begin(self, number: int) -> tuple[str, str | None]:
        """Where it writes, and where that is carried to."""
        self.number = number
        self.run = rollscope.init(project="p", run="r")
        return str(self.run.directory), self.run.setup.carried_to

    def log(self, first: int, count: int) -> int:
        """Returns how many it has recorded when they lie in its log."""
        rollouts = [
            Rollout(
                step=n // 100,
                task=f"{self.number}/{n}",
                messages=[Message(role="user", content=f"rollout {n} of node {self.number}")],
            )
            for n in range(first, first + count)
        ]
        self.run.log(rollouts)
        assert self.run.flush()
        return first + count

    def go_on(self, first: int) -> None:
        """Record until the node is gone."""

        def forever() -> None:
            n = first
            while True:
                n = self.log(n, 5)

        threading.Thread(target=forever, daemon=True).start()

    def logs(self) -> dict[str, str]:
        """Its logs and their hashes."""
        return {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in (self.run.directory / "live").iterdir()
        }

    def files(self) -> list[str]:
        """What lies in its directory of logs."""
        return [path.name for path in (self.run.directory / "live").iterdir()]

    def finish(self) -> None:
        self.run.finish()
