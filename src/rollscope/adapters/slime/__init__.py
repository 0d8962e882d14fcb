"""slime: recorded through the hooks that slime offers.

    --custom-rollout-log-function-path rollscope.adapters.slime.log
    --custom-eval-rollout-log-function-path rollscope.adapters.slime.log_eval
    --rollout-all-samples-process-path rollscope.adapters.slime.log_all   # also what is dropped

slime's own logging goes on as before. See docs/trainers/slime.md.
"""

from .convert import convert
from .files import read, recognise
from .hook import log, log_all, log_eval

__all__ = ["convert", "log", "log_all", "log_eval", "read", "recognise"]
