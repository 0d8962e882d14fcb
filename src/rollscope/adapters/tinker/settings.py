"""What tinker-cookbook's configuration says about rewards, advantages and the loss.

Its loops subtract the mean of the group from each reward (`rl/data_processing.py`). They bound how
old the weights of a rollout may be, not how long ago its batch was drawn: a stale group is rolled
out again. So a limit of staleness is not told.
"""

from __future__ import annotations

from typing import Any

from ...model.algorithm import Algorithm
from .._settings import Settings, first


def algorithm(config: Any) -> Algorithm:
    """Of the configuration that a loop hands to `setup_logging`, as a dict or as it is."""
    settings = Settings(config)
    kl = settings.number("kl_penalty_coef")
    if kl is None:  # another loop than that of `rl.train`
        return Algorithm()
    return Algorithm(
        baseline="group",
        scale="none",
        group_size=first(
            settings.whole("dataset_builder.group_size"),
            settings.whole("dataset_builder.inner.group_size"),
        ),
        loss=first(settings.word("async_config.loss_fn"), settings.word("loss_fn")),
        kl=kl,
        kl_in="advantage" if kl else None,
        temperature=settings.number("temperature"),
        response_tokens=settings.whole("max_tokens"),
    )
