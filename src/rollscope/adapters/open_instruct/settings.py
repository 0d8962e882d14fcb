"""What open-instruct's options say about rewards, advantages and the loss.

The formulas are those of `DataPreparationActor` in `open_instruct/data_loader.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...model.algorithm import Algorithm
from .._settings import Settings, first


def algorithm(parsed: Sequence[Any]) -> Algorithm:
    """Of the objects that its parser makes: options of the data, of the training, of the model."""

    def found(kind: str, name: str) -> Any:
        return first(*(getattr(Settings(one), kind)(name) for one in parsed))

    word = found("word", "advantage_normalization_type")
    is_known, is_scaled = word in ("standard", "centered"), word == "standard"
    beta, is_loaded = found("number", "beta"), found("flag", "load_ref_policy")
    kl = 0.0 if is_loaded is False else beta
    return Algorithm(
        estimator=None if word is None else "grpo",
        baseline="group" if is_known else None,
        scale=("group" if is_scaled else "none") if is_known else None,
        epsilon=1e-8 if is_scaled else None,
        unbiased=False if is_scaled else None,
        group_size=found("whole", "num_samples_per_prompt_rollout"),
        loss=found("word", "loss_fn"),
        aggregation=found("word", "loss_denominator"),
        clip_low=found("number", "clip_lower"),
        clip_high=found("number", "clip_higher"),
        kl=kl,
        kl_in="loss" if kl else None,
        temperature=found("number", "temperature"),
        prompt_tokens=found("whole", "max_prompt_token_length"),
        response_tokens=found("whole", "response_length"),
    )
