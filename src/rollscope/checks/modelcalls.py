"""Calls of a model that a rollout is made of, where they were recorded as spans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..model import Span

_PROMPT = ("input_tokens", "prompt_tokens")
_ANSWER = ("output_tokens", "completion_tokens")
"""What APIs call the two counts."""

NOT_CAPTURED = "NotCaptured"
"""Type of the error of a call that others refer to, and nobody recorded."""


class ModelCall(NamedTuple):
    """A call of a model."""

    span: Span
    model: str
    """Calls of one model follow each other: a retry has that of what it retries."""
    prompt: int | None
    """Tokens that went in; None: not known."""
    answer: int | None
    """Tokens that came out; None: not known."""

    @property
    def is_failed(self) -> bool:
        return self.span.error is not None


def model_calls(spans: Sequence[Span]) -> list[ModelCall]:
    """The spans that are calls of a model, in the order of time, as far as that is known."""
    found = list(_calls(spans))
    if all(call.span.start is not None for call in found):
        found.sort(key=lambda call: call.span.start or 0.0)
    return found


def _calls(spans: Sequence[Span]) -> Iterator[ModelCall]:
    for span in spans:
        says = span.outputs if isinstance(span.outputs, Mapping) else {}
        if span.name == "model" or span.meta.get("event") == "model" or "usage" in says:
            prompt, answer = counts(says.get("usage"))
            yield ModelCall(span, str(span.meta.get("model") or span.name), prompt, answer)


def counts(usage: Any) -> tuple[int | None, int | None]:
    """Tokens in and out, as an API counts them."""
    if not isinstance(usage, Mapping):
        return None, None
    return _first(usage, _PROMPT), _first(usage, _ANSWER)


def _first(usage: Mapping[str, Any], names: Sequence[str]) -> int | None:
    return next((usage[name] for name in names if type(usage.get(name)) is int), None)
