"""What a trainer of TRL says about rewards, advantages and the loss.

The formulas are those of `GRPOTrainer` and `RLOOTrainer` of TRL 0.21 to 1.16.
"""

from __future__ import annotations

from typing import Any

from ...model.algorithm import Algorithm, Baseline, Scale
from .._arrays import on_host
from .._settings import Settings, first
from .convert import apart

_EPSILON = 1e-4
_SCALES: dict[Any, Scale] = {
    True: "group", "group": "group", "batch": "batch", False: "none", "none": "none",
}  # fmt: skip
"""Before 0.22 it is a flag."""


def algorithm(trainer: Any) -> Algorithm:
    """Of the trainer itself: it may set what its arguments leave open."""
    settings, args = Settings(trainer), Settings(getattr(trainer, "args", None))
    classes = {kind.__name__ for kind in type(trainer).__mro__}
    estimator = "rloo" if "RLOOTrainer" in classes else "grpo" if "GRPOTrainer" in classes else None
    aggregation = first(args.word("multi_objective_aggregation"), "sum_then_normalize")
    is_sum = aggregation == "sum_then_normalize" and args.value("reward_clip_range") is None
    baseline, scale = _formula(estimator, args) if is_sum else (None, None)
    beta, clip = args.number("beta"), args.number("epsilon")
    return Algorithm(
        estimator=estimator,
        baseline=baseline,
        scale=scale,
        epsilon=_EPSILON if scale in ("group", "batch") else None,
        unbiased=True if scale in ("group", "batch") else None,
        rewards="sum" if is_sum else None,
        reward_weights=_weights(trainer),
        group_size=first(settings.whole("num_generations"), args.whole("num_generations")),
        eval_group_size=first(
            settings.whole("num_generations_eval"), args.whole("num_generations_eval")
        ),
        loss=args.word("loss_type"),
        clip_low=clip,
        clip_high=first(args.number("epsilon_high"), clip),
        kl=beta,
        kl_in=("reward" if estimator == "rloo" else "loss") if beta and estimator else None,
        temperature=args.number("temperature"),
        prompt_tokens=args.whole("max_prompt_length"),
        response_tokens=args.whole("max_completion_length"),
    )


def _formula(estimator: str | None, args: Settings) -> tuple[Baseline | None, Scale | None]:
    if estimator == "rloo":
        is_scaled = args.flag("normalize_advantages")
        return ("leave_one_out", "none") if is_scaled is False else (None, None)
    if estimator != "grpo":
        return None, None
    return "group", _SCALES.get(args.value("scale_rewards"))


def _weights(trainer: Any) -> dict[str, float] | None:
    names, weights = (getattr(trainer, n, None) for n in ("reward_func_names", "reward_weights"))
    if names is None or weights is None or len(names) != len(weights):
        return None
    numbers = [float(weight) for weight in on_host(weights)]
    return dict(zip(apart(names), numbers, strict=True))
