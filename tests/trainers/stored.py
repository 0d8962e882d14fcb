"""What lies in a store, read from its logs by nothing but the frame scanner and `fold`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from rollscope import capture
from rollscope.capture.problems import problems
from rollscope.model import Fact, Message, Rollout, Tokens, fold, wire
from rollscope.store import frames


class Stored:
    """All rollouts of a store with their facts folded in; facts without a rollout; metrics."""

    def __init__(self, root: Path) -> None:
        run = capture.active()
        if run is not None:
            run.finish()
        heads: dict[str, Rollout] = {}
        facts: dict[str, list[tuple[Fact, str]]] = {}
        self.metrics: dict[int | None, dict[str, float]] = {}
        self.projects: set[tuple[str, str]] = set()
        for log, line in _lines(root):
            if "log" in line:
                self.projects.add((line["log"]["project"], line["log"]["run"]))
            if "rollout" in line:
                head = _rollout(line["rollout"])
                assert head.id is not None and head.id not in heads, f"{head.key} is there twice"
                heads[head.id] = head
            for raw in line.get("facts", ()):
                fact = msgspec.convert(raw, Fact)
                facts.setdefault(fact.rollout, []).append((fact, log))
            if "metrics" in line:
                values = line["metrics"]["values"]
                self.metrics.setdefault(line["metrics"]["step"], {}).update(values)
        self.orphans = [f for id, found in facts.items() if id not in heads for f in found]
        self.rollouts = [fold(head, facts.get(id, ())) for id, head in heads.items()]

    def __iter__(self) -> Iterator[Rollout]:
        return iter(self.rollouts)

    def __len__(self) -> int:
        return len(self.rollouts)


def flat(rollout: Rollout, stream: str = "ids") -> list[Any]:
    """All tokens of a rollout, or one stream of them with None where it is not known."""
    out: list[Any] = []
    for message in rollout.messages:
        tokens = message.tokens
        if tokens is None:
            continue
        values = tokens.ids if stream == "ids" else tokens.streams.get(stream)
        out += values if values is not None else [None] * len(tokens)
    return out


def written(rollout: Rollout) -> list[str]:
    """What the policy said, message by message."""
    return [str(m.content) for m in rollout.messages if m.sampled]


def _lines(root: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(root.glob("*/*/live/*.jsonl.zst")):
        for frame in frames.scan(path):
            assert frame.error is None, frame.error
            for line in frame.lines():
                yield path.name, msgspec.json.decode(line)


def _rollout(raw: dict[str, Any]) -> Rollout:
    messages = [_message(m) for m in raw.pop("messages", ())]
    rollout = msgspec.convert(raw, Rollout)
    rollout.messages = messages
    return rollout


def _message(raw: dict[str, Any]) -> Message:
    tokens, parts = raw.pop("tokens", None), raw.pop("parts", None)
    text = raw.pop("content", None)
    message = msgspec.convert(raw, Message)
    message.content = wire.join_parts(text or "", parts) if parts is not None else text
    if tokens is not None:
        streams = tokens.pop("streams", {})
        message.tokens = Tokens(tokens.pop("ids"), tokens.pop("ends", None), {**tokens, **streams})
    return message


def complaints() -> list[str]:
    """Everything that was reported in this process, in words."""
    return [problem.text for problem in problems.list({})]
