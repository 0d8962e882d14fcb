"""Wrappers around tinker-cookbook's dataset, group builder, strategy and policy.

They only look. They change nothing that an environment returns, raises or keeps. Its methods are
watched on the instance, so `isinstance` and every attribute stay as they were. Group builders
travel to process pools by pickle, and take along what the worker needs to join the run.

Importing this module imports tinker-cookbook. Only `traced` imports it.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import os
import sys
import time
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import chz
import tinker_cookbook
from tinker_cookbook.completers import TokenCompleter
from tinker_cookbook.rl.rollout_strategy import FailFast, RolloutStrategy
from tinker_cookbook.rl.types import EnvGroupBuilder, RLDataset, RLDatasetBuilder

from ... import capture
from ...capture.settings import setting
from ...model import Error
from ...model.normalise import as_error
from .._record import Later, converted
from .._seam import Seams, Watcher, Watching
from .._settings import note
from . import loop
from .convert import Action, GroupPlace, Notes, Turn, convert, convert_failed
from .settings import algorithm

_VERSION = getattr(tinker_cookbook, "__version__", None)
SEAMS = ("RLDatasetBuilder", "EnvGroupBuilder", "RolloutStrategy")

_running: ContextVar[Notes | None] = ContextVar("rollscope_tinker_env", default=None)
"""The environment whose rollout this task runs."""


def traced(builder: Any, project: str | None, run: str | None) -> Any:
    """See `rollscope.adapters.tinker.traced`."""
    if setting("ROLLSCOPE") is False:
        return builder
    with capture.guard("adapter tinker: traced"):
        loop.listen()
        if hasattr(builder, "get_batch"):
            return LateDataset(builder, project, run)
        if not isinstance(builder, TracedDatasetBuilder):
            return TracedDatasetBuilder(inner=builder, project=project, run=run)
    return builder


def join(project: str | None = None, run: str | None = None) -> capture.Run | None:
    """The run. Its name comes from the trainer's own config unless somebody gave one."""
    names = loop.names()
    run_ = capture.join(
        project or names.project,
        run or names.run,
        adapter="tinker",
        version=_VERSION,
        seams=(*SEAMS, *loop.attached()),
        asked=True,
        config=names.config,
        named=bool(project or run),
        anew=loop.begins_anew(),
    )
    note("tinker", run_, algorithm, names.config)
    return run_


@chz.chz
class TracedDatasetBuilder(RLDatasetBuilder):  # type: ignore[misc]
    """Builds the same datasets, whose rollouts are recorded."""

    inner: Any
    project: str | None = None
    run: str | None = None

    async def __call__(self) -> tuple[Any, Any]:
        train, test = await self.inner()
        with capture.guard("adapter tinker: datasets"):
            loop.attach()
            joined = join(self.project, self.run)
            if joined is not None:
                loop.joined(joined)
                source = loop.new_source()
                tested = None if test is None else TracedDataset(test, "eval", source, joined)
                return TracedDataset(train, "train", source, joined), tested
        return train, test

    def __getattr__(self, name: str) -> Any:
        return _of_inner(self, name)


def _of_inner(ours: Any, name: str) -> Any:
    """An attribute that only the object inside has."""
    if name.startswith(("_", "X_")) or name == "inner":  # X_: chz keeps its fields there
        raise AttributeError(name)
    return getattr(ours.inner, name)


class TracedDataset(RLDataset):  # type: ignore[misc]
    """The same batches, of group builders that record."""

    def __init__(
        self,
        inner: Any,
        split: str = "train",
        source: int = 0,
        joined: capture.Run | None = None,
    ) -> None:
        self.inner, self.split, self.source, self._run = inner, split, source, joined
        self._places: dict[int, int] = {}  # of a test set's batches among all its groups
        self._groups = 0

    def get_batch(self, index: int) -> Any:
        batch = self.inner.get_batch(index)
        with capture.guard("adapter tinker: a batch"):
            if isinstance(batch, tuple):  # SDFT: builders, questions, answers
                return (self._traced(batch[0], index), *batch[1:])
            return self._traced(batch, index)
        return batch

    def _traced(self, builders: Sequence[Any], index: int) -> list[Any]:
        # The evaluator asks for all batches once, before any step: the step comes with each
        # evaluation, and the place among all groups is what tells them apart.
        training = self.split == "train"
        if index not in self._places and not training:
            self._places[index] = self._groups
            self._groups += len(builders)
        first = self._places.get(index, 0)
        if training:
            loop.batch_begins(index)
        return [
            TracedBuilder(
                builder,
                GroupPlace(
                    split=self.split,
                    step=index if training else None,
                    group=first + i,
                    source=self.source,
                    dataset=_dataset(builder),
                ),
                self._run,
            )
            for i, builder in enumerate(builders)
        ]

    def __len__(self) -> int:
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:
        return _of_inner(self, name)


