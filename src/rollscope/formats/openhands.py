"""OpenHands: streams of events, as evaluations, saved trajectories and the event store write them.

Read from the sources of All-Hands-AI/OpenHands, commit 156d068 (`openhands/events/serialization/`,
`openhands/memory/conversation_memory.py`, `evaluation/utils/shared.py`), and
OpenHands/software-agent-sdk, commit 611629e (`openhands-sdk/openhands/sdk/event/`). The two write
events of different shapes: `_openhands_v0` and `_openhands_v1` turn them into messages.

| what | where |
|---|---|
| evaluations | `output.jsonl`: a line an instance, with its events in `history` |
| a trajectory | a JSON list of events (`save_trajectory_path`, or downloaded from the page) |
| the event store | a folder `events/` with a file an event |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..adapters._lines import TORN
from ..model import Error, Rollout
from ..model.problem import Problem
from . import _files, _openhands_v0, _openhands_v1
from ._files import ODD, ODD_OR_TORN, seconds, unread

_EVENT = re.compile(r"(?:event-)?(\d+)(?:-[\w-]+)?\.json")
_USED = {"instance_id", "history", "error", "metrics", "test_result", "metadata", "instruction"}
_SAMPLING = ("temperature", "top_p", "top_k", "max_output_tokens", "seed", "reasoning_effort")


def recognise(path: Path) -> bool:
    if path.is_dir():
        found = _store(path)
        return bool(found) and _is_event(_files.first(found[0]))
    if _files.plain_suffix(path) == ".jsonl":
        return _files.first_object(path, ".jsonl").keys() >= {"instance_id", "history"}
    is_json = path.is_file() and _files.plain_suffix(path) == ".json"
    return is_json and _is_event(_files.first(path)) and _files.layout(path) == "list"


def files(folder: Path) -> list[Path]:
    """The events of a conversation, and what the store keeps beside them."""
    beside = [*folder.glob("*.json"), *folder.glob("event_cache/*")]
    return [*_store(folder), *beside]


def read(path: Path) -> Iterator[Rollout | Problem]:
    if path.is_dir():
        yield from _read_store(path)
    elif _files.plain_suffix(path) == ".jsonl":
        label = _files.label(path)
        yield from _files.rollouts(
            path, "an output of OpenHands", lambda found: [convert(found.value, label)]
        )
    else:
        try:
            yield _converted(_files.whole(path), _files.label(path))
        except ODD_OR_TORN as error:
            yield Problem(path, None, f"not a trajectory of OpenHands: {error!r}")


def _read_store(folder: Path) -> Iterator[Rollout | Problem]:
    events = []
    for file in _store(folder):
        try:
            events.append(_files.whole(file))
        except (ValueError, *TORN) as error:
            yield Problem(file, None, f"not an event of OpenHands: {error}")
    try:
        yield _converted(events, folder.name)
    except ODD as error:
        yield Problem(folder, None, f"not a conversation of OpenHands: {error!r}")


def convert(body: Mapping[str, Any], label: str) -> Rollout:
    """One instance of an evaluation. `label` tells its file from others."""
    about = body.get("metadata") or {}
    model = about.get("llm_config") or about.get("llm") or {}
    rollout = _converted(body["history"] or [], None)
    rollout.task = body["instance_id"]
    rollout.group = f"{label}/{body['instance_id']}"
    rollout.split = "eval"
    rollout.index = body.get("attempt")
    rollout.dataset = about.get("dataset")
    rollout.reward = _reward(body.get("test_result"), body.get("report"))
    rollout.sampling = {k: model[k] for k in _SAMPLING if model.get(k) is not None}
    if body.get("error"):
        rollout.error = Error(text=str(body["error"]))
    asked = body.get("instruction")
    said = {m.content for m in rollout.messages if isinstance(m.content, str)}
    rest = unread(body, _USED)
    settings = {k: v for k, v in about.items() if k not in ("llm_config", "llm") and v is not None}
    rollout.meta |= {
        **rest,
        **({"instruction": asked} if asked and asked not in said else {}),
        **({"model": model["model"]} if model.get("model") else {}),
        **({"metadata": settings} if settings else {}),
        **{k: body[k] for k in ("metrics", "test_result") if body.get(k)},
    }
    return rollout


def _converted(events: list[Any], name: str | None) -> Rollout:
    """A stream of events. Old evaluations write pairs of an action and its observation."""
    flat = [e for event in events for e in (event if isinstance(event, list) else [event])]
    if not any(_is_event(event) for event in flat) and flat:
        raise ValueError("none of its events is known")
    is_v1 = any(isinstance(event, Mapping) and "kind" in event for event in flat)
    found = (_openhands_v1 if is_v1 else _openhands_v0).messages(flat)
    times = [t for event in flat if (t := seconds(event.get("timestamp"))) is not None]
    return Rollout(
        key=name,
        messages=found.messages,
        environment="openhands",
        stop_reason=found.stop_reason,
        error=found.error,
        start=min(times, default=None),
        end=max(times, default=None),
        meta={"tools": found.tools} if found.tools else {},
    )


def _reward(*results: Any) -> float | None:
    """What graded it, where that is one number or yes or no: it is different for each benchmark."""
    for result in results:
        if isinstance(result, bool):
            return float(result)
        if isinstance(result, Mapping):
            for value in (result.get("report"), result.get("resolved"), result.get("score")):
                if isinstance(value, Mapping):
                    value = value.get("resolved")
                if isinstance(value, (bool, int, float)):
                    return float(value)
    return None


def _is_event(body: Any) -> bool:
    if isinstance(body, list):
        return bool(body) and _is_event(body[0])
    if not isinstance(body, Mapping) or not {"source", "timestamp"} <= body.keys():
        return False
    return bool(body.keys() & {"action", "observation", "kind"})


def _store(folder: Path) -> list[Path]:
    """The files of the events, in order."""
    found = [
        (int(name[1]), file)
        for file in (folder / "events").glob("*.json")
        if (name := _EVENT.fullmatch(file.name))
    ]
    return [file for _, file in sorted(found)]
