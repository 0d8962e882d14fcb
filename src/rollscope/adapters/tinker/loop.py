"""tinker-cookbook's training loop: names, numbers, advantages, evaluations, what was dropped.

The loop lives in functions of `tinker_cookbook.rl.train` and its neighbours, which call each
other by name. Some of these names are replaced by functions that call the original and look at
what it returns. Groups are told apart by the object itself: the loop hands on the very
`TrajectoryGroup` that the rollout returned, from whatever process it came.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ... import capture
from .convert import Place

_PACKAGE = "tinker_cookbook"
_step: ContextVar[int | None] = ContextVar("rollscope_tinker_step", default=None)
"""The step that is being trained in this task."""


_MOST = 100_000
"""Groups that are remembered to know them again when they are rolled out once more."""


class Names(NamedTuple):
    project: str | None = None
    run: str | None = None
    config: Mapping[str, Any] | None = None


class _State:
    """What is known about the loop in this process."""

    def __init__(self) -> None:
        self.names = Names()
        self.sources = 0
        self.next_batch = 0
        self.groups: dict[int, tuple[weakref.ref[Any], list[str]]] = {}
        self.rolls: dict[str, int] = {}
        self.waiting: dict[str, list[str]] = {}  # rolled out and not trained yet
        self.data: dict[int, tuple[Any, str]] = {}  # training rows of this step, by their object
        self.versions: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.originals: list[tuple[Any, str, Any]] = []
        self.seams: list[str] = []

    def remember(self, group: Any, keys: list[str]) -> None:
        self.groups = {k: v for k, v in self.groups.items() if v[0]() is not None}
        self.groups[id(group)] = (weakref.ref(group), keys)

    def keys(self, group: Any) -> list[str] | None:
        found = self.groups.get(id(group))
        return found[1] if found is not None and found[0]() is group else None

    def roll(self, name: str) -> int:
        """How often this group was rolled out before. Old ones are forgotten: a run is long."""
        number = self.rolls.pop(name, 0)
        self.rolls[name] = number + 1
        for memory in (self.rolls, self.waiting):
            while len(memory) > _MOST:
                del memory[next(iter(memory))]
        return number


_state = _State()


def names() -> Names:
    """What the trainer calls its project and run."""
    return _state.names


def attached() -> tuple[str, ...]:
    """The seams that are in place."""
    return tuple(_state.seams)


def new_source() -> int:
    """A number for one more dataset of this run."""
    _state.sources += 1
    return _state.sources - 1


def batch_begins(index: int) -> None:
    """The loop asked for this batch: what is evaluated from now on comes after it."""
    _state.next_batch = index + 1


# -- putting the functions in place ----------------------------------------------------


def listen() -> None:
    """Learn the names from the trainer's logger, and follow its numbers."""
    from tinker_cookbook.utils import ml_log

    _replace(ml_log, "setup_logging", _setup_logging)
    _replace(ml_log.MultiplexLogger, "log_metrics", _log_metrics)


_LOOPS = {
    "rl.train": (
        "do_group_rollout_and_filter_constant_reward",
        "compute_advantages",
        "assemble_training_data",
        "train_step",
        "remove_constant_reward_groups",
        "run_single_evaluation",
        "do_train_step_and_get_sampling_client",
        "do_train_step_streaming_and_get_sampling_client",
    ),
    "rl.metric_util": ("do_group_rollout", "do_group_rollout_and_filter_constant_reward"),
    "distillation.train_on_policy": (
        "do_group_rollout_and_filter_constant_reward",
        "compute_advantages",
        "assemble_training_data",
        "train_step",
    ),
}


def attach() -> None:
    """Follow the loops that are loaded. A loop that lacks a function says so, and goes on."""
    for module, functions in _LOOPS.items():
        loaded = sys.modules.get(f"{_PACKAGE}.{module}")
        for name in functions if loaded is not None else ():
            _replace(loaded, name, _WRAPPERS[name])


def detach() -> None:
    """Put the originals back."""
    global _state
    for owner, name, original in reversed(_state.originals):
        setattr(owner, name, original)
    _state = _State()


