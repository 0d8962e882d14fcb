"""What a trainer's settings say about rewards, advantages and the loss."""

from __future__ import annotations

from typing import Literal

import msgspec

Baseline = Literal["group", "leave_one_out", "batch", "greedy", "critic", "none"]
"""Subtracted from a reward: the mean of its group, of its siblings alone or of the whole batch, the
reward of a greedy answer, or what a critic expects."""

Scale = Literal["group", "batch", "none"]
"""Divides it: the standard deviation of its group, or of the whole batch."""


class Algorithm(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """Settings that the numbers of a rollout can be held against. None: not known."""

    estimator: str | None = None
    """How advantages are estimated, in the trainer's word: `grpo`, `rloo`, `gae`."""
    baseline: Baseline | None = None
    scale: Scale | None = None
    epsilon: float | None = None
    """Added to the standard deviation."""
    unbiased: bool | None = None
    """Is the standard deviation divided by n - 1? Else by n."""
    rewards: Literal["sum"] | None = None
    """How a rollout's reward is made of its parts; each is multiplied by its weight."""
    reward_weights: dict[str, float] | None = None
    """Of the parts, by name."""
    group_size: int | None = None
    """Rollouts of one task in a step of training."""
    eval_group_size: int | None = None
    staleness: int | None = None
    """The most steps between asking for a rollout and learning from it."""
    loss: str | None = None
    """In the trainer's word."""
    aggregation: str | None = None
    """How the losses of tokens become one, in the trainer's word."""
    clip_low: float | None = None
    """The ratio of probabilities is cut below 1 minus this,"""
    clip_high: float | None = None
    """and above 1 plus this."""
    kl: float | None = None
    """What the divergence from the reference is multiplied by; 0: it is not looked at."""
    kl_in: Literal["loss", "reward", "advantage"] | None = None
    """Where it is subtracted."""
    temperature: float | None = None
    """Of sampling, in training."""
    prompt_tokens: int | None = None
    """The most that a prompt may have."""
    response_tokens: int | None = None
    """The most that a response may have."""
