"""What both of verl's trainers tell about a row of training data, and about a step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ... import capture
from .._arrays import numbers
from .._seam import Watching

NAMES = (
    "advantages",
    "response_mask",
    "old_log_probs",
    "ref_log_prob",
    "token_level_scores",
    "attention_mask",
    "prompts",
    "responses",
)
"""What is read of a batch, if it is there."""

_STREAMS = {"old_log_probs": "train_logprob", "ref_log_prob": "ref_logprob"}


def facts_of(batch: Mapping[str, Any], row: int, prompt: int | None, length: int) -> dict[str, Any]:
    """Advantage and token streams of one row; `prompt` tokens come before the response.

    The advantage of a rollout is that of its trained tokens, if they all have the same one
    (GRPO and its kin), else their mean, with the values themselves as a stream.
    """
    mask = batch["response_mask"][row][:length]
    chosen = mask > 0
    facts: dict[str, Any] = {"streams": {}}
    advantages = batch.get("advantages")
    if advantages is not None and chosen.any():
        values = advantages[row][:length]
        trained = values[chosen]
        facts["advantage"] = float(trained[0] if _is_constant(trained) else trained.mean())
        if not _is_constant(trained):
            facts["streams"]["advantage"] = _padded(values, chosen, prompt)
    for name, stream in _STREAMS.items():
        if name in batch:
            facts["streams"][stream] = _padded(batch[name][row][:length], chosen, prompt)
    if prompt is None:
        facts["streams"] = {}
    return facts


def score(batch: Mapping[str, Any], row: int) -> float | None:
    """The reward of a row, as the trainer has it."""
    scores = batch.get("token_level_scores")
    return None if scores is None else float(scores[row].sum())


def _is_constant(values: Any) -> bool:
    return bool((values == values[0]).all())


def _padded(values: Any, chosen: Any, prompt: int | None) -> Any:
    """Values of a response behind its prompt: a masked array, whose lists cost the trainer nothing.
    What was not chosen is not known."""
    import numpy as np

    before = prompt or 0
    hidden = np.concatenate((np.ones(before, bool), ~chosen))
    return np.ma.array(np.concatenate((np.zeros(before, values.dtype), values)), mask=hidden)


# -- what became of them ---------------------------------------------------------------

MASKED = "rollout correction: every token was rejected"
"""Rows that the update sees and learns nothing from."""


def annotate_all(keys: Iterable[str], **facts: Any) -> None:
    run = capture.active()
    if run is not None:
        for key in keys:
            run.annotate(key=key, **facts)


# -- metrics ---------------------------------------------------------------------------


def metrics(data: Mapping[str, Any], step: Any) -> Watching:
    """`Tracking.log`: the trainer's own numbers of each step."""
    run = capture.active()
    if run is not None:
        run.metrics(int(step), numbers(data))
    yield
