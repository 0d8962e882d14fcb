"""What verl's configuration says about rewards, advantages and the loss.

The formulas are those of `verl/trainer/ppo/core_algos.py` of verl 0.9. What an estimator of
somebody's own does is not known.
"""

from __future__ import annotations

from typing import Any, Literal

from ...model.algorithm import Algorithm, Baseline, Scale
from .._settings import Settings, first

_FORMULAS: dict[str, tuple[Baseline, Scale]] = {
    "gae": ("critic", "batch"),
    "rloo": ("leave_one_out", "none"),
    "rloo_vectorized": ("leave_one_out", "none"),
    "reinforce_plus_plus": ("batch", "batch"),
    "reinforce_plus_plus_baseline": ("group", "batch"),
    "remax": ("greedy", "none"),
}
_GRPO = ("grpo", "grpo_vectorized")
_ASYNC = "separate_async", "colocate_async"
"""Modes of the v1 trainer in which a rollout may be older than the step that learns from it."""


def algorithm(config: Any) -> Algorithm:
    """Of verl's whole configuration."""
    settings = Settings(config)
    estimator = settings.word("algorithm.adv_estimator")
    baseline, scale = _FORMULAS.get(estimator or "", (None, None))
    is_grpo = estimator in _GRPO
    is_scaled = settings.flag("algorithm.norm_adv_by_std_in_grpo")
    if is_grpo:
        baseline = "group"
        scale = None if is_scaled is None else "group" if is_scaled else "none"
    actor, rollout = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
    clip = settings.number(f"{actor}clip_ratio")
    kl, kl_in = _kl(settings)
    return Algorithm(
        estimator=estimator,
        baseline=baseline,
        scale=scale,
        epsilon=1e-6 if is_grpo and scale == "group" else None,
        unbiased=True if is_grpo and scale == "group" else None,
        group_size=settings.whole(f"{rollout}n"),
        eval_group_size=settings.whole(f"{rollout}val_kwargs.n"),
        staleness=_staleness(settings),
        loss=settings.word(f"{actor}policy_loss.loss_mode"),
        aggregation=settings.word(f"{actor}loss_agg_mode"),
        clip_low=first(settings.number(f"{actor}clip_ratio_low"), clip),
        clip_high=first(settings.number(f"{actor}clip_ratio_high"), clip),
        kl=kl,
        kl_in=kl_in,
        temperature=settings.number(f"{rollout}temperature"),
        prompt_tokens=first(
            settings.whole(f"{rollout}prompt_length"), settings.whole("data.max_prompt_length")
        ),
        response_tokens=first(
            settings.whole(f"{rollout}response_length"), settings.whole("data.max_response_length")
        ),
    )


def _kl(settings: Settings) -> tuple[float | None, Literal["reward", "loss"] | None]:
    in_reward = settings.flag("algorithm.use_kl_in_reward")
    in_loss = settings.flag("actor_rollout_ref.actor.use_kl_loss")
    if in_reward:
        return settings.number("algorithm.kl_ctrl.kl_coef"), "reward"
    if in_loss:
        return settings.number("actor_rollout_ref.actor.kl_loss_coef"), "loss"
    return 0.0 if in_reward is False and in_loss is False else None, None


def _staleness(settings: Settings) -> int | None:
    """The v1 trainer counts the versions that a trajectory spans, its own among them."""
    mode, sampler = settings.word("trainer.v1.trainer_mode"), "trainer.v1.sampler.max_off_policy_"
    spans = settings.whole(f"{sampler}threshold")
    if not settings.flag("trainer.use_v1") or mode not in _ASYNC or spans is None:
        return None
    return spans - 1 if settings.word(f"{sampler}strategy") == "drop" else None
