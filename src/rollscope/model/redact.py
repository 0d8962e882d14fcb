"""Cleaning text before it is written.

A redactor takes a text and returns it clean. It runs in the call, before anything is queued. If it
fails, the rollout is dropped and counted, never written uncleaned. Names that identify a rollout
(id, key, task, group) are not touched.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from .normalise import plain
from .records import Error, Fact, Message, Part, Rollout, Span, ToolCall
from .schema import PROSE
from .tokens import Tokens

Redactor = Callable[[str], str]

PATTERNS = {
    "email": r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}",
    "key": (
        r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}"  # OpenAI, Anthropic, Stripe
        r"|\bhf_[A-Za-z0-9]{16,}"  # Hugging Face
        r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}"
        r"|\bAKIA[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{30,}"  # AWS, Google
        r"|\bxox[abprs]-[A-Za-z0-9-]{10,}"  # Slack
        r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}"  # JWT
        r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----"
    ),
    "phone": r"(?<![\w.])\+\d{1,3}[ .-]?(?:\(?\d{1,4}\)?[ .-]?){2,5}\d{2,4}\b",
    "ip": r"\b(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)\b",
}
"""What the named patterns find. Each find becomes `[email]`, `[key]`, ..."""

_REGEX = "regex="


def redact_names(text: str) -> list[str]:
    """`emails,keys,regex=...` as a list. A regex takes the rest, because it may hold commas."""
    names, found, pattern = text.partition(_REGEX)
    listed = [name.strip() for name in names.split(",") if name.strip()]
    return [*listed, _REGEX + pattern] if found else listed


def redact_text(names: Iterable[str]) -> str:
    """The list as one text that `redact_names` takes: the regexes joined, as the last item."""
    listed = list(names)
    patterns = [name.removeprefix(_REGEX) for name in listed if name.startswith(_REGEX)]
    others = [name for name in listed if not name.startswith(_REGEX)]
    if len(patterns) > 1:
        patterns = ["|".join(f"(?:{pattern})" for pattern in patterns)]
    return ",".join([*others, *(_REGEX + pattern for pattern in patterns)])


def make_redactor(redact: str | Redactor | Iterable[str | Redactor]) -> Redactor:
    """One function out of names, functions, `module:function` texts, or a list of them."""
    items = [redact] if isinstance(redact, str) or callable(redact) else list(redact)
    steps = [_step(item) for item in items]

    def clean(text: str) -> str:
        for step in steps:
            text = step(text)
        return text

    return clean


def _step(item: str | Redactor) -> Redactor:
    if callable(item):
        return item
    if item.startswith(_REGEX):
        return _replacer(_pattern(item.removeprefix(_REGEX)), "[redacted]")
    known = item if item in PATTERNS else item.removesuffix("s")
    if known in PATTERNS:
        return _replacer(re.compile(PATTERNS[known]), f"[{known}]")
    module, colon, name = item.partition(":")
    if colon:
        found = getattr(importlib.import_module(module), name)
        if callable(found):
            return found  # type: ignore[no-any-return]
    raise ValueError(
        f"redact={item!r} is not known. Give a function, `module:function`, `regex=...`, or one "
        "of: " + ", ".join(PATTERNS)
    )


def _pattern(text: str) -> re.Pattern[str]:
    if not text:
        raise ValueError("redact='regex=' has no pattern. Type for example: regex=ACME-[0-9]+")
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"redact='regex={text}' is not a regular expression: {error}") from None


def _replacer(pattern: re.Pattern[str], mark: str) -> Redactor:
    return lambda text: pattern.sub(mark, text)


def redact_rollout(rollout: Rollout, clean: Redactor) -> Rollout:
    """A clean copy."""
    return msgspec.structs.replace(
        rollout,
        messages=[redact_message(m, clean) for m in rollout.messages],
        spans=[redact_span(s, clean) for s in rollout.spans],
        reward_texts={k: clean(str(v)) for k, v in rollout.reward_texts.items() if v is not None},
        **{name: _text(getattr(rollout, name), clean) for name in PROSE},
        error=_error(rollout.error, clean),
        sampling=clean_settings(rollout.sampling, clean),
        reference=clean_json(rollout.reference, clean),
        meta=clean_json(rollout.meta, clean) if rollout.meta else {},
    )


def redact_message(message: Message, clean: Redactor) -> Message:
    """A clean copy. One that was changed loses its token ids: they decode to the secret."""
    content = message.content
    new: str | list[Part] | None
    if content is None or isinstance(content, str):
        new = _text(content, clean)
    else:
        new = [_part(part, clean) for part in content]
    calls = [_call(call, clean) for call in message.tool_calls or ()]
    meta = clean_json(message.meta, clean) if message.meta else {}
    tokens = message.tokens
    if (
        new != content
        or calls != list(message.tool_calls or ())
        or any(meta.get(name) != (message.meta or {}).get(name) for name in _SEEN_BESIDE)
        or any(clean(text) != text for text in _also_in_tokens(message))
    ):
        tokens = None if tokens is None else Tokens(streams=tokens.streams)
        meta.pop("marks", None)  # a secret may be spread over several
    return msgspec.structs.replace(
        message,
        content=new,
        tool_calls=calls,
        tokens=tokens,
        state=clean_json(message.state, clean),
        meta=meta,
    )


def _also_in_tokens(message: Message) -> Iterator[str]:
    """What else the model saw of a message: names, and a text that lies in several parts."""
    parts = message.content if isinstance(message.content, list) else []
    calls = [*(message.tool_calls or ()), *(part.call for part in parts if part.call is not None)]
    names = (message.role, message.name, *(call.name for call in calls))
    yield from (name for name in names if isinstance(name, str))  # trainers give numbers, too
    if len(parts) > 1:
        yield "".join(part.text for part in parts if isinstance(part.text, str))


_SEEN_BESIDE = ("before", "after")
"""Texts in a message's `meta` that its tokens also hold: those of the chat template."""


