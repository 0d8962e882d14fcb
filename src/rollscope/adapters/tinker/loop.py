"""tinker-cookbook's training loop: names, numbers, advantages, evaluations, what was dropped.

The loop consists of functions in `tinker_cookbook.rl.train` and its neighbours, which call each
other by name. Some of these are watched. Groups are told apart by the object itself: the loop
hands on the same `TrajectoryGroup` that the rollout returned, from whatever process it came.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

from ... import capture
from .._arrays import numbers
from .._record import Later
from .._seam import Watcher, Watching, is_ours
from .convert import GroupPlace
from .state import PACKAGE, Names, State

_step: ContextVar[int | None] = ContextVar("rollscope_tinker_step", default=None)
"""The step that is being trained in this task."""


def names() -> Names:
    """What the trainer calls its project and run."""
    return _state.names


def begins_anew() -> bool:
    """Does a training of its own begin here? True once for each."""
    is_new = _state.names.is_new
    _state.names = _state.names._replace(is_new=False)
    return is_new


def joined(run: capture.Run) -> None:
    """What the loop tells from now on is about this run."""
    _state.run = run


def tokenizer() -> Any:
    """The trainer's, once it has made it."""
    return _state.tokenizer


def _run() -> capture.Run | None:
    return _state.run if _state.run is not None and _state.run.is_on else capture.active()


def attached() -> tuple[str, ...]:
    """The functions that are watched."""
    return tuple(_state.watched)


def new_source() -> int:
    """A number for one more dataset of this run."""
    _state.sources += 1
    return _state.sources - 1


def batch_begins(index: int) -> None:
    """The loop asked for this batch. What is evaluated from now on comes after it."""
    _state.next_batch = index + 1


# -- putting the functions in place ----------------------------------------------------


def listen() -> None:
    """Learn project, run and tokenizer from the trainer, and record its metrics."""
    from tinker_cookbook.utils import ml_log

    _watch(ml_log, {"setup_logging": _logging, "MultiplexLogger.log_metrics": _metrics})
    for module in _LOOPS:
        loaded = sys.modules.get(f"{PACKAGE}.{module}")
        if hasattr(loaded, "get_tokenizer"):
            _watch(loaded, {"get_tokenizer": _get_tokenizer})


def attach() -> None:
    """Watch the loops that are loaded. If a loop lacks a function, the log says so."""
    for module, watchers in _LOOPS.items():
        loaded = sys.modules.get(f"{PACKAGE}.{module}")
        if loaded is not None:
            _watch(loaded, watchers)


def detach() -> None:
    """Put the originals back."""
    global _state
    _state.seams.restore()
    _state = State()


def _watch(module: Any, watchers: Mapping[str, Watcher]) -> None:
    lost = "what it tells is not recorded. Supported: tinker-cookbook 0.3 to 0.6"
    for name in _state.seams.watch(module, watchers, lost):
        where = f"{module.__name__}.{name}".removeprefix(f"{PACKAGE}.")
        if where not in _state.watched:
            _state.watched.append(where)


# -- the watchers ----------------------------------------------------------------------


def _logging(
    log_dir: str, wandb_project: Any = None, wandb_name: Any = None, config: Any = None
) -> Watching:
    yield
    from tinker_cookbook.utils import ml_log

    path = Path(str(log_dir))
    _state.names = Names(
        wandb_project or path.parent.name or None,
        wandb_name or path.name or None,
        None if config is None else ml_log.dump_config(config),
        is_new=not _has_checkpoint(path),
    )


def _has_checkpoint(path: Path) -> bool:
    """Will the loop go on from a checkpoint in its `log_path`?"""
    file = path / "checkpoints.jsonl"
    return file.is_file() and file.stat().st_size > 0


def _get_tokenizer() -> Watching:
    _state.tokenizer = yield


def _metrics(metrics: Mapping[str, Any], step: int | None = None) -> Watching:
    yield
    run, values = _run(), numbers(metrics)
    if run is not None and values:
        run.metrics(step, values)


