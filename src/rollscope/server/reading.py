"""Answers about single rollouts: their messages in windows, tokens, spans, neighbours."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from typing import Any

import msgspec
from msgspec import convert
from msgspec.structs import asdict

from ..checks.tools import failed
from ..model import Message, Part, Span, ToolCall, conversation
from ..model.passages import passages
from ..model.tokens import Tokens, is_int, to_list
from ..query import compile_query
from ..query.hits import hits as find_hits
from ..query.match import TextTerm
from ..query.values import Text
from ..query.writing import Written, written_of
from ..store.read.bodies import Sketch
from . import params as p
from . import shapes as s
from .desk import Desk
from .rows import number, thin, unlisted

ANSWER = 4000
"""Characters of the final answer that are shown beside the reference."""
SPANS = 5000
HITS = 2000
BUCKETS = 2000


def detail(desk: Desk, ask: p.DetailOf, id: str) -> s.Detail:
    """A whole rollout but for its spans, and with a window of its messages at most."""
    row, rollout = desk.opened(id)
    id = row.id
    sketches = desk.outline(id)
    window = p.MessagesOf(first=ask.first, count=ask.count) if ask.count else None
    return s.Detail(
        row=thin(row),
        **unlisted(row),
        notes=desk.store.notes(id),
        findings=[
            convert(found, s.ShownFinding, from_attributes=True)
            for found in desk.store.findings_of(id)
        ],
        streams=list(dict.fromkeys(name for sketch in sketches for name in sketch.streams)),
        spans=desk.store.count_spans(id) if rollout is None else len(rollout.spans),
        outline=_outline(sketches),
        answer=_answer(desk, id, sketches),
        bodies=messages(desk, window, id) if window else None,
    )


def _outline(sketches: list[Sketch]) -> s.Outline:
    """The skeleton. A message's parent is always given: -1 begins a conversation."""
    return s.Outline(
        parent=[-1 if m.parent is None else m.parent for m in sketches],
        role=[m.role for m in sketches],
        name=[m.name for m in sketches],
        chars=[m.chars for m in sketches],
        tokens=[m.tokens for m in sketches],
        sampled=[m.sampled for m in sketches],
        tools=[[name or "" for name in m.tools] for m in sketches],
        calls=[[_first(written) for written in m.arguments] for m in sketches],
        thinks=[m.thinks for m in sketches],
        failed=[m.role == "tool" and failed(m.beginning) for m in sketches],
        preview=[" ".join(m.beginning.split())[:80] for m in sketches],
        reward=[number(m.reward) for m in sketches],
    )


_NAMED = re.compile(r'\{\s*"(?:[^"\\]|\\.)*"\s*:\s*')
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"?')


def _first(arguments: str) -> str:
    """The first of a call's arguments on one line. They may be cut, and need not be JSON."""
    name = _NAMED.match(arguments)
    value = arguments[name.end() :] if name else arguments
    quoted = _QUOTED.match(value) if name else None
    if quoted:
        try:
            value = json.loads(f'"{quoted[1]}"')
        except ValueError:
            value = quoted[1]
    elif name and value[:1] not in "[{":
        value = re.split(r"[,}]", value, maxsplit=1)[0]
    return " ".join(value.split())[:80]


def _answer(desk: Desk, id: str, sketches: list[Sketch]) -> str | None:
    """The end of what the policy wrote last; what it thought before is no answer."""
    for sketch in reversed(sketches):
        if conversation.by_policy(sketch):
            (message,) = desk.messages(id, sketch.n, sketch.n + 1)
            return conversation.answer(message).rstrip()[-ANSWER:] or None
    return None


def messages(desk: Desk, ask: p.MessagesOf, id: str) -> s.Bodies:
    """A window of messages; long texts are cut."""
    found = desk.messages(id, ask.first, ask.first + ask.count)
    bodies = [_body(m, n, ask.chars) for n, m in enumerate(found, ask.first)]
    return s.Bodies(first=ask.first, messages=bodies)


def text(desk: Desk, ask: p.TextOf, id: str, n: int) -> s.TextWindow:
    """What one message says, from a place on."""
    whole = conversation.text(desk.message(id, n))
    return s.TextWindow(
        n=n, start=ask.start, text=whole[ask.start : ask.start + ask.chars], chars=len(whole)
    )


