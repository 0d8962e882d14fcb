"""What SkyRL's configuration says about rewards, advantages and the loss.

The formulas are those of `skyrl/backends/skyrl_train/utils/ppo_utils.py` of SkyRL 0.3.
"""

from __future__ import annotations

from typing import Any, Literal

from ...model.algorithm import Algorithm, Baseline, Scale
from .._settings import Settings

_FORMULAS: dict[str, tuple[Baseline, Scale]] = {
    "gae": ("critic", "batch"),
    "rloo": ("leave_one_out", "none"),
    "reinforce++": ("batch", "batch"),
}


def algorithm(config: Any) -> Algorithm:
    """Of SkyRL's whole configuration."""
    settings, own = Settings(config), Settings(Settings(config).value("trainer.algorithm"))
    estimator = own.word("advantage_estimator")
    baseline, scale = _FORMULAS.get(estimator or "", (None, None))
    is_scaled = own.flag("grpo_norm_by_std")
    is_grpo = estimator == "grpo"
    if is_grpo and is_scaled is not None:
        baseline, scale = "group", "group" if is_scaled else "none"
    if own.flag("advantage_batch_normalize"):  # once more, over all of the batch
        baseline, scale = None, None
    has_std = is_grpo and scale == "group"
    kl, kl_in = _kl(own)
    return Algorithm(
        estimator=estimator,
        baseline=baseline,
        scale=scale,
        epsilon=1e-6 if has_std else None,
        unbiased=True if has_std else None,
        group_size=settings.whole("generator.n_samples_per_prompt"),
        eval_group_size=settings.whole("generator.eval_n_samples_per_prompt"),
        staleness=settings.whole("trainer.fully_async.max_staleness_steps")
        if settings.flag("trainer.fully_async.enabled")
        else None,
        loss=own.word("policy_loss_type"),
        aggregation=own.word("loss_reduction"),
        clip_low=own.number("eps_clip_low"),
        clip_high=own.number("eps_clip_high"),
        kl=kl,
        kl_in=kl_in,
        temperature=settings.number("generator.sampling_params.temperature"),
        prompt_tokens=settings.whole("trainer.max_prompt_length"),
        response_tokens=settings.whole("generator.sampling_params.max_generate_length"),
    )


def _kl(own: Settings) -> tuple[float | None, Literal["reward", "loss"] | None]:
    in_reward, in_loss = own.flag("use_kl_in_reward"), own.flag("use_kl_loss")
    if in_reward or in_loss:
        return own.number("kl_loss_coef"), "reward" if in_reward else "loss"
    return 0.0 if in_reward is False and in_loss is False else None, None