def _filtered_rollout(
    sampling_client: Any,
    env_group_builder: Any,
    max_tokens: Any = None,
    temperature: Any = None,
    do_remove_constant_reward_groups: bool = False,
    strategy: Any = None,
) -> Watching:
    sampling = {"temperature": temperature, "max_tokens": max_tokens}
    builder = _begin(env_group_builder, sampling, sampling_client, do_remove_constant_reward_groups)
    place = getattr(builder, "place", None)
    group = yield {"env_group_builder": builder, "strategy": _watched(strategy)}
    _end(place, group)


def _group_rollout(env_group_builder: Any, policy: Any, strategy: Any = None) -> Watching:
    sampling = {name: getattr(policy, name, None) for name in ("temperature", "max_tokens")}
    builder = _begin(env_group_builder, sampling, getattr(policy, "sampling_client", None))
    place = getattr(builder, "place", None)
    group = yield {"env_group_builder": builder, "strategy": _watched(strategy)}
    _end(place, group)


def _any_rollout(builder: Any, /) -> Watching:
    """The function that rolls out a group, or what a recipe has put in its place."""
    from .hook import TracedBuilder

    rollout = builder.begins() if isinstance(builder, TracedBuilder) else None
    try:
        group = yield
    except BaseException as error:
        if rollout is not None:
            builder.failed(rollout, error)
        raise
    if rollout is not None:
        builder.ends(rollout, group)


def _watch_rebound() -> None:
    """A recipe may put its own function in place at any time."""
    module = sys.modules.get(f"{PACKAGE}.rl.rollouts")
    if module is not None and not is_ours(getattr(module, "do_group_rollout", None)):
        _watch(module, _LOOPS["rl.rollouts"])


def _begin(
    builder: Any, sampling: Mapping[str, Any], client: Any, drops_constant: bool = False
) -> Any:
    """The builder for this rollout of the group, with all that is known about it."""
    from .hook import TracedBuilder

    if not isinstance(builder, TracedBuilder):
        return builder
    _watch_rebound()
    if builder.place.step is None:  # a loop that evaluates without saying at which step
        builder = builder.at(step=_state.next_batch)
    place = builder.place
    roll = _state.roll(place.name)
    for key in _state.waiting.pop(place.name, ()):  # asynchronous training: too old to train on
        _annotate(key, fate="dropped", fate_reason="stale: rolled out again")
    return builder.at(
        roll=roll,
        sampling={name: value for name, value in sampling.items() if value is not None},
        policy_version=_version(client, place.step),
        drops_constant=bool(drops_constant),
    )


def _watched(strategy: Any) -> Any:
    from .hook import TracedStrategy

    if strategy is None:
        return TracedStrategy()
    return strategy if isinstance(strategy, TracedStrategy) else TracedStrategy(strategy)


def _version(client: Any, step: int | None) -> int | None:
    """How many steps the weights behind a sampling client had seen.

    The loop's first client was not made by a step; it counts as that of the first batch.
    """
    try:
        return (
            _state.versions.setdefault(client, step)
            if step is not None
            else (_state.versions.get(client))
        )
    except TypeError:  # cannot be referenced weakly
        return None


def _end(place: Any, group: Any) -> None:
    """Remember whose keys the trajectories are, and rewards that were clamped afterwards."""
    if group is None or not isinstance(place, GroupPlace):
        return
    keys = [f"{place.name}/{i}" for i in range(len(group.trajectories_G))]
    _state.remember(group, keys, place.step)
    if place.split == "train":
        _state.waiting[replace(place, roll=0).name] = keys
    totals = group.get_total_rewards()
    for key, metrics, total in zip(keys, group.metrics_G, totals, strict=True):
        if metrics.get("zero_reward_on_limit"):
            _annotate(key, reward=float(total))


def _compute_advantages(trajectory_groups_P: Any) -> Watching:
    advantages = yield
    for group, values in zip(trajectory_groups_P, advantages, strict=True):
        _learned(group, values.tolist(), _step.get())


def _no_advantages(trajectory_groups_P: Any) -> Watching:
    """SDFT trains on each batch as soon as it is made. Its advantages are of tokens, and what it
    asks for here are zeros that stand for them."""
    yield
    for group in trajectory_groups_P:
        made = _state.made(group)
        if made is not None:
            _learned(group, [None] * len(made.keys), made.step)


