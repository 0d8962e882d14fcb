"""The conversation that a mapping's terms describe, as chat messages."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from . import _mapping
from ._mapping import Path, Plan

_ROLES = {
    "system": "system",
    "prompt": "user",
    "completion": "assistant",
    "actions": "action",
    "observations": "observation",
}
_OURS = {"action": "assistant", "observation": "tool"}
"""Unless the mapping's `roles` say otherwise."""
_SAMPLED = ("completion", "actions")
_OF_MESSAGE = ("reward", "name", "stop_reason", "tool_call_id", "state")
"""Parts that are fields of a message; `tokens` are its ids, and any other part is a stream."""

Said = Mapping[str, Mapping[str, Any]]
"""By term, what was found: the value itself under an empty name, and its parts."""
Message = dict[str, Any]


def conversation(said: Said, plan: Plan) -> list[Message]:
    """The messages in their order. Raises ValueError if it is not known what belongs to what."""
    messages: list[Message] = []
    for field in ("system", "prompt"):
        messages += _spoken(field, said.get(field, {}))
    messages += _chat(said.get("messages", {}), plan)
    messages += _turns(said, plan)
    messages += _spoken("completion", said.get("completion", {}))
    for message in messages:
        for key in ("role", "from"):
            if isinstance(message.get(key), str):
                role = message[key]
                message[key] = plan.roles.get(role, _OURS.get(role, role))
    return messages


def _chat(parts: Mapping[str, Any], plan: Plan) -> list[Message]:
    """A list of messages; the mapping may say what their keys are called."""
    found = _mapping.opened(parts.get(""))
    if found is None:
        return []
    if not isinstance(found, list):
        raise ValueError(f"messages: expected a list, found {found!r:.60}")
    paths = {t.part: t.path for t in plan.terms if t.is_inside_message}
    return [_renamed(_mapping.opened(message), paths) for message in found]


def _renamed(message: Any, paths: Mapping[str, Path]) -> Message:
    if not isinstance(message, dict):
        raise ValueError(f"messages: expected an object, found {message!r:.60}")
    if not paths:
        return dict(message)
    found = {part: path.found([message], ()) for part, path in paths.items()}
    used = [paths[part].steps for part, (_, is_own) in found.items() if is_own]
    left = _mapping.rest(message, used) or {}
    return {**left, **{part: value for part, (value, _) in found.items() if value is not None}}


def _spoken(field: str, parts: Mapping[str, Any]) -> list[Message]:
    """One text, message or chat, and the tokens of the one message in it."""
    value, role = parts.get(""), _ROLES[field]
    about = {part: v for part, v in parts.items() if part}
    if value is None and not about:
        return []
    chat = value if isinstance(value, list) else [value]
    made = [
        dict(m) if isinstance(m, Mapping) else {"role": role, "content": _text(m)} for m in chat
    ]
    if about:
        written = [m for m in made if m.get("role", role) == role]
        if len(written) != 1:
            names = ", ".join(f"{field}.{part}" for part in about)
            raise ValueError(f"{names}: they belong to one of {len(written)} messages; which one?")
        written[0] |= _about(field, about)
    for message in made:
        if field == "completion" and message.setdefault("role", role) == role:
            message.setdefault("sampled", True)
    return made


def _turns(said: Said, plan: Plan) -> Iterator[Message]:
    """Actions and observations in turn; what the mapping names first comes first."""
    fields = [field for field in dict.fromkeys(term.field for term in plan.terms) if field in said]
    turns = {field: _listed(field, said[field]) for field in fields if _ROLES.get(field) in _OURS}
    counts = [len(turn) for turn in turns.values()]
    if counts and max(counts) - min(counts) > 1:
        what = " and ".join(f"{count} {field}" for field, count in zip(turns, counts, strict=True))
        raise ValueError(f"{what}: which belongs to which, is not known")
    if len(counts) == 2 and counts[1] > counts[0]:  # what comes second cannot begin
        turns = dict(reversed(turns.items()))
    for pair in itertools.zip_longest(*turns.values()):
        yield from (message for message in pair if message is not None)


def _listed(field: str, parts: Mapping[str, Any]) -> list[Message | None]:
    lists = {part: _mapping.opened(value) for part, value in parts.items()}
    for part, value in lists.items():
        if not isinstance(value, list):
            name = f"{field}.{part}" if part else field
            raise ValueError(f"{name}: expected a list (steps[].x makes one), found {value!r:.60}")
    size = max(map(len, lists.values()))
    for part, value in lists.items():
        if len(value) != size:
            raise ValueError(f"{field}.{part or 'itself'}: {len(value)} values for {size} {field}")
    turns: list[Message | None] = []
    for number in range(size):
        own = {part: value[number] for part, value in lists.items() if value[number] is not None}
        if not own:
            turns.append(None)
            continue
        message = {"role": _ROLES[field], "content": _text(own.pop("", None)), **_about(field, own)}
        turns.append(message | ({"sampled": True} if field in _SAMPLED else {}))
    return turns


def _about(field: str, parts: Mapping[str, Any]) -> Message:
    """Tokens with their streams, and fields of the message."""
    made = {part: value for part, value in parts.items() if part in _OF_MESSAGE}
    streams = {part: value for part, value in parts.items() if part not in _OF_MESSAGE}
    if not streams:
        return made
    ids = streams.pop("tokens", None)
    tokens = {} if ids is None else {"ids": list(_numbers(field, "tokens", ids))}
    for name, values in streams.items():
        tokens[name] = list(_numbers(field, name, values))
        if ids is not None and len(tokens[name]) != len(tokens["ids"]):
            what = f"{len(tokens[name])} values for {len(tokens['ids'])} tokens"
            raise ValueError(f"{field}.{name}: {what}")
    return {**made, "tokens": tokens}


def _numbers(field: str, part: str, values: Any) -> list[Any]:
    values = _mapping.opened(values)
    if not isinstance(values, (list, tuple)):
        raise ValueError(f"{field}.{part}: expected a list of numbers, found {values!r:.60}")
    return list(values)


def _text(value: Any) -> Any:
    """What was said; an action that is no text is written as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value, default=str)
