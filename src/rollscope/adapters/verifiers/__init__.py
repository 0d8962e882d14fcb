"""verifiers v1: a `Trace` is a rollout, an `Episode` is one run with the traces of its agents.

    async with rollscope.adapters.verifiers.attach(agent) as agent:     # or attach(env)
        trace = await agent.run(task)

Nothing of the record is lost: nodes become messages with their parents (branches, rewritten
contexts and sub-agents are branches of the tree), model calls and phases become spans, and
what has no place of its own lies under its own name in `meta`. Each agent of an episode is a
rollout; those of one episode share `meta.episode`.

`read` takes what verifiers and prime-rl write; see `files`.
"""

from .convert import convert
from .files import read, read_metrics, recognise
from .hook import attach, recorder

__all__ = ["attach", "convert", "read", "read_metrics", "recognise", "recorder"]