def _body(message: Message, n: int, chars: int) -> s.Body:
    whole = conversation.text(message)
    return s.Body(
        n=n,
        role=message.role,
        parent=conversation.parent_of(n, message),
        name=message.name,
        text=None if message.content is None else whole[:chars],
        chars=len(whole),
        passages=passages(message),
        parts=_parts(message.content) if isinstance(message.content, list) else None,
        tool_calls=[_call(call) for call in message.tool_calls],
        tool_call_id=message.tool_call_id,
        sampled=message.sampled,
        stop_reason=message.stop_reason,
        reward=number(message.reward),
        state=message.state,
        start=message.start,
        end=message.end,
        meta=message.meta,
        tokens=len(message.tokens) if message.tokens is not None else None,
    )


def _parts(parts: list[Part]) -> list[s.ShownPart]:
    end, shown = 0, []
    for part in parts:
        end += len(part.text or "")
        shown.append(
            s.ShownPart(
                type=part.type,
                end=None if part.text is None else end,
                image=part.image,
                call=None if part.call is None else _call(part.call),
                id=part.id,
                data=part.data,
            )
        )
    return shown


def _call(call: ToolCall) -> s.ShownCall:
    return msgspec.convert(call, s.ShownCall, from_attributes=True)


def _marks(told: Any) -> dict[str, str]:
    """Texts by token id, if `meta` holds them in the adapters' form."""
    texts = told.items() if isinstance(told, dict) else ()
    return {str(id): text for id, text in texts if isinstance(text, str)}


REST = 20_000
"""Characters without tokens that are told after the last token of a message."""


def tokens(desk: Desk, ask: p.TokensOf, id: str) -> s.TokenBlocks:
    """Tokens of a window of messages, with every stream."""
    found = desk.messages(id, ask.first, ask.first + ask.count)
    return s.TokenBlocks(
        messages=[
            _block(n, message, message.tokens, ask)
            for n, message in enumerate(found, ask.first)
            if message.tokens is not None
        ]
    )


def _block(n: int, message: Message, tokens: Tokens, ask: p.TokensOf) -> s.TokenBlock:
    size, whole = len(tokens), conversation.text(message)
    first = min(ask.start, size)
    stop = min(size, first + ask.most)
    before = max(0, first - 1)  # the text of the first token begins where the one before it ends
    ends = None if tokens.ends is None else to_list(tokens.ends[before:stop], True)
    # Without places in the text there is no text to a window of tokens.
    begin = ends[0] if ends and first else 0
    covered = ends[-1] if ends else begin
    end = len(whole) if ends and stop == size else covered
    last = min(end, covered + REST)
    return s.TokenBlock(
        n=n,
        size=size,
        start=first,
        text=whole[begin:last],
        text_start=begin,
        left=end - last,
        ids=None if tokens.ids is None else to_list(tokens.ids[first:stop], True),
        ends=None if ends is None else ends[first - before :],
        marks=_marks(message.meta.get("marks")),
        streams={
            name: [number(v) for v in to_list(values[first:stop], is_int(name))]
            for name, values in tokens.streams.items()
        },
    )


def strip(desk: Desk, ask: p.StripOf, id: str) -> s.Strip:
    """One stream over all tokens of a rollout, in buckets, with its extremes."""
    values: list[float | None] = []
    numbers, starts = [], []
    for n, message in enumerate(desk.rollout(id).messages):
        if message.tokens is None or not len(message.tokens):
            continue
        numbers.append(n)
        starts.append(len(values))
        found = _stream(message.tokens, ask.stream)
        values += found if found is not None else [None] * len(message.tokens)
    per = max(1, math.ceil(len(values) / BUCKETS))
    known = _finite(values)
    has_gaps = len(known) < len(values)
    buckets = [
        _finite(values[i : i + per]) if has_gaps else known[i : i + per]
        for i in range(0, len(values), per)
    ]
    lowest, highest = min(known, default=None), max(known, default=None)

    def place(value: float) -> tuple[int, int]:
        at = values.index(value)  # of several the first
        i = max(k for k, begin in enumerate(starts) if begin <= at)
        return numbers[i], at - starts[i]

    return s.Strip(
        stream=ask.stream,
        tokens=len(values),
        missing=values.count(None),
        per=per,
        low=[min(b) if b else None for b in buckets],
        high=[max(b) if b else None for b in buckets],
        mean=[sum(b) / len(b) if b else None for b in buckets],
        messages=numbers,
        starts=starts,
        lowest=lowest,
        highest=highest,
        average=sum(known) / len(known) if known else None,
        lowest_at=None if lowest is None else place(lowest),
        highest_at=None if highest is None else place(highest),
    )


