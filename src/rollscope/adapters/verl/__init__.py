"""verl: rollouts of its agent-loop workers, on the legacy and on the v1 trainer.

`pip install rollscope` puts an entry point where verl looks for plugins. Each of these lines
turns recording on:

    ROLLSCOPE=on python -m verl.trainer.main_ppo ...
    python -m verl.trainer.main_ppo ... actor_rollout_ref.rollout.trace.backend=rollscope

See docs/trainers/verl.md for what is captured, and what is not and why.
"""

from .convert import Generation, Job, convert
from .files import read, recognise
from .hook import attach
from .worker import flush

__all__ = ["Generation", "Job", "attach", "convert", "flush", "read", "recognise"]
