"""SkyRL's `GeneratorInput` and `GeneratorOutput` to rollouts. Pure.

The output is a dict of parallel lists, one entry per training row. A row is a trajectory, or,
with `step_wise_trajectories`, one turn of it. Only the first four keys are certain, because custom
generators leave out the rest. In the default mode, no row says which trajectory it belongs to. Then
the order decides, as in SkyRL's own contract, and only if the counts fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...model import Message, Rollout, Tokens, prompt_task
from ...model.chat import from_chat
from .._arrays import number, same_length, where
from .._decode import decode
from .._rows import Joined, TrainingRow, join


class Trajectory(NamedTuple):
    """A rollout, the rows of the output that it was made of, and where they lie in it."""

    rollout: Rollout
    rows: list[int]
    joined: Joined


class _Unit(NamedTuple):
    """The rows of one trajectory, and its place in the input (None: unmatched)."""

    rows: list[int]
    name: tuple[str, int] | None
    place: int | None


def convert(
    given: Mapping[str, Any],
    made: Mapping[str, Any],
    *,
    tokenizer: Any = None,
    step: int | None = None,
    version: int | None = None,
    start: float | None = None,
    end: float | None = None,
    problems: list[str] | None = None,
) -> list[Rollout]:
    """The rollouts of one `generate` call: what went in (`given`) and what came out (`made`).

    `step` is the training step when it was called; without it `batch_metadata` tells.
    `version`, `start` and `end` are those of the call. What did not fit is told in `problems`.
    """
    found = trajectories(
        given,
        made,
        tokenizer=tokenizer,
        step=step,
        version=version,
        start=start,
        end=end,
        problems=problems,
    )
    return [trajectory.rollout for trajectory in found]


def trajectories(
    given: Mapping[str, Any],
    made: Mapping[str, Any],
    *,
    tokenizer: Any = None,
    step: int | None = None,
    version: int | None = None,
    start: float | None = None,
    end: float | None = None,
    problems: list[str] | None = None,
) -> list[Trajectory]:
    """`convert`, with the rows that each rollout was made of."""
    problems = problems if problems is not None else []
    n = len(made["response_ids"])
    lists = {name: same_length(name, made.get(name), n, problems) for name in _PER_ROW}
    split, asked = phase(given)
    step = asked if step is None else step
    shared: dict[str, Any] = {
        "step": step,
        "split": split,
        "policy_version": version,
        "start": start,
        "end": end,
        "sampling": _sampling(given.get("sampling_params")),
    }
    result = []
    for unit, index in _matched(given, lists, n, problems):
        rows = [_row(lists, i) for i in unit.rows]
        chat = _at(given.get("prompts"), unit.place)
        joined = join(rows, tokenizer=tokenizer, chat=chat, problems=problems)
        rollout = Rollout(**shared, messages=joined.messages, fate="scored")
        _name(rollout, unit, index, rows[0], tokenizer)
        _outcome(rollout, lists, unit.rows, joined)
        _environment(rollout, given, made, unit, n)
        if unit.place is None:
            prompts = len(given.get("prompts") or ())
            rollout.meta["unmatched"] = f"{n} rows for {prompts} prompts"
        result.append(Trajectory(rollout, unit.rows, joined))
    return result


def failed(
    given: Mapping[str, Any], *, step: int | None = None, version: int | None = None
) -> list[Rollout]:
    """The rollouts that a `generate` call should have made, for a call that raised."""
    split, asked = phase(given)
    prompts = given.get("prompts") or []
    names = given.get("trajectory_ids")
    result = []
    for place, chat in enumerate(prompts):
        tid = _at(names, place) if names is not None and len(names) == len(prompts) else None
        rollout = Rollout(
            step=asked if step is None else step,
            split=split,
            policy_version=version,
            sampling=_sampling(given.get("sampling_params")),
            messages=[from_chat(message) for message in chat],
        )
        unit = _Unit([], _tid(tid), place)
        _name(rollout, unit, 0 if tid is None else tid.repetition_id, None, None)
        _environment(rollout, given, {}, unit, 0)
        result.append(rollout)
    return result


def phase(given: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """Split and step of a call, as its `batch_metadata` says."""
    metadata = given.get("batch_metadata")
    return getattr(metadata, "training_phase", None), getattr(metadata, "global_step", None)


_PER_ROW = (
    "prompt_token_ids",
    "response_ids",
    "rewards",
    "loss_masks",
    "stop_reasons",
    "rollout_logprobs",
    "trajectory_ids",
    "trajectory_generation_times",
    "is_last_step",
    "env_metrics",
)


# -- whose row is it -------------------------------------------------------------------


def _matched(
    given: Mapping[str, Any], lists: Mapping[str, Any], n: int, problems: list[str]
) -> Iterable[tuple[_Unit, int | None]]:
    """The trajectories among `n` rows, each with its place in the input and in its group."""
    units = _units(lists, n)
    prompts = len(given.get("prompts") or ())
    asked = [
        _tid(t)
        for t in same_length("trajectory_ids", given.get("trajectory_ids"), prompts, problems) or ()
    ]
    if lists["trajectory_ids"] is not None:
        yield from _by_name(units, asked)
        return
    per_prompt, rest = divmod(len(units), prompts) if prompts else (0, 1)
    if rest or not per_prompt:
        problems.append(f"{len(units)} trajectories for {prompts} prompts: recorded as unmatched")
        yield from ((_Unit(rows, None, None), None) for rows, _ in units)
        return
    for i, (rows, _) in enumerate(units):
        at, repeat = divmod(i, per_prompt)
        name = asked[at] if asked else None
        yield _Unit(rows, name, at), None if name is None else name[1] * per_prompt + repeat


def _units(lists: Mapping[str, Any], n: int) -> list[tuple[list[int], tuple[str, int] | None]]:
    """Rows of the same trajectory, by its id and by `is_last_step`, as far as they are given."""
    ids, ends = lists["trajectory_ids"], lists["is_last_step"]
    units: list[tuple[list[int], tuple[str, int] | None]] = []
    growing: dict[Any, list[int]] = {}
    for i in range(n):
        name = None if ids is None else _tid(ids[i])
        if name not in growing:
            growing[name] = []
            units.append((growing[name], name))
        growing[name].append(i)
        if (ends is None and ids is None) or (ends is not None and ends[i]):
            del growing[name]
    return units


def _by_name(
    units: list[tuple[list[int], tuple[str, int] | None]], asked: list[tuple[str, int] | None]
) -> Iterable[tuple[_Unit, int | None]]:
    """Each trajectory at the place of its id. An id that is there twice must be twice in both."""
    places: dict[Any, list[int]] = {}
    for at, name in enumerate(asked):
        places.setdefault(name, []).append(at)
    counts: dict[Any, int] = {}
    for _, name in units:
        counts[name] = counts.get(name, 0) + 1
    taken: dict[Any, int] = {}
    for rows, name in units:
        own = places.get(name, [])
        nth = taken.get(name, 0)
        taken[name] = nth + 1
        place = own[nth] if len(own) == counts[name] else None
        yield _Unit(rows, name, place), None if name is None else name[1]


def _tid(tid: Any) -> tuple[str, int] | None:
    return None if tid is None else (str(tid.instance_id), int(tid.repetition_id))


# -- the parts of a rollout ------------------------------------------------------------


def _row(lists: Mapping[str, Any], i: int) -> TrainingRow:
    prompt = list(lists["prompt_token_ids"][i]) if lists["prompt_token_ids"] is not None else []
    response = list(lists["response_ids"][i])
    mask = _at(lists["loss_masks"], i)
    logprobs = _at(lists["rollout_logprobs"], i)
    reward = _at(lists["rewards"], i)
    # A mask of zeros only (overlong filtering) does not say what the policy wrote.
    wrote = mask if mask is not None and any(mask) else None
    if wrote is not None and logprobs is not None and len(logprobs) == len(wrote):
        # Observations carry 0.0 in the place of a log probability.
        logprobs = where(wrote, logprobs)
    return TrainingRow(
        prompt + response,
        len(prompt),
        wrote,
        {
            "logprob": logprobs,
            "mask": mask,
            "reward": reward if isinstance(reward, (list, tuple)) else None,
        },
    )


def _name(
    rollout: Rollout, unit: _Unit, index: int | None, row: TrainingRow | None, tokenizer: Any
) -> None:
    """Task, group, index and key, as SkyRL's `TrajectoryID` has them."""
    if unit.name is None:
        if row is not None and tokenizer is not None:
            rollout.task = prompt_task(decode(tokenizer, row.ids[: row.prompt]).text)
        return
    uid = unit.name[0]
    # A uid is a row number of that split's own dataset.
    rollout.task = uid if rollout.split in (None, "train") else f"{rollout.split}:{uid}"
    rollout.group = f"{rollout.split}/{rollout.step}/{uid}"
    rollout.index = index
    rollout.key = f"skyrl/{rollout.group}/{index}"


