"""Watches AReaL's rollout workers. Every episode passes there, rejected and failed ones too."""

from __future__ import annotations

import copy
import functools
import itertools
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ... import capture
from ...model import Rollout
from ...model.normalise import as_error
from .._record import Later, converted, installed
from .._repeats import Repeats
from .._seam import Seams, Watching
from .convert import EngineCall, episodes
from .images import once
from .interactions import Episode, Places
from .verdicts import ExecutorTask, listen, running

WORKER = uuid.uuid4().hex[:8]
"""Tells the rollouts of this process from those of others, because task ids repeat."""

_KEPT = 20_000
"""How many rows are remembered until they are trained on, at about 500 bytes each. If there are
more, the oldest are forgotten and counted."""


class Known(NamedTuple):
    """The rollout of a training row, and where the row's tokens lie among its tokens."""

    key: str
    places: Places
    total: int


class MadeRows:
    """Training rows made in this process, by digest, until they are trained on or given up.

    Only rows are remembered whose rollout the digest does not tell, and only where a trainer in
    this process asks for them. AReaL's rollout workers never hear what became of a row.
    """

    def __init__(self) -> None:
        self.is_asked = False
        """Does a trainer in this process ask for rows?"""
        self._lock = threading.Lock()
        self._rows: OrderedDict[str, list[Known]] = OrderedDict()
        self._names: dict[str, list[str]] = {}
        """By the key of a rollout: the digests under which its rows are remembered."""
        self._repeats = Repeats()

    def add(self, episode: Episode) -> str:
        """Remember an episode's rows, and give it a key.

        The key of a rollout with one row is that row's digest, so that a trainer in another
        process knows it, too. Rows that are equal to the last bit get a number.
        """
        first, more = episode.rows[0][0], len(episode.rows) > 1
        key = self._repeats.unique(
            f"areal/{first}/{len(episode.rows)}" if more else f"areal/{first}"
        )
        if self.is_asked and key != f"areal/{first}":
            with self._lock:
                for name, places in episode.rows:
                    self._rows.setdefault(name, []).append(Known(key, places, episode.total))
                    self._names.setdefault(key, []).append(name)
            self._keep_few()
        return key

    def _keep_few(self) -> None:
        while len(self._rows) > _KEPT:
            with self._lock:
                name, lost = self._rows.popitem(last=False)
                for known in lost:
                    self._forget_name(known.key, name)
            text = f"more than {_KEPT} rows wait to be trained on; the oldest was let go of"
            capture.report("adapter areal", text)

    def _forget_name(self, key: str, name: str) -> None:
        names = self._names.get(key, [])
        if name in names:
            names.remove(name)
        if not names:
            self._names.pop(key, None)

    def give_up(self, key: str) -> None:
        """The rollout of this key will not be trained on."""
        with self._lock:
            for name in self._names.pop(key, ()):
                rest = [known for known in self._rows.get(name, ()) if known.key != key]
                if rest:
                    self._rows[name] = rest
                else:
                    self._rows.pop(name, None)

    def take(self, name: str, length: int) -> Known:
        """The rollout of a row. If it was made in another process, its key is the row's digest."""
        with self._lock:
            found = self._rows.get(name)
            if not found:
                return Known(f"areal/{name}", (range(length),), length)
            first = found.pop(0)
            self._forget_name(first.key, name)
            if not found:
                del self._rows[name]
            return first


