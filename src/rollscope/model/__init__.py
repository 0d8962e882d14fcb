"""What a rollout is: typed records, identity, folding of late facts.

Nothing here knows files, trainers or HTTP.
"""

from .facts import fold, tags
from .finding import Finding
from .identity import id_maker, keyed_id, prompt_task
from .normalise import normalise
from .records import Error, Fact, Message, Part, Rollout, Span, ToolCall
from .tokens import Tokens

__all__ = [
    "Error",
    "Fact",
    "Finding",
    "Message",
    "Part",
    "Rollout",
    "Span",
    "Tokens",
    "ToolCall",
    "fold",
    "id_maker",
    "keyed_id",
    "normalise",
    "prompt_task",
    "tags",
]