class LateDataset(TracedDataset):
    """A dataset that a loop is given as it is, before it says what its run is called."""

    def __init__(self, inner: Any, project: str | None, run: str | None) -> None:
        super().__init__(inner)
        self._names = project, run

    def _traced(self, builders: Sequence[Any], index: int) -> list[Any]:
        if self._run is None:
            loop.attach()
            self._run, self.source = join(*self._names), loop.new_source()
            if self._run is None:
                return list(builders)
            loop.joined(self._run)
        return super()._traced(builders, index)


def _dataset(builder: Any) -> str | None:
    tags = builder.logging_tags()
    return str(tags[0]) if tags else None


class TracedBuilder(EnvGroupBuilder):  # type: ignore[misc]
    """Makes the same environments, and records the group when its rewards are known."""

    def __init__(self, inner: Any, place: GroupPlace, joined: capture.Run | None = None) -> None:
        self.inner = inner
        self.place = place
        self._run = joined
        self._env: dict[str, str] = capture.child_env()
        self._begin()

    def _begin(self) -> None:
        self._notes: list[Notes] = []
        self._calls = 0
        self._is_logged = False
        self._rollout: _WholeRollout | None = None
        self.error: BaseException | None = None
        """What ended the rollout of the group, if a strategy of ours has seen it."""

    def _joined(self) -> capture.Run | None:
        return self._run if self._run is not None and self._run.is_on else join()

    def begins(self) -> _WholeRollout:
        """Somebody begins to roll this group out, in whatever way."""
        self._rollout = _WholeRollout(self.place, self._notes)
        return self._rollout

    def ends(self, rollout: _WholeRollout, group: Any) -> None:
        """The group is made. Who rolls out in a way of his own need not ask us for rewards."""
        if rollout.is_logged:
            return
        trajectories = list(group.trajectories_G)
        own = [rollout.notes_of(trajectory) for trajectory in trajectories]
        rewards = list(zip(group.final_rewards_G, group.metrics_G, strict=True))
        run = self._joined()
        if run is None:
            return
        given = {
            "envs": [None if notes is None else notes.env for notes in own],
            "notes": own,
            "builder": self.inner,
            "place": rollout.place,
            "tokenizer": loop.tokenizer(),
        }
        begun = [n for n in rollout.notes if n.start is not None]
        failed = [n for n in begun if not any(n is other for other in own)]
        _log_later(run, trajectories, rewards, given, None, failed)

    def failed(self, rollout: _WholeRollout, error: BaseException) -> None:
        """The roll raised, and what cleans up did not know it."""
        if not rollout.is_logged:
            self._log_failed(error, rollout.notes, rollout.place)

    def at(self, **changes: Any) -> TracedBuilder:
        """A copy for one rollout of the group, elsewhere in the run."""
        other = copy.copy(self)  # as pickle would: without the run
        other.place, other._run = replace(self.place, **changes), self._run
        return other

    async def make_envs(self) -> Sequence[Any]:
        envs: Sequence[Any] = await self.inner.make_envs()
        with capture.guard("adapter tinker: watching environments"):
            for env in envs:
                notes = Notes(env=env, attempt=self._calls)
                _watch(env, notes)
                self._notes.append(notes)
            self._calls += 1
        return envs

    async def compute_group_rewards(self, trajectories: list[Any], envs: Sequence[Any]) -> Any:
        try:
            rewards = await self.inner.compute_group_rewards(trajectories, envs)
        except BaseException as error:
            with capture.guard("adapter tinker: a failed grader"):
                self._log(trajectories, envs, None, error)
            raise
        with capture.guard("adapter tinker: a group"):
            self._log(trajectories, envs, rewards)
        return rewards

    async def cleanup(self) -> None:
        with capture.guard("adapter tinker: a failed group"):
            error = sys.exc_info()[1] or self.error  # since 0.6 it is called in a task of its own
            if error is not None or self._rollout is None:  # else `ends` or `failed` is to come
                self._log_failed(error, self._notes, self.place)
        with capture.guard("adapter tinker: the next roll"):
            self.place = replace(self.place, roll=self.place.roll + 1)
            self._begin()
        await self.inner.cleanup()

    def logging_tags(self) -> list[str]:
        return self.inner.logging_tags()  # type: ignore[no-any-return]

    def _log(
        self,
        trajectories: Sequence[Any],
        envs: Sequence[Any],
        rewards: Any,
        error: BaseException | None = None,
    ) -> None:
        run = self._joined()
        if run is None:
            return
        by_env = {id(notes.env): notes for notes in self._notes}
        survived = {id(env) for env in envs}
        failed = [n for n in self._notes if n.start is not None and id(n.env) not in survived]
        given = {
            "envs": list(envs),
            "notes": [by_env.get(id(env)) for env in envs],
            "builder": self.inner,
            "place": self.place,
            "tokenizer": loop.tokenizer(),
        }
        rewards = None if rewards is None else list(rewards)
        self._is_logged = True
        if self._rollout is not None:
            self._rollout.is_logged = True
        _log_later(run, list(trajectories), rewards, given, error, failed)

    def _log_failed(
        self, error: BaseException | None, notes: Sequence[Notes], place: GroupPlace
    ) -> None:
        """The group ended before it had rewards: record what there is of each rollout."""
        begun = [one for one in notes if one.start is not None]
        run = self._joined() if begun and not self._is_logged else None
        if run is None:
            return
        if self._rollout is not None:
            self._rollout.is_logged = True
        Later.of("tinker", run)(
            _convert_and_log_failed,
            run,
            begun,
            place,
            self.inner,
            error,
            rollouts=len(begun),
            holds=[_held(notes.turns) for notes in begun],
        )

    def __getattr__(self, name: str) -> Any:
        return _of_inner(self, name)

    def __getstate__(self) -> dict[str, Any]:
        return {"inner": self.inner, "place": self.place, "_env": self._env}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._run = None
        self._begin()
        with capture.guard("adapter tinker: joining in a worker"):
            if capture.active() is None:
                os.environ.update(self._env)


