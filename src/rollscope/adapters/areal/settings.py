"""What AReaL's configuration says about rewards, advantages and the loss.

AReaL normalises rewards, then computes advantages by GAE (with a critic or without), and may
normalise these over the batch, too: `areal/trainer/ppo/actor.py` of AReaL 1.0. Without a critic,
and with discount and lambda of 1, the advantage of each token is the reward that is left.
"""

from __future__ import annotations

from typing import Any

from ...model.algorithm import Algorithm, Baseline, Scale
from .._settings import Settings, first


def algorithm(config: Any) -> Algorithm:
    """Of AReaL's whole configuration."""
    settings, actor = Settings(config), Settings(Settings(config).value("actor"))
    baseline, scale = _formula(settings, actor)
    has_std = scale in ("group", "batch")
    clip = actor.number("eps_clip")
    return Algorithm(
        estimator=None if actor.number("gae_lambda") is None else "gae",
        baseline=baseline,
        scale=scale,
        epsilon=actor.number("reward_norm.eps") if has_std else None,
        unbiased=actor.flag("reward_norm.std_unbiased") if has_std else None,
        group_size=settings.whole("gconfig.n_samples"),
        eval_group_size=settings.whole("eval_gconfig.n_samples"),
        staleness=settings.whole("rollout.max_head_offpolicyness"),
        clip_low=clip,
        clip_high=first(actor.number("eps_clip_higher"), clip),
        kl=actor.number("kl_ctl"),
        kl_in="reward" if actor.number("kl_ctl") else None,
        temperature=settings.number("gconfig.temperature"),
        response_tokens=settings.whole("gconfig.max_new_tokens"),
    )


def _formula(settings: Settings, actor: Settings) -> tuple[Baseline | None, Scale | None]:
    if settings.value("critic") is not None:
        return "critic", None
    is_plain = actor.number("discount") == 1 == actor.number("gae_lambda")
    if not is_plain or actor.value("adv_norm") is not None:
        return None, None
    if actor.value("reward_norm") is None:
        return "none", "none"
    return _mean(actor), _level(actor.value("reward_norm.std_level"))


def _mean(actor: Settings) -> Baseline | None:
    level = _level(actor.value("reward_norm.mean_level"))
    leaves_out = actor.flag("reward_norm.mean_leave1out")
    return "leave_one_out" if level == "group" and leaves_out else None if leaves_out else level


def _level(word: Any) -> Scale | None:
    """AReaL's word for over what is normalised; None is its word for "not at all"."""
    return "none" if word is None else word if word in ("group", "batch") else None
