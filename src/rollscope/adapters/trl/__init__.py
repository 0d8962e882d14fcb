"""TRL: every generation of `GRPOTrainer` and `RLOOTrainer`, with one line.

    trainer = GRPOTrainer(...)
    rollscope.adapters.trl.attach(trainer)
    trainer.train()

TRL itself keeps only the completions of the last batch before a logging step. The adapter watches
methods of this trainer. `_generate` tells the ids that the model was shown, `_calculate_rewards`
the rows, messages, ids and the reward of each function. `_generate_and_score_completions` returns
rows with advantages and log probabilities, and `_prepare_inputs` those that go into the loss. What
goes in and what comes out is not changed.

`step` is the step that the rollouts are generated for, counted as TRL's logs and its
`completions_*.parquet` count it: the first is 1. `policy_version` is how often the weights had
been updated. Rollouts of an evaluation have the step of the weights that were evaluated.
"""

from .convert import convert
from .files import read, recognise
from .hook import attach

__all__ = ["attach", "convert", "read", "recognise"]