@dataclass(eq=False)
class _WholeRollout:
    """One call that rolls a group out, as far as the builder sees it."""

    place: GroupPlace
    notes: list[Notes]
    is_logged: bool = False

    def notes_of(self, trajectory: Any) -> Notes | None:
        """What was noted of the environment that made it: they share their actions."""
        made = {id(transition.ac) for transition in trajectory.transitions}
        taken = ((n, {id(turn.ac) for turn in n.turns}) for n in self.notes)
        return next((notes for notes, actions in taken if made & actions), None)


def _log_later(run: capture.Run, trajectories: list[Any], *more: Any) -> None:
    failed: list[Notes] = more[-1]
    turns = [t.transitions for t in trajectories] + [notes.turns for notes in failed]
    Later.of("tinker", run)(
        _convert_and_log,
        run,
        trajectories,
        *more,
        rollouts=len(turns),
        holds=list(map(_held, turns)),
    )


def _held(turns: Sequence[Any]) -> Any:
    """What the turns of a rollout keep in memory: each observation begins with the one before."""
    shown = getattr(turns[-1].ob, "chunks", ()) if turns else ()
    actions = [(turn.ac.tokens, turn.ac.maybe_logprobs) for turn in turns]
    return actions, [getattr(chunk, "tokens", None) for chunk in shown]


def _convert_and_log(
    run: capture.Run,
    trajectories: list[Any],
    rewards: Any,
    given: dict[str, Any],
    error: BaseException | None,
    failed: list[Notes],
) -> None:
    rollouts = converted("tinker", convert, trajectories, rewards, **given)
    for rollout in rollouts if error is not None else ():
        rollout.fate, rollout.fate_reason = "failed", "the grader failed"
        rollout.error = _error(error, "grader")
    place, builder = given["place"], given["builder"]
    rollouts += [convert_failed(n, i, place, builder) for i, n in enumerate(failed)]
    run.log(rollouts)


