"""Answers about single rollouts: their messages in windows, tokens, spans, and comparison."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from ..checks import align
from ..checks.align import Piece as Words
from ..checks.align import plain_text, text_of
from ..model import Message, Part, Rollout, Span
from ..model.tokens import Tokens, is_int, to_list
from ..query.rows import Row as Thin
from ..store.bodies import Sketch
from . import params as p
from . import shapes as s
from .desk import SHORT, Desk, NotFound
from .hits import find_hits
from .selecting import number, thin

ANSWER = 4000
"""Characters of the final answer that are shown beside the reference."""
SPANS = 5000
BUCKETS = 2000


def detail(desk: Desk, _: p.Nothing, id: str) -> s.Detail:
    """A whole rollout but for its messages' bodies and its spans."""
    id = desk.find(id)
    row = _thin(desk, id)
    sketches = desk.outline(id)
    return s.Detail(
        row=thin(row),
        key=row.key,
        launch=row.launch,
        worker=row.worker,
        start=row.start,
        end=row.end,
        reward_texts=row.reward_texts or {},
        error_text=row.error_text,
        sampling=row.sampling or {},
        reference=row.reference,
        meta=row.meta or {},
        notes=_notes(desk, id),
        streams=list(dict.fromkeys(name for sketch in sketches for name in sketch.streams)),
        spans=_count_spans(desk, id),
        outline=_outline(sketches),
        answer=_answer(desk, id, sketches),
    )


def _row(desk: Desk, id: str) -> s.Row:
    return thin(_thin(desk, id))


def _thin(desk: Desk, id: str) -> Thin:
    """The row of a rollout, superseded or not."""
    for row in desk.store.rollouts(f'id:"{id}" superseded:true,false', order="id", limit=1):
        return row
    raise NotFound(f"no rollout {id!r}")


def _count_spans(desk: Desk, id: str) -> int:
    sql = "SELECT count(*) FROM spans WHERE rollout = ?"
    return int(desk.store.sql(sql, [id]).fetchall()[0][0])


def _notes(desk: Desk, id: str) -> list[s.Note]:
    """Labels, flags and notes that hold: of each name and message the last one."""
    rows = desk.store.sql(
        "SELECT name, value::VARCHAR, message, author, time FROM facts WHERE rollout = ? AND "
        "(name = 'note' OR starts_with(name, 'label.') OR starts_with(name, 'flag.')) "
        "ORDER BY time, writer, n",
        [id],
    ).fetchall()
    held: dict[Any, s.Note] = {}
    for place, (name, value, message, author, time) in enumerate(rows):
        note = s.Note(
            name=name,
            value=None if value is None else msgspec.json.decode(value),
            message=message,
            author=author,
            time=time,
        )
        held[(name, message) if name != "note" else (name, message, place)] = note
    return list(held.values())


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
        preview=[" ".join(m.beginning.split())[:80] for m in sketches],
        reward=[number(m.reward) for m in sketches],
    )


def _answer(desk: Desk, id: str, sketches: list[Sketch]) -> str | None:
    """The end of what the policy wrote last; what it thought before is no answer."""
    for sketch in reversed(sketches):
        if sketch.sampled or (sketch.sampled is None and sketch.role == "assistant"):
            (message,) = desk.messages(id, sketch.n, sketch.n + 1)
            if isinstance(message.content, list):
                parts = [part.text or "" for part in message.content if part.type == "text"]
                text = "".join(parts)
            else:
                text = message.content or ""
            for mark in ("</think>", "</thinking>", "</reasoning>"):
                text = text.rpartition(mark)[2]
            return text.strip()[-ANSWER:] or None
    return None


def messages(desk: Desk, ask: p.MessagesOf, id: str) -> s.Bodies:
    """A window of messages; long texts are cut."""
    found = desk.messages(id, ask.first, ask.first + ask.count)
    bodies = [_body(m, n, 0, ask.chars) for n, m in enumerate(found, ask.first)]
    return s.Bodies(first=ask.first, messages=bodies)