def redact_span(span: Span, clean: Redactor) -> Span:
    return msgspec.structs.replace(
        span,
        inputs=clean_json(span.inputs, clean),
        outputs=clean_json(span.outputs, clean),
        error=_error(span.error, clean),
        meta=clean_json(span.meta, clean) if span.meta else {},
    )


def redact_fact(fact: Fact, clean: Redactor) -> Fact:
    is_identity = fact.name in ("task", "group", "fate")
    return (
        fact if is_identity else msgspec.structs.replace(fact, value=clean_json(fact.value, clean))
    )


def _text(text: str | None, clean: Redactor) -> str | None:
    return None if text is None else clean(text)


def _error(error: Error | None, clean: Redactor) -> Error | None:
    return error and msgspec.structs.replace(error, text=_text(error.text, clean))


def _call(call: ToolCall, clean: Redactor) -> ToolCall:
    return msgspec.structs.replace(call, arguments=clean_json(call.arguments, clean))


def _part(part: Part, clean: Redactor) -> Part:
    return msgspec.structs.replace(
        part,
        text=_text(part.text, clean),
        call=part.call and _call(part.call, clean),
        data=clean_json(part.data, clean),
    )


_TOKEN_LIKE = 4  # whole numbers in a row that may be token ids


def clean_json(value: Any, clean: Redactor) -> Any:
    """Free JSON with every text cleaned, names of fields too.

    Rows of whole numbers go: they may be token ids.
    """
    return None if value is None else _clean(plain(value, "", []), clean, _TOKEN_LIKE)


def clean_settings(value: Any, clean: Redactor) -> Any:
    """The same for settings, in which whole numbers cannot be token ids."""
    return None if value is None else _clean(plain(value, "", []), clean, None)


def _clean(value: Any, clean: Redactor, token_like: int | None) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(key): _clean(item, clean, token_like) for key, item in value.items()}
    if isinstance(value, list):
        is_row = token_like is not None and len(value) >= token_like
        if is_row and all(type(item) is int for item in value):
            return f"<{len(value)} whole numbers left out: text is redacted>"
        return [_clean(item, clean, token_like) for item in value]
    return value
