"""Answers about rollouts beside each other."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from ..checks import align
from ..checks.align import STEPS, Words, text_of
from ..model import Message, Rollout
from ..model.normalise import finite
from . import params as p
from . import shapes as s
from .desk import Desk
from .rows import thin


def compare(desk: Desk, ask: p.CompareOf) -> s.Compared:
    """Two or more rollouts, aligned by turn. The best comes first: the others are held against it,
    so that what is right is not marked as wrong."""
    ids = [id for id in ask.ids.split(",") if id]
    if not 2 <= len(ids) <= 8:
        raise ValueError(f"compare takes two to eight ids, not {len(ids)}")
    asked = [(id, desk.rollout(id)) for id in ids]
    best = max(asked, key=lambda one: _goodness(one[1]))
    ordered = [best, *(one for one in asked if one is not best)]
    rollouts = [rollout for _, rollout in ordered]
    steps = STEPS // (len(rollouts) - 1)
    alignments = [align(rollouts[0], other, steps) for other in rollouts[1:]]
    return _compared(desk, [id for id, _ in ordered], rollouts, alignments)


def _goodness(rollout: Rollout) -> float:
    reward = rollout.reward
    return reward if reward is not None and math.isfinite(reward) else -math.inf


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
        rows=[thin(desk.opened(r.id or id).row) for id, r in zip(ids, rollouts, strict=True)],
        aligned=rows,
        first=None if first is None else s.FirstDifference(row=first, char=min(offsets, default=0)),
        rough=any(pair.rough for a in alignments for pair in a.pairs),
        differences=[
            s.DifferingField(key=name, values=finite(msgspec.to_builtins(values)))
            for name, values in fields.items()
        ],
    )


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
        sides = [_side(n, message, mine)]
        for other, pair in zip(rollouts[1:], pairs_here, strict=True):
            if pair is None or pair.b is None:
                sides.append(s.Side())
                continue
            theirs = other.messages[pair.b]
            words = _words(pair.pieces, "only_b") if pair.pieces else _whole(theirs)
            sides.append(_side(pair.b, theirs, words))
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
            sides.append(_side(found[place], message, _whole(message)))
        rows.append(s.Aligned(same=False, sides=sides))
    return rows


def _side(n: int, message: Message, words: list[s.ShownWords]) -> s.Side:
    return s.Side(n=n, role=message.role, name=message.name, words=words)


AROUND = 1_000
"""Characters that are shown of equal text before and after what differs."""

OWN = 10_000
"""Characters that are shown of either end of a text that only one has."""

SHOWN = 200_000
"""Characters of one message that a comparison carries."""

PIECES = 1_000
"""And runs of equal or different text: nobody reads more, and each is an element of the page."""


def _whole(message: Message) -> list[s.ShownWords]:
    return _shown([(True, text_of(message))], OWN)


def _words(pieces: list[Words], own: str) -> list[s.ShownWords]:
    return _shown([(p.kind == "same", p.text) for p in pieces if p.kind in ("same", own)], AROUND)


def _shown(runs: list[tuple[bool, str]], around: int) -> list[s.ShownWords]:
    """What of it the page shows: long runs without their middle, and how long that is."""
    words: list[s.ShownWords] = []
    left = SHOWN
    for number, (same, text) in enumerate(runs):
        before = after = around if same else OWN
        if same and len(runs) > 1:
            before, after = before * (number > 0), after * (number < len(runs) - 1)
        if left < before + after or len(words) >= PIECES:
            rest = sum(len(run) for _, run in runs[number:])
            return [*words, s.ShownWords(same=same, skipped=rest)]
        kept = [text] if len(text) <= before + after else [text[:before], text[len(text) - after :]]
        left -= sum(map(len, kept))
        skipped = len(text) - sum(map(len, kept))
        middle = [s.ShownWords(same=same, skipped=skipped)] if skipped else []
        ends = [s.ShownWords(same=same, text=each) for each in kept]
        words += [w for w in (*ends[:1], *middle, *ends[1:]) if w.text or w.skipped]
    return words