class _Members:
    """Counts the members of a group. AReaL 1.0 does not number them. But all of them get the
    same object as their data, and they begin in order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: OrderedDict[Any, tuple[Any, int]] = OrderedDict()

    def next(self, task: Any, data: Any) -> int:
        with self._lock:
            known, number = self._started.get(task, (data, 0))
            number = number if known is data else 0
            self._started[task] = (data, number + 1)
            while len(self._started) > 1_000:
                self._started.popitem(last=False)
            return number

    def forget(self, task: Any) -> None:
        """All members of this task have begun. It is let go of, and so are its images."""
        with self._lock:
            self._started.pop(task, None)


rows = MadeRows()
members = _Members()
_numbers = itertools.count()


def later(run: capture.Run, work: Callable[..., Any], *args: Any, **how: Any) -> None:
    """Do it in the background, before `run` is finished."""
    Later.of("areal", run)(work, *args, **how)


@functools.cache
def seams() -> Seams:
    """What is watched in this process, until it ends."""
    return Seams("areal", f"AReaL {installed('areal')}")


class EpisodeWatch:
    """One episode, from its start to its end."""

    def __init__(self, engine: Any, data: Any, tokenizer: Any = None) -> None:
        from areal.infra import workflow_context

        context = workflow_context.get()
        self.is_eval, self.task_id = context.is_eval, context.task_id
        self.index = getattr(context, "sample_idx", None)
        if self.task_id is not None and self.index is None:
            self.index = members.next((self.is_eval, self.task_id), data)
        self.data = dict(data) if isinstance(data, Mapping) else {}
        self.tokenizer = tokenizer
        self.calls: list[EngineCall] = []
        self.chats: dict[str, list[Mapping[str, Any]]] = {}
        self.start = time.time()
        get_version = getattr(engine, "get_version", None)
        version = get_version() if callable(get_version) else None
        self.step = version if isinstance(version, int) else None
        self.run = join(getattr(engine, "config", None))
        self.key: str | None = None
        """Of the first rollout that the episode made, once it is recorded."""
        self.task: ExecutorTask | None = None
        if self.run is not None and self.task_id is not None:
            self.task = running(self.is_eval, self.task_id)
            listen()

    def whole(self, changes: Mapping[str, Any] | None = None) -> Watching:
        """Watches the function that runs the episode, and passes `changes` on to it."""
        try:
            result = yield changes
        except BaseException as error:
            self.end(None, error)
            raise
        self.end(result)

    def end(self, result: Any, error: BaseException | None = None) -> None:
        """Snapshot; the background does the rest."""
        if self.run is None:
            return
        if isinstance(result, Mapping):
            last = next(reversed(list(result.values())), None)
            if self.task is not None and hasattr(last, "original_reward"):
                self.task.expect(self, last)
            result = {name: _snapshot(value) for name, value in result.items()} or None
        later(
            self.run,
            self._record,
            self.run,
            result,
            error,
            time.time(),
            rollouts=len(result["input_ids"]) if result and "input_ids" in result else 1,
            holds=(result, [_held(call.response) for call in self.calls]),
        )

    def _record(
        self, run: capture.Run, result: Any, error: BaseException | None, ended: float
    ) -> None:
        found = converted(
            "areal",
            episodes,
            result,
            data=self.data,
            calls=self.calls,
            chats=self.chats,
            tokenizer=self.tokenizer,
        )
        for n, episode in enumerate(found):
            rollout = episode.rollout
            rollout.start, rollout.end = self.start, ended
            if error is not None:
                rollout.fate, rollout.fate_reason = "failed", None
                rollout.error = as_error(error)
            self._name(rollout, n, len(found))
            if self.task is not None and "data" in rollout.meta:
                rollout.meta["data"] = once(rollout.meta["data"], self.task.images)
            if episode.rows and not self.is_eval:
                rollout.key = rows.add(episode)
        run.log([episode.rollout for episode in found])
        self.key = found[0].rollout.key if found else None
        for episode in found:
            if self.task is not None:
                self.task.add(run, episode.rollout)

    def _name(self, rollout: Rollout, n: int, of: int) -> None:
        rollout.split = "eval" if self.is_eval else "train"
        rollout.step = self.step
        if rollout.policy_version is None:
            rollout.policy_version = self.step
        if self.index is not None:
            rollout.index = self.index * of + n
        if self.task_id is not None:
            rollout.group = f"{rollout.split}/{self.step}/{rollout.task}/{self.task_id}"
        rollout.key = f"areal/{rollout.split}/{WORKER}/{next(_numbers)}"


def _snapshot(value: Any) -> Any:
    """An interaction as it is now. AReaL writes the normalised reward into it when its group has
    ended, and what it computes for us must not stay in it. Tensors are not changed any more: AReaL
    concatenates copies."""
    return copy.copy(value) if hasattr(value, "to_tensor_dict") else value


def _held(response: Any) -> list[Any]:
    names = ("input_tokens", "output_tokens", "output_logprobs", "output_versions")
    return [getattr(response, name, None) for name in names]


def join(config: Any) -> capture.Run | None:
    """The run of this process: AReaL's experiment is the project, its trial the run."""
    return capture.join(
        getattr(config, "experiment_name", None) or None,
        getattr(config, "trial_name", None) or None,
        adapter="areal",
        version=installed("areal"),
        seams=("arun_episode", "agenerate"),
        asked=True,
    )


class RecordingEngine:
    """The engine as a workflow sees it, with every `agenerate` noted."""

    def __init__(self, engine: Any, calls: list[EngineCall]) -> None:
        self.__dict__["_engine"] = engine
        self.__dict__["_calls"] = calls

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        # Workflows may ask isinstance(engine, InferenceEngine).
        return type(self.__dict__["_engine"])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_engine"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_engine"], name, value)

    async def agenerate(self, req: Any, *args: Any, **kwargs: Any) -> Any:
        started = time.time()
        calls: list[EngineCall] = self.__dict__["_calls"]
        try:
            response = await self.__dict__["_engine"].agenerate(req, *args, **kwargs)
        except BaseException as error:
            calls.append(EngineCall(req, None, started, time.time(), error))
            raise
        calls.append(EngineCall(req, response, started, time.time()))
        return response
