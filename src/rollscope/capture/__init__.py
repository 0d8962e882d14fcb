"""How a running program hands rollouts over. See README.md beside this file.

    import rollscope

    run = rollscope.init(project="math", run="qwen3-4b-grpo")
    run.log(rollouts, step=12)

Nothing here knows any trainer, and nothing here raises into one.
"""

from ..model.sample import Sample
from .begin import active, child_env, finish, init, join
from .context import bind
from .live import LiveRollout
from .ops import op
from .problems import guard, report
from .run import Run
from .trace import rollout_trace_attr, rollout_trace_op

__all__ = [
    "LiveRollout",
    "Run",
    "Sample",
    "active",
    "bind",
    "child_env",
    "finish",
    "guard",
    "init",
    "join",
    "op",
    "report",
    "rollout_trace_attr",
    "rollout_trace_op",
]