def _convert_and_log_failed(
    run: capture.Run,
    begun: list[Notes],
    place: GroupPlace,
    builder: Any,
    error: BaseException | None,
) -> None:
    rollouts = [convert_failed(n, i, place, builder) for i, n in enumerate(begun)]
    first = next((notes.error for notes in begun if notes.error is not None), None)
    why = first if error is None else as_error(error)
    for i, (rollout, notes) in enumerate(zip(rollouts, begun, strict=True)):
        rollout.index = i
        if why is None:
            rollout.fate = "generated"
        elif notes.error is None:
            rollout.fate_reason = f"its group failed: {why.type}: {why.text or ''}"
    run.log(rollouts)


@dataclass(frozen=True)
class TracedStrategy(RolloutStrategy):  # type: ignore[misc]
    """The same strategy; notes when the policy was asked, and the errors it raised.

    `traced` puts it in place by itself inside tinker-cookbook's training loops. In a loop of
    your own: `do_group_rollout(builder, policy, strategy=TracedStrategy(RetryOnFailure()))`.
    """

    inner: Any = field(default_factory=FailFast)

    @property
    def catches_group_errors(self) -> bool:
        return bool(self.inner.catches_group_errors)

    async def execute(self, builder: Any, policy: Any) -> Any:
        try:
            return await self.inner.execute(builder, _WatchedPolicy(policy))
        except BaseException as error:
            if isinstance(builder, TracedBuilder):
                builder.error = error
            raise


class _WatchedPolicy(TokenCompleter):  # type: ignore[misc]
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    async def __call__(self, model_input: Any, stop: Any, **kwargs: Any) -> Any:
        start = time.time()
        notes = _running.get()
        try:
            action = await self.inner(model_input, stop, **kwargs)
        except BaseException as error:
            if notes is not None:
                notes.error = _error(error, "infrastructure")
            raise
        if notes is not None:
            notes.samples.append((action, start, time.time()))
        return action

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


# -- environments ----------------------------------------------------------------------


def _watch(env: Any, notes: Notes) -> None:
    """Note what goes through an environment. One that cannot be watched runs unwatched."""
    watchers: dict[str, Watcher] = {"initial_observation": _first_observation, "step": _step}
    if getattr(env, "message_env", None) is not None:
        watchers["message_env.initial_observation"] = _first_messages
    if hasattr(env, "_grade_with_rubric"):
        watchers["_grade_with_rubric"] = _grade
    Seams("tinker", f"tinker-cookbook {_VERSION}").watch(
        env,
        {path: functools.partial(watcher, notes) for path, watcher in watchers.items()},
        "times and failed rollouts of this environment are not recorded",
        anew=True,
    )


def _first_observation(notes: Notes) -> Watching:
    _running.set(notes)
    notes.start = time.time()
    try:
        result = yield
    except BaseException as error:
        notes.error, notes.end = _error(error, "environment"), time.time()
        raise
    if isinstance(result, tuple):
        notes.observation = result[0]
    else:  # too long a prompt: there will be no step
        notes.end = time.time()


def _step(notes: Notes, action: Any, /, extra: Any = None) -> Watching:
    start = time.time()
    taken = next((a for a, _, _ in reversed(notes.samples) if a.tokens is action), None)
    reason = (extra or {}).get("stop_reason")
    turn = Turn(notes.observation, taken or Action(list(action), None, reason))
    notes.turns.append(turn)
    try:
        result = yield
    except BaseException as error:
        notes.error, notes.end = _error(error, "environment"), time.time()
        raise
    notes.end = time.time()
    notes.steps.append((start, notes.end))
    notes.observation = getattr(result, "next_observation", None)
    turn.reward, turn.logs = getattr(result, "reward", None), getattr(result, "logs", {})
    turn.metrics = getattr(result, "metrics", {})


def _first_messages(notes: Notes) -> Watching:
    messages = yield
    notes.prompt = copy.deepcopy(list(messages))  # the environment goes on writing in it


def _grade(notes: Notes, convo: Any, rubric: Any, /) -> Watching:
    score, text = yield
    notes.grades.append((str(getattr(rubric, "rubric_str", rubric)), float(score), text))


def _error(error: BaseException | None, kind: str) -> Error:
    if isinstance(error, asyncio.CancelledError):
        return as_error(error)
    return as_error(error, "limit" if isinstance(error, TimeoutError) else kind)