def _outcome(rollout: Rollout, lists: Mapping[str, Any], rows: list[int], joined: Joined) -> None:
    rewards = [_total(_at(lists["rewards"], i)) for i in rows]
    # SkyRL trains on the last turn's reward alone when each turn is a row.
    rollout.reward = rewards[-1]
    for row, last in zip(rows, joined.last, strict=True):
        joined.messages[last].stop_reason = _at(lists["stop_reasons"], row)
    rollout.stop_reason = _at(lists["stop_reasons"], rows[-1])
    if rollout.stop_reason is not None:
        rollout.truncated = rollout.stop_reason == "length"
    for message in joined.messages:
        _message_reward(message)
    seconds = number(_at(lists["trajectory_generation_times"], rows[-1]))
    if seconds is not None and rollout.start is not None:
        rollout.end = rollout.start + seconds
    if metrics := _at(lists["env_metrics"], rows[-1]):
        rollout.meta["env_metrics"] = metrics


def _message_reward(message: Message) -> None:
    """Rewards lie on tokens. What a turn got becomes the message's own, if that says it all."""
    tokens = message.tokens
    values = None if tokens is None else tokens.streams.get("reward")
    if tokens is None or values is None:
        return
    known = [v for v in values if v is not None]
    if message.sampled:
        message.reward = sum(known)
    if sum(v != 0 for v in known) <= bool(message.sampled):
        others = {name: v for name, v in tokens.streams.items() if name != "reward"}
        message.tokens = Tokens(tokens.ids, tokens.ends, others)