def _replace(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    original = getattr(owner, name, None)
    if getattr(original, "_rollscope", False):
        return
    where = f"{getattr(owner, '__name__', owner)}.{name}"
    if original is None:
        version = getattr(sys.modules.get(_PACKAGE), "__version__", "?")
        capture.report(
            "tinker",
            f"tinker-cookbook {version} has no {where}: what is told by it is not recorded "
            "(0.5.8 has it)",
        )
        return
    made: Any = functools.wraps(original)(wrapper(original))
    made._rollscope = True
    setattr(owner, name, made)
    _state.originals.append((owner, name, original))
    _state.seams.append(where.removeprefix(f"{_PACKAGE}."))


# -- the functions ---------------------------------------------------------------------


def _setup_logging(original: Any) -> Any:
    def setup_logging(log_dir: str, *args: Any, **kwargs: Any) -> Any:
        logger = original(log_dir, *args, **kwargs)
        with capture.guard("adapter tinker: names"):
            given = dict(zip(("wandb_project", "wandb_name", "config"), args, strict=False))
            given |= kwargs
            path = Path(str(log_dir))
            config = given.get("config")
            from tinker_cookbook.utils import ml_log

            _state.names = Names(
                given.get("wandb_project") or path.parent.name or None,
                given.get("wandb_name") or path.name or None,
                None if config is None else ml_log.dump_config(config),
            )
        return logger

    return setup_logging


def _log_metrics(original: Any) -> Any:
    def log_metrics(self: Any, metrics: dict[str, Any], step: int | None = None) -> Any:
        result = original(self, metrics, step)
        with capture.guard("adapter tinker: metrics"):
            run = capture.active()
            numbers = {k: v for k, v in metrics.items() if isinstance(v, (int, float))}
            if run is not None and numbers:
                run.metrics(step, numbers)
        return result

    return log_metrics


def _filtered_rollout(original: Any) -> Any:
    async def do_group_rollout_and_filter_constant_reward(
        sampling_client: Any, env_group_builder: Any, *args: Any, **kwargs: Any
    ) -> Any:
        with capture.guard("adapter tinker: a group begins"):
            named = dict(zip(_FILTERED, args, strict=False)) | kwargs
            env_group_builder = _begin(env_group_builder, named, sampling_client)
            if len(args) <= _FILTERED.index("strategy"):
                kwargs = {**kwargs, "strategy": _watched(kwargs.get("strategy"))}
        place = getattr(env_group_builder, "place", None)
        group = await original(sampling_client, env_group_builder, *args, **kwargs)
        with capture.guard("adapter tinker: a group ends"):
            _end(place, group)
        return group

    return do_group_rollout_and_filter_constant_reward


_FILTERED = (
    "max_tokens",
    "temperature",
    "do_remove_constant_reward_groups",
    "enable_logging",
    "strategy",
    "termination",
)


def _group_rollout(original: Any) -> Any:
    async def do_group_rollout(
        env_group_builder: Any, policy: Any, strategy: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        with capture.guard("adapter tinker: a group begins"):
            named = {
                "temperature": getattr(policy, "temperature", None),
                "max_tokens": getattr(policy, "max_tokens", None),
            }
            client = getattr(policy, "sampling_client", None)
            env_group_builder = _begin(env_group_builder, named, client)
            strategy = _watched(strategy)
        place = getattr(env_group_builder, "place", None)
        group = await original(env_group_builder, policy, strategy, *args, **kwargs)
        with capture.guard("adapter tinker: a group ends"):
            _end(place, group)
        return group

    return do_group_rollout


def _begin(builder: Any, named: Mapping[str, Any], client: Any) -> Any:
    """The builder for this rollout of the group, with all that is known about it."""
    from .hook import TracedBuilder

    if not isinstance(builder, TracedBuilder):
        return builder
    if builder.place.step is None:  # a loop that evaluates without saying at which step
        builder = builder.at(step=_state.next_batch)
    place = builder.place
    roll = _state.roll(place.name)
    for key in _state.waiting.pop(place.name, ()):  # asynchronous training: too old to train on
        _annotate(key, fate="dropped", fate_reason="stale: rolled out again")
    sampling = {
        name: named[name] for name in ("temperature", "max_tokens") if named.get(name) is not None
    }
    return builder.at(
        roll=roll,
        sampling=sampling,
        policy_version=_version(client, place.step),
        drops_constant=bool(named.get("do_remove_constant_reward_groups")),
    )


def _watched(strategy: Any) -> Any:
    from .hook import TracedStrategy

    if strategy is None:
        return TracedStrategy()
    return strategy if isinstance(strategy, TracedStrategy) else TracedStrategy(strategy)


def _version(client: Any, step: int | None) -> int | None:
    """How many steps the weights behind a sampling client had seen.

    The loop's first client is not made by a step: it stands for the first batch's.
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
    if group is None or not isinstance(place, Place):
        return
    keys = [f"{place.name}/{i}" for i in range(len(group.trajectories_G))]
    _state.remember(group, keys)
    if place.split == "train":
        _state.waiting[replace(place, roll=0).name] = keys
    totals = group.get_total_rewards()
    for key, metrics, total in zip(keys, group.metrics_G, totals, strict=True):
        if metrics.get("zero_reward_on_limit"):
            _annotate(key, reward=float(total))


def _compute_advantages(original: Any) -> Any:
    def compute_advantages(groups: Any, *args: Any, **kwargs: Any) -> Any:
        advantages = original(groups, *args, **kwargs)
        with capture.guard("adapter tinker: advantages"):
            for group, values in zip(groups, advantages, strict=True):
                _learned(group, values)
        return advantages

    return compute_advantages


def _learned(group: Any, advantages: Any) -> None:
    keys = _state.keys(group)
    values = advantages.tolist()
    if keys is None or len(keys) != len(values):
        capture.report("tinker", "advantages of a group that nobody rolled out here: not recorded")
        return
    name = keys[0].rpartition("/")[0].partition("#")[0] if keys else ""
    if _state.waiting.pop(name, None) is None:
        return  # told already: tinker-cookbook computes some twice, to print them
    for key, value in zip(keys, values, strict=True):
        _annotate(key, advantage=value, fate="trained", trained_step=_step.get())


def _assemble(original: Any) -> Any:
    def assemble_training_data(groups: Any, *args: Any, **kwargs: Any) -> Any:
        data, places = original(groups, *args, **kwargs)
        with capture.guard("adapter tinker: training rows"):
            rows: dict[str, list[Any]] = {}
            for datum, place in zip(data, places, strict=True):
                keys = _state.keys(groups[place["group_idx"]])
                if keys is not None:
                    rows.setdefault(keys[place["traj_idx"]], []).append(datum)
            for key, own in rows.items():
                if len(own) == 1:  # several: branches, whose shared tokens stand in each
                    _state.data[id(own[0])] = (own[0], key)
        return data, places

    return assemble_training_data


def _forward(original: Any) -> Any:
    async def train_step(data_D: Any, *args: Any, **kwargs: Any) -> Any:
        logprobs = await original(data_D, *args, **kwargs)
        with capture.guard("adapter tinker: what was trained"):
            if len(logprobs) == len(data_D):
                for datum, values in zip(data_D, logprobs, strict=True):
                    _trained_on(datum, values)
            _state.data.clear()
        return logprobs

    return train_step


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
        capture.report("tinker", "training rows and their mask differ in length: not recorded")
        return
    _annotate(
        found[1],
        streams={
            name: [None, *(v if m else None for v, m in zip(values, mask, strict=True))]
            for name, values in streams.items()
        },
    )


def _remove_constant(original: Any) -> Any:
    def remove_constant_reward_groups(groups: Any, *args: Any, **kwargs: Any) -> Any:
        kept = original(groups, *args, **kwargs)
        with capture.guard("adapter tinker: constant groups"):
            still = {id(group) for group in kept}
            for group in groups:
                for key in () if id(group) in still else _state.keys(group) or ():
                    _annotate(key, fate="dropped", fate_reason="constant reward")
        return kept

    return remove_constant_reward_groups


def _evaluation(original: Any) -> Any:
    async def run_single_evaluation(
        evaluator: Any, config: Any, i_batch: int, *args: Any, **kwargs: Any
    ) -> Any:
        from .hook import TracedBuilder

        with capture.guard("adapter tinker: an evaluation"):
            builders: Any = getattr(evaluator, "env_group_builders_P", ())
            for n, builder in enumerate(builders):
                if isinstance(builder, TracedBuilder):
                    builders[n] = builder.at(step=i_batch, roll=0)
        return await original(evaluator, config, i_batch, *args, **kwargs)

    return run_single_evaluation


def _train_step(original: Any) -> Any:
    async def do_train_step(config: Any, i_batch: int, *args: Any, **kwargs: Any) -> Any:
        token = _step.set(i_batch)
        try:
            result = await original(config, i_batch, *args, **kwargs)
        finally:
            _step.reset(token)
        with capture.guard("adapter tinker: a step"):
            client = result[0] if isinstance(result, tuple) else result
            if client is not None:
                _state.versions[client] = i_batch + 1
        return result

    return do_train_step


_WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "do_group_rollout_and_filter_constant_reward": _filtered_rollout,
    "do_group_rollout": _group_rollout,
    "compute_advantages": _compute_advantages,
    "assemble_training_data": _assemble,
    "train_step": _forward,
    "remove_constant_reward_groups": _remove_constant,
    "run_single_evaluation": _evaluation,
    "do_train_step_and_get_sampling_client": _train_step,
    "do_train_step_streaming_and_get_sampling_client": _train_step,
}


def _annotate(key: str, **facts: Any) -> None:
    run = capture.active()
    if run is not None:
        run.annotate(key=key, **facts)
