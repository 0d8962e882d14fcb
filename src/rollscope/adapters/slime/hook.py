"""The functions that slime calls with every batch. None keeps slime from anything: those that log
return False, and slime logs on."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from ... import capture
from ...capture import Run, guard
from .._later import Later
from .convert import FIELDS, convert, flat, number_of


def log(
    rollout_id: int,
    args: Any,
    samples: Any,
    rollout_extra_metrics: Mapping[str, Any] | None = None,
    rollout_time: float | None = None,
) -> bool:
    """For `--custom-rollout-log-function-path`."""
    with guard("adapter slime: rollouts"):
        run = _join(args)
        if run is not None:
            given = [_frozen(sample) for sample in flat(samples)]
            size = getattr(args, "n_samples_per_prompt", None)
            _later(run)(_record, run, args, given, rollout_id, "train", None, size)
            dropped = _others(given)
            _later(run)(_record, run, args, dropped, rollout_id, "train", None, size, _DROPPED)
            _metrics(run, args, rollout_id, rollout_extra_metrics, rollout_time)
    return False


def log_all(args: Any, all_samples: Any, data_source: Any = None) -> None:
    """For `--rollout-all-samples-process-path`: what was generated, before `log` gets what is
    trained on. The rest is recorded as dropped."""
    with guard("adapter slime: all samples"):
        if _join(args) is not None:
            _generated[:] = [_frozen(sample) for sample in flat(all_samples)]


_generated: list[Any] = []
"""Samples of the rollout that is being made, until `log` comes."""

_DROPPED = "not in the batch: the dynamic sampling filter dropped it, or there were too many"


def _others(given: list[Any]) -> list[Any]:
    """Those generated samples that are not in the batch, by slime's own numbers."""
    used = {number_of(sample) for sample in given}
    others = [s for s in _generated if number_of(s) is not None and number_of(s) not in used]
    _generated.clear()
    return others


def log_eval(
    rollout_id: int, args: Any, data: Mapping[str, Any], extra_metrics: Any = None
) -> bool:
    """For `--custom-eval-rollout-log-function-path`."""
    with guard("adapter slime: evaluation"):
        run = _join(args)
        if run is not None:
            for dataset, found in data.items():
                given = [_frozen(sample) for sample in flat(found.get("samples") or ())]
                size = _eval_size(args, dataset)
                _later(run)(_record, run, args, given, rollout_id, "eval", dataset, size)
            _metrics(run, args, rollout_id, extra_metrics, None)
    return False


def _join(args: Any) -> Run | None:
    """Whoever names these functions on slime's command line has asked."""
    return capture.join(
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


def _first(args: Any, *names: str) -> str | None:
    found = (getattr(args, name, None) for name in names)
    return next((str(value) for value in found if value), None)


@functools.lru_cache(maxsize=4)
def _later(run: Run) -> Later:
    return Later("slime", run)


def _frozen(sample: Any) -> Any:
    """The sample as it is now: slime goes on with the same objects."""
    fields = dict(vars(sample))
    copied = {k: list(v) if isinstance(v, list) else v for k, v in fields.items()}
    copied["metadata"] = dict(fields.get("metadata") or {})
    for name in FIELDS.keys() - fields.keys() - _LATER_FIELDS:
        capture.report(
            "adapter slime",
            f"slime is not as expected: its Sample has no {name!r}. What this seam gives is "
            "missing from the rollouts; the rest is recorded.",
        )
    return SimpleNamespace(**{**FIELDS, **copied})


_LATER_FIELDS = frozenset({"rollout_id", "trace"})
"""Fields that older versions of slime do not have."""


def _record(
    run: Run,
    args: Any,
    samples: list[Any],
    step: int,
    split_name: str,
    dataset: str | None,
    size: int | None,
    dropped: str | None = None,
) -> None:
    problems: list[str] = []
    rollouts = convert(
        samples,
        step=step,
        split_name=split_name,
        dataset=dataset,
        group_size=size,
        reward_key=getattr(args, "reward_key" if split_name == "train" else "eval_reward_key", None)
        or getattr(args, "reward_key", None),
        tokenizer=_tokenizer(getattr(args, "hf_checkpoint", None)),
        masks_off_policy=bool(getattr(args, "mask_offpolicy_in_partial_rollout", False)),
        problems=problems,
    )
    for problem in problems:
        capture.report("adapter slime", problem)
    for rollout in rollouts:
        rollout.sampling = _sampling(args, split_name)
        if dropped is not None:
            rollout.trained_step = None
            if rollout.fate in ("generated", "scored"):
                rollout.fate, rollout.fate_reason = "dropped", dropped
    run.log(rollouts)


def _sampling(args: Any, split_name: str) -> dict[str, Any]:
    prefix = "rollout_" if split_name == "train" else "eval_"
    found = {n: getattr(args, prefix + n, None) for n in ("temperature", "top_p", "top_k")}
    return {name: value for name, value in found.items() if value is not None}


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


def _metrics(
    run: Run, args: Any, step: int, extra: Mapping[str, Any] | None, seconds: float | None
) -> None:
    values = {k: v for k, v in (extra or {}).items() if isinstance(v, (int, float))}
    if seconds is not None:
        values["perf/rollout_time"] = seconds
    if values:
        run.metrics(step, values)
