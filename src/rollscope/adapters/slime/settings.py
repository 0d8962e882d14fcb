"""What slime's arguments say about rewards, advantages and the loss.

The formulas are those of `_post_process_rewards` in `slime/ray/rollout.py`.
"""

from __future__ import annotations

from typing import Any

from ...model.algorithm import Algorithm, Baseline, Scale
from .._settings import Settings, first

_GRPO = ("grpo", "gspo", "cispo")


def algorithm(args: Any) -> Algorithm:
    """Of slime's arguments."""
    settings = Settings(args)
    estimator = settings.word("advantage_estimator")
    baseline, scale = _formula(settings, estimator)
    in_loss, clip = settings.flag("use_kl_loss"), settings.number("eps_clip")
    kl = settings.number("kl_loss_coef" if in_loss else "kl_coef")
    return Algorithm(
        estimator=estimator,
        baseline=baseline,
        scale=scale,
        epsilon=1e-6 if scale == "group" else None,
        unbiased=True if scale == "group" else None,
        group_size=settings.whole("n_samples_per_prompt"),
        eval_group_size=settings.whole("n_samples_per_eval_prompt"),
        loss=settings.word("loss_type"),
        clip_low=clip,
        clip_high=first(settings.number("eps_clip_high"), clip),
        kl=kl,
        kl_in=("loss" if in_loss else "reward") if kl else None,
        temperature=settings.number("rollout_temperature"),
        prompt_tokens=settings.whole("rollout_max_prompt_len"),
        response_tokens=settings.whole("rollout_max_response_len"),
    )


def _formula(settings: Settings, estimator: str | None) -> tuple[Baseline | None, Scale | None]:
    is_own = settings.word("custom_reward_post_process_path") is not None
    again = settings.flag("normalize_advantages")  # over the whole batch
    is_centred, is_scaled = map(settings.flag, ("rewards_normalization", "grpo_std_normalization"))
    if is_own or again or estimator not in _GRPO or is_centred is None or is_scaled is None:
        return None, None
    return ("group", "group" if is_scaled else "none") if is_centred else ("none", "none")