def _environment(
    rollout: Rollout, given: Mapping[str, Any], made: Mapping[str, Any], unit: _Unit, n: int
) -> None:
    rollout.environment = _at(given.get("env_classes"), unit.place)
    extras = _at(given.get("env_extras"), unit.place)
    if isinstance(extras, Mapping):
        extras = dict(extras)
        rollout.dataset = extras.get("data_source")
        spec = extras.get("reward_spec")
        if isinstance(spec, Mapping) and "ground_truth" in spec:
            rollout.reference = spec["ground_truth"]
            extras["reward_spec"] = {k: v for k, v in spec.items() if k != "ground_truth"}
        rollout.meta["env_extras"] = extras
    splits = made.get("trajectory_time_splits")
    if isinstance(splits, Mapping) and unit.rows:
        times = {k: v[unit.rows[-1]] for k, v in splits.items() if v is not None and len(v) == n}
        if times:
            rollout.meta["time_splits"] = times


def _sampling(params: Any) -> dict[str, Any]:
    """The engine's parameters. Its `logprobs` is a count; ours says which kind they are."""
    if not isinstance(params, Mapping):
        return {}
    named = {k: v for k, v in params.items() if v is not None}
    if "logprobs" in named:
        named["logprobs_requested"] = named.pop("logprobs")
    return named


def _total(reward: Any) -> float | None:
    if isinstance(reward, (list, tuple)):
        return float(sum(reward))
    return number(reward)


def _at(values: Sequence[Any] | None, place: int | None) -> Any:
    if values is None or place is None or place >= len(values):
        return None
    return values[place]