def _learned(group: Any, values: list[float | None], step: int | None) -> None:
    keys = _state.keys(group)
    if keys is None or len(keys) != len(values):
        capture.report(
            "adapter tinker", "advantages of a group that nobody rolled out here: not recorded"
        )
        return
    name = keys[0].rpartition("/")[0].partition("#")[0] if keys else ""
    if _state.waiting.pop(name, None) is None:
        return  # told already: tinker-cookbook computes some twice, to print them
    for key, value in zip(keys, values, strict=True):
        _annotate(key, advantage=value, fate="trained", trained_step=step)


def _assemble(trajectory_groups_P: Any) -> Watching:
    data, places = yield
    rows: dict[str, list[Any]] = {}
    for datum, place in zip(data, places, strict=True):
        keys = _state.keys(trajectory_groups_P[place["group_idx"]])
        if keys is not None:
            rows.setdefault(keys[place["traj_idx"]], []).append(datum)
    for key, own in rows.items():
        if len(own) == 1:  # several: branches, whose shared tokens stand in each
            _state.data[id(own[0])] = (own[0], key)


def _forward(data_D: Any) -> Watching:
    logprobs = yield
    if len(logprobs) == len(data_D):
        for datum, values in zip(data_D, logprobs, strict=True):
            _trained_on(datum, values)
    _state.data.clear()


def _trained_on(datum: Any, logprobs: Any) -> None:
    """Advantage (with any KL penalty) and log probability of each token in the loss.

    A row's targets are its tokens from the second on.
    """
    found = _state.data.get(id(datum))
    if found is None or found[0] is not datum:
        return
    given = {name: values.to_torch().tolist() for name, values in datum.loss_fn_inputs.items()}
    mask = given["mask"]
    streams = {"advantage": given["advantages"], "train_logprob": logprobs.tolist()}
    if any(len(values) != len(mask) for values in streams.values()):
        capture.report(
            "adapter tinker", "training rows and their mask differ in length: not recorded"
        )
        return
    _annotate(
        found[1],
        streams={
            name: [None, *(v if m else None for v, m in zip(values, mask, strict=True))]
            for name, values in streams.items()
        },
    )


def _remove_constant(trajectory_groups_P: Any) -> Watching:
    kept = yield
    still = {id(group) for group in kept}
    for group in trajectory_groups_P:
        for key in () if id(group) in still else _state.keys(group) or ():
            _annotate(key, fate="dropped", fate_reason="constant reward")


def _evaluation(evaluator: Any, i_batch: int) -> Watching:
    from .hook import TracedBuilder

    builders: Any = getattr(evaluator, "env_group_builders_P", ())
    for n, builder in enumerate(builders):
        if isinstance(builder, TracedBuilder):
            builders[n] = builder.at(step=i_batch, roll=0)
    yield


def _train_step(i_batch: int) -> Watching:
    token = _step.set(i_batch)
    try:
        result = yield
    finally:
        _step.reset(token)
    client = result[0] if isinstance(result, tuple) else result
    if client is not None:
        _state.versions[client] = i_batch + 1


_TRAIN: dict[str, Watcher] = {
    "do_group_rollout_and_filter_constant_reward": _filtered_rollout,
    "compute_advantages": _compute_advantages,
    "assemble_training_data": _assemble,
    "train_step": _forward,
}
_LOOPS: dict[str, dict[str, Watcher]] = {
    "rl.train": {
        **_TRAIN,
        "remove_constant_reward_groups": _remove_constant,
        "run_single_evaluation": _evaluation,
        "do_train_step_and_get_sampling_client": _train_step,
        "do_train_step_streaming_and_get_sampling_client": _train_step,
    },
    "rl.rollouts": {"do_group_rollout": _any_rollout},
    "rl.metric_util": {
        "do_group_rollout": _group_rollout,
        "do_group_rollout_and_filter_constant_reward": _filtered_rollout,
    },
    "distillation.train_on_policy": {
        **_TRAIN,
        "do_train_step_and_get_sampling_client": _train_step,
    },
    "distillation.sdft": {**_TRAIN, "compute_advantages": _no_advantages},
}


def _annotate(key: str, **facts: Any) -> None:
    run = _run()
    if run is not None:  # after the rollout: it says whether a `Sample` keeps it
        Later.of("tinker", run)(run.annotate, key=key, **facts)


_state = State()
