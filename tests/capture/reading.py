"""Reading back what was written, straight from the live logs and writers' files; and runs with
small limits, so that something happens to them soon."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rollscope.capture.run import Run
from rollscope.capture.setup import resolve
from rollscope.store import frames, paths, writers
from rollscope.store.write.log import Limits


def quick_run(beat: float = writers.BEAT, **limits: Any) -> Run:
    setup = resolve(
        "p", "r", dir=None, config=None, sample=None, redact=None, sinks=None, worker=None
    )
    run = Run(setup._replace(limits=Limits(**{"seal": False, **limits}), beat=beat))
    run.start()
    return run


def wait_for(condition: Callable[[], object]) -> None:
    """Until it holds: what is written in the background comes when it comes."""
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def lines(store: Path) -> list[dict[str, Any]]:
    """Every line of every live log of the store; damage is an error here."""
    found = []
    for path in sorted(store.rglob("live/*" + paths.LOG_ENDING)):
        for frame in frames.scan(path):
            assert frame.error is None, f"{path}: {frame}"
            found += [json.loads(line) for line in frame.lines()]
    return found


def good_lines(store: Path) -> list[dict[str, Any]]:
    """The same, but a last frame that is cut off (its writer was killed) is left out."""
    found = []
    for path in sorted(store.rglob("live/*" + paths.LOG_ENDING)):
        for frame in frames.scan(path):
            assert frame.error in (None, frames.CUT_OFF), f"{path}: {frame}"
            found += [json.loads(line) for line in frame.lines()]
    return found


def rollouts(store: Path) -> list[dict[str, Any]]:
    """Each rollout once, its messages and spans joined, as a reader would."""
    heads: dict[str, dict[str, Any]] = {}
    messages: dict[str, dict[int, Any]] = {}
    spans: dict[str, list[Any]] = {}
    for line in lines(store):
        body = line.get("rollout") or line.get("more")
        if body is None:
            continue
        if "rollout" in line:
            heads[body["id"]] = {**body, "open": line.get("open", False)}
        for n, message in enumerate(body.get("messages", []), body.get("first", 0)):
            messages.setdefault(body["id"], {})[n] = message
        spans.setdefault(body["id"], []).extend(body.get("spans", []))
    return [
        {**head, "messages": [m for _, m in sorted(messages.get(id, {}).items())],
         "spans": spans.get(id, [])}
        for id, head in heads.items()
    ]  # fmt: skip


def facts(store: Path) -> list[dict[str, Any]]:
    return [fact for line in lines(store) for fact in line.get("facts", [])]


def infos(store: Path) -> list[writers.WriterInfo]:
    """Every writer's file of the store."""
    return [
        info
        for path in sorted(store.rglob("writers/*.json"))
        if (info := writers.read_info(path)) is not None
    ]
