"""The functions that slime calls with every batch. They do not disturb slime: those that log return
False, so slime's own logging goes on."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from ... import capture
from ...capture import Run, guard
from .._arrays import numbers
from .._record import Later, converted
from .._settings import note
from .convert import FIELDS, convert, flat, number_of
from .settings import algorithm

_DROPPED = "not in the batch: the dynamic sampling filter dropped it, or there were too many"

_LATER_FIELDS = frozenset({"rollout_id", "trace", "teacher_log_probs"})
"""Fields that older versions of slime do not have."""

_generated: list[Any] = []
"""Samples of the rollout that is being made, until `log` is called."""


def log(
    rollout_id: int,
    args: Any,
    samples: Any,
    rollout_extra_metrics: Mapping[str, Any] | None = None,
    rollout_time: float | None = None,
    *_: Any,
) -> bool:
    """For `--custom-rollout-log-function-path`."""
    with guard("adapter slime: rollouts"):
        run = _join(args)
        if run is not None:
            given = [_frozen(sample) for sample in flat(samples)]
            later, size = Later.of("slime", run), getattr(args, "n_samples_per_prompt", None)
            for some, dropped in ((given, None), (_others(given), _DROPPED)):
                later(
                    _log,
                    run,
                    args,
                    some,
                    rollout_id,
                    "train",
                    dropped,
                    rollouts=len(some),
                    group_size=size,
                )
            seconds = {} if rollout_time is None else {"perf/rollout_time": rollout_time}
            _metrics(run, rollout_id, {**(rollout_extra_metrics or {}), **seconds})
    return False


def log_all(args: Any, all_samples: Any, *_: Any) -> None:
    """For `--rollout-all-samples-process-path`: all generated samples. `log` gets those that are
    trained on; the others are recorded as dropped."""
    with guard("adapter slime: all samples"):
        if _join(args) is not None:
            _generated[:] = [_frozen(sample) for sample in flat(all_samples)]


def log_eval(
    rollout_id: int, args: Any, data: Mapping[str, Any], extra_metrics: Any = None, *_: Any
) -> bool:
    """For `--custom-eval-rollout-log-function-path`."""
    with guard("adapter slime: evaluation"):
        run = _join(args)
        if run is not None:
            for name, found in data.items():
                given = [_frozen(sample) for sample in flat(found.get("samples") or ())]
                Later.of("slime", run)(
                    _log,
                    run,
                    args,
                    given,
                    rollout_id,
                    "eval",
                    rollouts=len(given),
                    dataset=name,
                    group_size=_eval_size(args, name),
                )
            _metrics(run, rollout_id, extra_metrics or {})
    return False


def _join(args: Any) -> Run | None:
    """Naming these functions on slime's command line counts as asking."""
    run = capture.join(
        _first(args, "wandb_project", "tb_project_name") or "slime",
        _first(args, "wandb_group", "tb_experiment_name", "wandb_run_id"),
        adapter="slime",
        seams=(
            "custom_rollout_log_function_path",
            "custom_eval_rollout_log_function_path",
            "rollout_all_samples_process_path",
        ),
        asked=True,
        config=vars(args),
    )
    note("slime", run, algorithm, args)
    return run


def _first(args: Any, *names: str) -> str | None:
    return next((str(v) for name in names if (v := getattr(args, name, None))), None)


def _frozen(sample: Any) -> Any:
    """The sample as it is now: slime goes on with the same objects."""
    fields = dict(vars(sample))
    copied = {k: list(v) if isinstance(v, list) else v for k, v in fields.items()}
    copied["metadata"] = dict(fields.get("metadata") or {})
    for name in FIELDS.keys() - fields.keys() - _LATER_FIELDS:
        capture.report(
            "adapter slime",
            f"slime is not as expected: its Sample has no {name!r}. What it tells is missing "
            "from the rollouts; the rest is recorded.",
        )
    return SimpleNamespace(**{**FIELDS, **copied})


def _others(given: list[Any]) -> list[Any]:
    """Generated samples that are not in the batch, by slime's own numbers."""
    used = {number_of(sample) for sample in given}
    others = [s for s in _generated if number_of(s) is not None and number_of(s) not in used]
    _generated.clear()
    return others


def _log(
    run: Run,
    args: Any,
    samples: list[Any],
    step: int,
    split: str,
    dropped: str | None = None,
    **known: Any,
) -> None:
    names = ("reward_key",) if split == "train" else ("eval_reward_key", "reward_key")
    rollouts = converted(
        "slime",
        convert,
        samples,
        step=step,
        split_name=split,
        reward_key=_first(args, *names),
        tokenizer=_tokenizer(getattr(args, "hf_checkpoint", None)),
        masks_off_policy=bool(getattr(args, "mask_offpolicy_in_partial_rollout", False)),
        **known,
    )
    prefix = "rollout_" if split == "train" else "eval_"
    sampling = {n: getattr(args, prefix + n, None) for n in ("temperature", "top_p", "top_k")}
    for rollout in rollouts:
        rollout.sampling = {n: value for n, value in sampling.items() if value is not None}
        if dropped is not None:
            rollout.trained_step = None
            if rollout.fate in ("generated", "scored"):
                rollout.fate, rollout.fate_reason = "dropped", dropped
    run.log(rollouts)


def _eval_size(args: Any, dataset: str) -> int | None:
    for known in getattr(args, "eval_datasets", None) or ():
        if getattr(known, "name", None) == dataset:
            return getattr(known, "n_samples_per_eval_prompt", None)
    return getattr(args, "n_samples_per_eval_prompt", None)


@functools.lru_cache(maxsize=1)
def _tokenizer(path: str | None) -> Any:
    """The policy's own tokenizer, loaded once; without it slime's texts are used."""
    if not path:
        return None
    try:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(path, trust_remote_code=True)
    except Exception as error:
        capture.report("adapter slime", f"the tokenizer in {path} cannot be loaded: {error}")
        return None


def _metrics(run: Run, step: int, values: Mapping[str, Any]) -> None:
    found = numbers(values)
    if found:
        run.metrics(step, found)
