"""A conversation: who wrote a message, what it says, and which messages lie on one branch.

Each rule stands here once. Where the engine follows it too, its SQL stands right below, over the
columns of the table `messages`, and a test holds both to the same answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from .records import Message, ToolCall


class Written(Protocol):
    """What one must know of a message to tell who wrote it."""

    @property
    def role(self) -> str: ...
    @property
    def sampled(self) -> bool | None: ...


def by_policy(message: Written) -> bool:
    """Did the policy write it? If nobody said, the assistant's messages count.

    Each message that the policy wrote is a turn.
    """
    return message.role == "assistant" if message.sampled is None else message.sampled


BY_POLICY = "coalesce(sampled, role = 'assistant', false)"

WROTE = "wrote"
"""Key of a message's `meta`: `[begin, end]`, those of a turn's tokens that the policy wrote. The
others are its template's header, which is part of the prompt, and marks that came after it."""


def wrote(message: Message) -> tuple[int, int]:
    """Which of a turn's tokens the policy wrote: from, and up to. If nobody said, all."""
    total = len(message.tokens or ())
    told = message.meta.get(WROTE)
    if not isinstance(told, Sequence) or not all(type(place) is int for place in told):
        told = ()
    begin, end = told if len(told) == 2 else (0, total)
    begin = max(0, min(begin, total))
    return begin, max(begin, min(end, total))


def _wrote_sql(place: int, missing: str) -> str:
    told = f"""try_cast(json_extract(meta, '$."{WROTE}"') AS BIGINT[])"""
    return f"CASE WHEN len({told}) = 2 THEN {told}[{place}] ELSE {missing} END"


def wrote_sql(total: str) -> tuple[str, str]:
    """`wrote` of a message whose number of tokens is the SQL `total`."""
    begin = f"greatest(0, least({_wrote_sql(1, '0')}, {total}))"
    return begin, f"greatest({begin}, least({_wrote_sql(2, total)}, {total}))"


def prompt_size(messages: Iterable[Written]) -> int:
    """How many messages come before the policy's first: all of them, if it wrote none."""
    size = 0
    for message in messages:
        if by_policy(message):
            break
        size += 1
    return size


def text(message: Message) -> str:
    """What a message says: its text, or the texts of all its parts together.

    The column `text` holds it, and token `ends` count its characters.
    """
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text or "" for part in content)


_BLANK = " \n\r\t"
_THOUGHT_ENDS = ("</think>", "</thinking>", "</reasoning>")


def answer(message: Message) -> str:
    """What a message says after thinking: its parts of type `text`, from the last closing mark
    of a thought on. Empty where there is nothing but thoughts."""
    content = message.content
    said = text(message)
    if isinstance(content, list):
        said = "".join(part.text or "" for part in content if part.type == "text")
    for mark in _THOUGHT_ENDS:
        said = said.rpartition(mark)[2]
    return said.lstrip(_BLANK)


# Parts hold the ends of their texts: each text begins where the one before it ended.
_TEXT_PARTS = """list_transform(
    [json_transform(parts, '[{"type": "VARCHAR", "end": "BIGINT"}]')],
    lambda pieces: array_to_string(list_transform(pieces, lambda piece, i:
        CASE WHEN piece.type = 'text' THEN text[1 + coalesce(list_max(list_transform(
            pieces[:i - 1], lambda before: before."end")), 0) : piece."end"] END), ''))[1]"""

_SAID = f"CASE WHEN parts IS NULL THEN text ELSE {_TEXT_PARTS} END"
for _mark in _THOUGHT_ENDS:
    _SAID = f"split_part({_SAID}, '{_mark}', -1)"

ANSWER = f"ltrim({_SAID}, E' \\n\\r\\t')"


def thinks(message: Message) -> bool:
    """Does it show a thought? Its parts say so, or marks in its text."""
    if isinstance(message.content, list) and any(p.type == "reasoning" for p in message.content):
        return True
    said = text(message)
    return said.startswith(_THOUGHT_BEGINS) or any(mark in said for mark in _THOUGHT_ENDS)


_THOUGHT_BEGINS = "<think>"
_MARKED = " OR ".join(f"contains(text, '{mark}')" for mark in _THOUGHT_ENDS)
THINKS = f"""(coalesce(list_contains(json_extract_string(parts, '$[*].type'), 'reasoning'), false)
    OR coalesce(starts_with(text, '{_THOUGHT_BEGINS}') OR {_MARKED}, false))"""


def tool_calls(message: Message) -> list[ToolCall]:
    """The tools that a message calls, wherever in it they stand."""
    parts = message.content if isinstance(message.content, list) else ()
    return [*message.tool_calls, *(part.call for part in parts if part.call is not None)]


def parent_of(number: int, message: Message) -> int:
    """Number of the message that message `number` follows; -1: it begins a conversation."""
    if message.parent is None:
        return number - 1
    return message.parent if -1 <= message.parent < number else -1


PARENT = """CASE WHEN m.parent IS NULL THEN nullif(n - 1, -1)
    WHEN m.parent BETWEEN 0 AND n - 1 THEN m.parent END"""
"""Of a message `m` with the number `n`; null where it begins a conversation."""


def path_to(messages: Sequence[Message], number: int) -> list[int]:
    """The numbers of the messages from the root of a conversation to this one."""
    path = []
    while number >= 0:
        path.append(number)
        number = parent_of(number, messages[number])
    return path[::-1]


def branches(messages: Sequence[Message]) -> list[list[Message]]:
    """Every path from a root to a leaf, in the order of the leaves: what one training row sees."""
    followed = {parent_of(number, message) for number, message in enumerate(messages)}
    leaves = [number for number in range(len(messages)) if number not in followed]
    return [[messages[number] for number in path_to(messages, leaf)] for leaf in leaves]
