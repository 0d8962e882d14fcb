"""slime: through the hooks that it offers for exactly this.

    --custom-rollout-log-function-path rollscope.adapters.slime.log
    --custom-eval-rollout-log-function-path rollscope.adapters.slime.log_eval
    --rollout-all-samples-process-path rollscope.adapters.slime.log_all   # what is dropped, too

slime's own logging goes on as before. See docs/trainers/slime.md.
"""

from .convert import convert
from .files import read, recognise
from .hook import log, log_all, log_eval

__all__ = ["convert", "log", "log_all", "log_eval", "read", "recognise"]
