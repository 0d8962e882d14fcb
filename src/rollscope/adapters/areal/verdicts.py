"""What becomes of a task after its workflow: AReaL's executor may still refuse it or give it up.

`should_accept_fn` is only asked then, and if one member of a group fails, the whole group is
lost. The executor tells its session tracer how each task ended, whether tracing is on or not.
We listen there.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from ... import capture
from ...model import Rollout
from .._seam import Watching, is_ours

if TYPE_CHECKING:
    from .hook import EpisodeWatch

_ENDS = {
    "rejected": ("rejected", "refused by should_accept_fn"),
    "workflow_exception": ("dropped", "given up by AReaL: an error in its group"),
    "returned_none": ("dropped", "given up by AReaL: its group is incomplete"),
}
"""Fate and reason of rollouts that were good until then, by the executor's reason."""


class ExecutorTask:
    """One task of the executor: its rollouts, and how it ended."""

    def __init__(self) -> None:
        self.images: set[str] = set()
        """Those that a member of the group is stored with already."""
        self._lock = threading.Lock()
        self._keys: list[str] = []
        self._is_over = False
        self._reason: str | None = None
        self._expected: list[tuple[EpisodeWatch, Any]] = []

    def expect(self, watch: EpisodeWatch, last: Any) -> None:
        """AReaL may normalise the reward of this episode's last interaction within its group."""
        with self._lock:
            if not self._is_over:
                self._expected.append((watch, last))

    def normalised(self) -> list[tuple[EpisodeWatch, float]]:
        """The rewards that were normalised, now that the group has ended."""
        with self._lock:
            expected, self._expected = self._expected, []
        return [
            (watch, float(last.reward))
            for watch, last in expected
            if last.original_reward is not None and last.reward is not None
        ]

    def add(self, run: capture.Run, rollout: Rollout) -> None:
        """A rollout was recorded. Members of a lost group may end after the task."""
        if rollout.fate != "scored" or rollout.key is None:
            return
        with self._lock:
            self._keys.append(rollout.key)
            is_over = self._is_over
        if is_over:
            _tell(run, [rollout.key], self._reason)

    def end(
        self, run: capture.Run, reason: str | None, normalised: list[tuple[EpisodeWatch, float]]
    ) -> None:
        with self._lock:
            self._is_over, self._reason = True, reason
            keys = list(self._keys)
        for watch, reward in normalised:
            if watch.key is not None:
                run.annotate(key=watch.key, rewards={"normalised": reward})
        _tell(run, keys, reason)


def _tell(run: capture.Run, keys: list[str], reason: str | None) -> None:
    from .hook import rows

    fate, text = _ENDS.get(str(reason), (None, None))
    for key in keys if fate is not None else ():
        run.annotate(key=key, fate=fate, fate_reason=text)
        rows.give_up(key)


_running: OrderedDict[tuple[bool, Any], ExecutorTask] = OrderedDict()
"""By what AReaL knows a task by: whether it is an evaluation, and its number."""
_lock = threading.Lock()


def running(is_eval: bool, number: Any) -> ExecutorTask:
    """The task of an episode that begins. All members of a group share it."""
    with _lock:
        while len(_running) > 10_000:  # nobody told us that they ended
            _running.popitem(last=False)
        return _running.setdefault((is_eval, number), ExecutorTask())


def listen() -> None:
    """Hear how tasks end in this process, from now on. Called only when recording."""
    from areal.infra import workflow_executor

    from .hook import seams

    if not is_ours(getattr(workflow_executor, "trace_session_event", None)):
        lost = "what should_accept_fn refuses stays `scored`"
        seams().watch(workflow_executor, {"trace_session_event": _event}, lost)


def _event(method: str, task_id: Any = None, reason: str | None = None) -> Watching:
    if method == "mark_finalized":
        _finalized(task_id, reason)
    yield


def _finalized(number: Any, reason: str | None) -> None:
    from areal.infra import workflow_context

    from .hook import later, members

    run = capture.active()
    name = (workflow_context.get().is_eval, number)
    members.forget(name)
    with _lock:
        task = _running.pop(name, None)
    if run is not None and task is not None:
        later(run, task.end, run, reason, task.normalised())