def text(desk: Desk, ask: p.TextOf, id: str, n: int) -> s.Body:
    """One message, its text from a place on."""
    found = desk.messages(id, n, n + 1)
    if not found:
        raise NotFound(f"rollout {id!r} has {len(desk.outline(id))} messages, counted from 0")
    return _body(found[0], n, ask.start, ask.chars)


def _body(message: Message, n: int, start: int, chars: int) -> s.Body:
    whole = plain_text(message)
    has_text = message.content is not None
    return s.Body(
        n=n,
        role=message.role,
        parent=n - 1 if message.parent is None else message.parent,
        name=message.name,
        text=whole[start : start + chars] if has_text else None,
        start_char=start,
        chars=len(whole),
        parts=_pieces(message.content) if isinstance(message.content, list) else None,
        tool_calls=[
            s.Call(id=c.id, name=c.name, arguments=c.arguments) for c in message.tool_calls
        ],
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


def _pieces(parts: list[Part]) -> list[s.Piece]:
    end, pieces = 0, []
    for part in parts:
        end += len(part.text or "")
        call = part.call
        pieces.append(
            s.Piece(
                type=part.type,
                end=None if part.text is None else end,
                image=part.image,
                call=s.Call(id=call.id, name=call.name, arguments=call.arguments) if call else None,
                id=part.id,
                data=part.data,
            )
        )
    return pieces


def _marks(told: Any) -> dict[str, str]:
    """Texts by token id, as adapters leave them in `meta`; whatever else lies there is not ours."""
    texts = told.items() if isinstance(told, dict) else ()
    return {str(id): text for id, text in texts if isinstance(text, str)}


def tokens(desk: Desk, ask: p.TokensOf, id: str) -> s.TokenBlocks:
    """The tokens of a window of messages, with every stream."""
    found = desk.messages(id, ask.first, ask.first + ask.count)
    return s.TokenBlocks(
        messages=[
            s.TokenBlock(
                n=n,
                ids=None if m.tokens.ids is None else to_list(m.tokens.ids, True),
                ends=None if m.tokens.ends is None else to_list(m.tokens.ends, True),
                marks=_marks(m.meta.get("marks")),
                streams={
                    name: [number(v) for v in to_list(values, is_int(name))]
                    for name, values in m.tokens.streams.items()
                },
            )
            for n, m in enumerate(found, ask.first)
            if m.tokens is not None
        ]
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
    buckets = [_finite(values[i : i + per]) for i in range(0, len(values), per)]
    known = [(v, i) for i, v in enumerate(values) if v is not None and math.isfinite(v)]
    low, high = (min(known), max(known, key=lambda k: (k[0], -k[1]))) if known else (None, None)

    def place(at: int) -> tuple[int, int]:
        i = max(k for k, begin in enumerate(starts) if begin <= at)
        return numbers[i], at - starts[i]

    return s.Strip(
        stream=ask.stream,
        tokens=len(values),
        missing=sum(v is None for v in values),
        per=per,
        low=[min(b) if b else None for b in buckets],
        high=[max(b) if b else None for b in buckets],
        mean=[sum(b) / len(b) if b else None for b in buckets],
        messages=numbers,
        starts=starts,
        lowest=low[0] if low else None,
        highest=high[0] if high else None,
        average=sum(v for v, _ in known) / len(known) if known else None,
        lowest_at=place(low[1]) if low else None,
        highest_at=place(high[1]) if high else None,
    )


def _finite(values: list[float | None]) -> list[float]:
    return [v for v in values if v is not None and math.isfinite(v)]


def _stream(tokens: Tokens, name: str) -> list[float | None] | None:
    """A recorded stream, or one made of two others."""
    pairs = {"ratio": ("train_logprob", "logprob"), "ref_gap": ("logprob", "ref_logprob")}
    if name not in pairs:
        values = tokens.streams.get(name)
        return None if values is None else list(to_list(values, is_int(name)))
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
    id = desk.find(id)
    found = desk.reader.spans(id)
    versions = _versions(desk, id)
    return s.Spans(
        spans=[
            s.SpanRow(
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
                version=_version_of(span, versions),
            )
            for span in found[:SPANS]
        ],
        turns=_turns(desk, id, versions),
        cut=max(0, len(found) - SPANS),
    )


def _versions(desk: Desk, id: str) -> dict[int, list[int]]:
    """The policy versions that wrote each message, in order. Long rollouts are not read whole."""
    if len(desk.outline(id)) > SHORT:
        return {}
    found = {}
    for n, message in enumerate(desk.rollout(id).messages):
        stream = message.tokens.streams.get("version") if message.tokens is not None else None
        if stream is not None:
            known = [v for v in to_list(stream, True) if v is not None]
            found[n] = list(dict.fromkeys(known))
    return found


def _version_of(span: Span, versions: dict[int, list[int]]) -> int | None:
    """As the span says; else of its message, or the last one written before it."""
    for name in ("version", "policy_version"):
        if isinstance(said := span.meta.get(name), int):
            return said
    if span.message is None:
        return None
    before = [n for n in versions if n <= span.message]
    return versions[max(before)][-1] if before else None


def _turns(desk: Desk, id: str, versions: dict[int, list[int]]) -> list[s.TurnRow]:
    if len(desk.outline(id)) > SHORT:
        return []
    return [
        s.TurnRow(message=n, name=m.name, start=m.start, end=m.end, versions=versions.get(n, []))
        for n, m in enumerate(desk.rollout(id).messages)
        if m.start is not None and m.end is not None and (m.sampled or m.role == "assistant")
    ]


def neighbours(desk: Desk, _: p.Nothing, id: str) -> s.Neighbours:
    """Where a rollout stands: its siblings, the groups beside it, its task at other steps."""
    id = desk.find(id)
    siblings = [thin(row) for row in desk.store.group(id)]
    beside = desk.store.neighbours(id)
    me = next((row for row in siblings if row.id == id), None)
    earlier, later = _other_steps(desk, me) if me else (None, None)
    return s.Neighbours(
        siblings=siblings,
        previous_group=beside.before,
        next_group=beside.after,
        earlier=earlier,
        later=later,
    )


def _other_steps(desk: Desk, me: s.Row) -> tuple[str | None, str | None]:
    """The same task at the nearest other steps of the run: the same place, else the first."""
    if me.task is None or me.step is None:
        return None, None
    found = desk.store.task_history(me.task, me.dataset)
    cells = [c for c in found if (c.run, c.split) == (me.run, me.split) and c.step is not None]
    before = [c for c in cells if c.step < me.step]  # type: ignore[operator]
    after = [c for c in cells if c.step > me.step]  # type: ignore[operator]

    def one(cells: list[Any], step: int | None) -> str | None:
        at = [c for c in cells if c.step == step]
        same = [c for c in at if c.index == me.index]
        return str((same or at)[0].id) if at else None

    return (
        one(before, max((c.step or 0 for c in before), default=None)),
        one(after, min((c.step or 0 for c in after), default=None)),
    )


def compare(desk: Desk, ask: p.Compare) -> s.Compared:
    """Two or more rollouts, aligned by turn; the first is what the others are held against."""
    ids = [id for id in ask.ids.split(",") if id]
    if not 2 <= len(ids) <= 8:
        raise ValueError(f"compare takes two to eight ids, not {len(ids)}")
    rollouts = [desk.rollout(id) for id in ids]
    alignments = [align(rollouts[0], other) for other in rollouts[1:]]
    return _compared(desk, ids, rollouts, alignments)


def _compared(
    desk: Desk, ids: list[str], rollouts: list[Rollout], alignments: list[Any]
) -> s.Compared:
    rows = _aligned_rows(rollouts, alignments)
    first = next((i for i, row in enumerate(rows) if not row.same), None)
    offsets = [a.divergence.offset for a in alignments if a.divergence is not None]
    fields: dict[str, list[Any]] = {}
    for place, alignment in enumerate(alignments, 1):
        for field in alignment.fields:
            values = fields.setdefault(field.name, [field.a] * (len(alignments) + 1))
            values[place] = field.b
    return s.Compared(
        rows=[_row(desk, r.id or id) for id, r in zip(ids, rollouts, strict=True)],
        aligned=rows,
        first=None if first is None else s.Divergence(row=first, char=min(offsets, default=0)),
        differences=[
            s.Difference(key=name, values=[_json_safe(v) for v in values])
            for name, values in fields.items()
        ],
    )


def _json_safe(value: Any) -> Any:
    return number(value) if isinstance(value, float) else msgspec.to_builtins(value)


def _aligned_rows(rollouts: list[Rollout], alignments: list[Any]) -> list[s.Aligned]:
    """One row per message of the first rollout, and between them what only others have."""
    base = rollouts[0].messages
    partner: list[dict[int, Any]] = []
    extra: list[dict[int, list[int]]] = []
    for alignment in alignments:
        pairs: dict[int, Any] = {}
        loose: dict[int, list[int]] = {}
        last = -1
        for pair in alignment.pairs:
            if pair.a is None:
                loose.setdefault(last, []).append(pair.b)
            else:
                pairs[pair.a] = pair
                last = pair.a
        partner.append(pairs)
        extra.append(loose)
    rows = _extras(rollouts, extra, -1)
    for n, message in enumerate(base):
        pairs_here = [pairs.get(n) for pairs in partner]
        same = all(pair is not None and pair.same for pair in pairs_here)
        differing = next((q for q in pairs_here if q is not None and not q.same and q.pieces), None)
        mine = _words(differing.pieces, "only_a") if differing else _whole(message)
        sides = [s.Side(n=n, role=message.role, name=message.name, words=mine)]
        for other, pair in zip(rollouts[1:], pairs_here, strict=True):
            if pair is None or pair.b is None:
                sides.append(s.Side())
                continue
            theirs = other.messages[pair.b]
            words = _words(pair.pieces, "only_b") if pair.pieces else _whole(theirs)
            sides.append(s.Side(n=pair.b, role=theirs.role, name=theirs.name, words=words))
        rows.append(s.Aligned(same=same, sides=sides))
        rows += _extras(rollouts, extra, n)
    return rows


def _extras(
    rollouts: list[Rollout], extra: list[dict[int, list[int]]], after: int
) -> list[s.Aligned]:
    """Messages that the first rollout has not, in rows of their own, side by side."""
    lists = [loose.get(after, []) for loose in extra]
    rows = []
    for place in range(max((len(found) for found in lists), default=0)):
        sides = [s.Side()]
        for other, found in zip(rollouts[1:], lists, strict=True):
            if place >= len(found):
                sides.append(s.Side())
                continue
            message = other.messages[found[place]]
            sides.append(
                s.Side(n=found[place], role=message.role, name=message.name, words=_whole(message))
            )
        rows.append(s.Aligned(same=False, sides=sides))
    return rows


SHOWN = 60_000
"""Characters of one message that a comparison carries."""


def _whole(message: Message) -> list[s.Words]:
    return [s.Words(same=True, text=text_of(message)[:SHOWN])]


def _words(pieces: list[Words], own: str) -> list[s.Words]:
    shown, words = 0, []
    for piece in pieces:
        if piece.kind in ("same", own) and shown < SHOWN:
            words.append(s.Words(same=piece.kind == "same", text=piece.text[: SHOWN - shown]))
            shown += len(piece.text)
    return words


def hits(desk: Desk, ask: p.HitsOf, id: str) -> s.Hits:
    """Where the query's text terms, or `find`, stand in this rollout."""
    rollout = desk.rollout(id)
    found = find_hits(rollout, ask.q, ask.find)
    return s.Hits(hits=found)