def _finite(values: list[float | None]) -> list[float]:
    return [v for v in values if v is not None and math.isfinite(v)]


def _stream(tokens: Tokens, name: str) -> list[float | None] | None:
    """A recorded stream, or one made of two others."""
    pairs = {"ratio": ("train_logprob", "logprob"), "ref_gap": ("logprob", "ref_logprob")}
    if name not in pairs:
        values = tokens.streams.get(name)
        return None if values is None else to_list(values, is_int(name))
    first, second = (tokens.streams.get(part) for part in pairs[name])
    if first is None or second is None:
        return None
    both = zip(to_list(first, False), to_list(second, False), strict=False)
    gaps = [None if a is None or b is None else a - b for a, b in both]
    if name == "ratio":
        return [None if gap is None else math.exp(min(gap, 700.0)) for gap in gaps]
    return list(gaps)


def spans(desk: Desk, _: p.Nothing, id: str) -> s.Spans:
    """Every timed call inside a rollout, and when the policy itself was writing."""
    id = desk.opened(id).row.id
    found = desk.store.spans(id)
    is_long = desk.opened(id).rollout is None
    written = desk.store.written(id) if is_long else written_of(desk.rollout(id))
    known = [message for message in written if message.versions]
    return s.Spans(
        spans=[
            s.ShownSpan(
                name=span.name,
                id=span.id,
                parent=span.parent,
                start=span.start,
                end=span.end,
                message=span.message,
                error_kind=span.error.kind if span.error else None,
                error_type=span.error.type if span.error else None,
                error_text=span.error.text if span.error else None,
                inputs=span.inputs,
                outputs=span.outputs,
                meta=span.meta,
                version=_version_of(span, known),
            )
            for span in found[:SPANS]
        ],
        turns=[
            msgspec.convert(m, s.ShownTurn, from_attributes=True)
            for m in written
            if m.sampled and m.start is not None and m.end is not None
        ],
        cut=max(0, len(found) - SPANS),
    )


def _version_of(span: Span, known: list[Written]) -> int | None:
    """As the span says; else of its message, or the last one written before it."""
    for name in ("version", "policy_version"):
        if isinstance(said := span.meta.get(name), int):
            return said
    if span.message is None:
        return None
    at = bisect_right(known, span.message, key=lambda written: written.message)
    return known[at - 1].versions[-1] if at else None


def neighbours(desk: Desk, _: p.Nothing, id: str) -> s.ShownNeighbours:
    """Where a rollout stands: its siblings, the groups beside it, its task at other steps."""
    id = desk.opened(id).row.id
    siblings = [thin(row) for row in desk.store.group(id)]
    return s.ShownNeighbours(siblings=siblings, **asdict(desk.store.neighbours(id)))


def hits(desk: Desk, ask: p.HitsOf, id: str) -> s.Hits:
    """Where the query's text terms, or `find`, stand in this rollout."""
    terms = [*compile_query(ask.q).terms, TextTerm(None, Text("fold", ask.find))]
    found = find_hits(desk.store, desk.rollout(id), terms, HITS)
    return s.Hits(hits=[hit for _, hit in found])


def label(desk: Desk, _: p.Nothing, body: s.Label) -> s.Done:
    """Set or take back a label, or write a note."""
    if not desk.can_label:
        raise PermissionError("labels cannot be written here; start with --allow-labels")
    if not body.label and not body.note:
        raise ValueError("give a label or a note")
    row = desk.opened(body.rollout).row
    if body.message is not None and body.message >= (known := len(desk.outline(row.id))):
        raise ValueError(f"the rollout has {known} messages, counted from 0")
    desk.labels.write(row, body)
    return s.Done()
