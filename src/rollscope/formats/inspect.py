"""Inspect logs: `.eval` (a zip of JSON members) and `.json`, one rollout per sample.

Large strings lie in `attachments` and are put back. Values "C", "I", "P", "N" become the
numbers that Inspect's own `value_to_float` gives them; the letter stays in `meta`.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from ..adapters._lines import LARGEST, MB, TORN, decoded, zstd
from ..model import Error, Message, Rollout, Span
from ..model.chat import from_chat
from ..model.problem import Problem
from . import _files
from ._files import ODD_OR_TORN, seconds, unread

_ODD = (NotImplementedError, *ODD_OR_TORN)
_ZSTD = 93
"""The number of this way of compression in a zip."""
_LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
_ATTACHED = "attachment://"
_USED = {
    "id", "epoch", "messages", "scores", "target", "events", "attachments", "started_at",
    "completed_at", "error", "limit",
}  # fmt: skip


def recognise(path: Path) -> bool:
    if path.is_file() and path.suffix == ".eval":
        with path.open("rb") as file:
            return file.read(2) == b"PK"  # also a torn one, so that it is told
    body = _files.first_object(path, ".json")
    return "eval" in body and ("samples" in body or "plan" in body)


def read(path: Path) -> Iterator[Rollout | Problem]:
    try:
        yield from _read_zip(path) if path.suffix == ".eval" else _read_json(path)
    except (ValueError, KeyError, zipfile.BadZipFile, *TORN) as error:
        yield Problem(path, None, f"not an Inspect log, or a torn one: {error}")


def convert(sample: Mapping[str, Any], header: Mapping[str, Any]) -> Rollout:
    """One sample, and the log's header: task, model and dataset."""
    attached = sample.get("attachments") or {}
    about = header.get("eval") or {}
    log = about.get("eval_id") or about.get("run_id") or ""
    scores = sample.get("scores") or {}
    values = {name: _value(score.get("value")) for name, score in scores.items()}
    rewards, odd = _parts(values)
    error, limit = sample.get("error"), sample.get("limit")
    output = sample.get("output") or {}
    choices = output.get("choices") or [{}]
    return Rollout(
        key=f"{log}/{sample.get('id')}/{sample.get('epoch')}",
        split="eval",
        dataset=(about.get("dataset") or {}).get("name") or about.get("task"),
        task=str(sample.get("id")),
        # Epochs of one log are siblings; the same sample in another log is another model's.
        group=f"{log}/{sample.get('id')}" if log else None,
        index=sample.get("epoch"),
        environment=about.get("task"),
        messages=[_message(m, attached) for m in sample.get("messages") or ()],
        spans=list(_spans(sample.get("events") or (), attached)),
        reward=next(iter(rewards.values()), None),
        rewards=rewards,
        reward_texts={n: s["explanation"] for n, s in scores.items() if s.get("explanation")},
        reference=sample.get("target") or None,
        stop_reason=(limit or {}).get("type") or choices[0].get("stop_reason"),
        truncated=True if limit else None,
        fate="failed" if error else ("scored" if scores else None),
        error=_error(error, limit),
        start=seconds(sample.get("started_at")),
        end=seconds(sample.get("completed_at")),
        sampling=about.get("model_generate_config") or {},
        meta=_put_back(
            {
                **unread(sample, _USED),
                **({"limit": limit} if limit else {}),
                **({"score_values": odd} if odd else {}),
                "scores": {n: unread(s, ("explanation",)) for n, s in scores.items()},
                "model": about.get("model"),
                "log": {k: about[k] for k in ("eval_id", "run_id", "created") if k in about},
            },
            attached,
        ),
    )


def _message(body: Mapping[str, Any], attached: Mapping[str, str]) -> Message:
    message = from_chat(_put_back(body, attached))
    if message.role == "assistant":
        message.sampled = message.meta.get("source") != "input"
    return message


def _put_back(value: Any, attached: Mapping[str, str]) -> Any:
    """References to attachments replaced by what they stand for."""
    if isinstance(value, str):
        if value.startswith(_ATTACHED):
            return attached.get(value[len(_ATTACHED) :], value)
        return value
    if isinstance(value, Mapping):
        return {k: _put_back(v, attached) for k, v in value.items()}
    if isinstance(value, list):
        return [_put_back(v, attached) for v in value]
    return value


def _spans(events: Any, attached: Mapping[str, str]) -> Iterator[Span]:
    """The tree of spans, and the calls of models, tools and sandboxes inside it."""
    ends = {e.get("id"): e.get("timestamp") for e in events if e.get("event") == "span_end"}
    for number, event in enumerate(events):
        kind = event.get("event")
        if kind == "span_begin":
            yield Span(
                name=str(event.get("name") or event.get("type") or "span"),
                id=event.get("id"),
                parent=event.get("parent_id"),
                start=seconds(event.get("timestamp")),
                end=seconds(ends.get(event.get("id"))),
            )
        elif kind in ("model", "tool", "sandbox"):
            yield _call(kind, number, event, attached)


def _call(kind: str, number: int, event: Mapping[str, Any], attached: Mapping[str, str]) -> Span:
    inputs: Any = None  # a model's input is the conversation: it is not written twice
    outputs: Any = event.get("result")
    if kind == "tool":
        inputs = event.get("arguments")
    elif kind == "sandbox":
        inputs, outputs = event.get("cmd") or event.get("file"), event.get("output")
    elif kind == "model":
        outputs = {"usage": (event.get("output") or {}).get("usage")}
    start, end = seconds(event.get("timestamp")), seconds(event.get("completed"))
    took = (event.get("output") or {}).get("time") if kind == "model" else None
    if end is None and start is not None and isinstance(took, (int, float)):
        end = start + took  # older logs say only how long a model took
    failed = event.get("error")
    text = failed.get("message") if isinstance(failed, Mapping) else failed
    return Span(
        name=str(event.get("function") or event.get("action") or event.get("model") or kind),
        id=str(event.get("uuid") or f"event-{number}"),
        parent=event.get("span_id"),
        inputs=_put_back(inputs, attached),
        outputs=_put_back(outputs, attached),
        error=None if not text else Error(kind="tool" if kind == "tool" else None, text=str(text)),
        start=start,
        end=end,
        meta={"event": kind},
    )


def _value(value: Any) -> Any:
    if isinstance(value, str) and value in _LETTERS:
        return _LETTERS[value]
    return float(value) if isinstance(value, (bool, int, float)) else value


def _parts(values: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, Any]]:
    """Scores that are numbers, by name (one of several values gets its own), and the others."""
    numbers: dict[str, float] = {}
    odd: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, float):
            numbers[name] = value
        elif isinstance(value, Mapping):
            found, rest = _parts({f"{name}.{k}": _value(v) for k, v in value.items()})
            numbers |= found
            odd |= rest
        else:
            odd[name] = value
    return numbers, odd


def _error(error: Any, limit: Any) -> Error | None:
    if error:
        return Error(kind="infrastructure", type="error", text=str(error.get("message") or error))
    return Error(kind="limit", type=str(limit.get("type")), text=str(limit)) if limit else None


def _read_zip(file: Path) -> Iterator[Rollout | Problem]:
    with zipfile.ZipFile(file) as log:
        names = log.namelist()
        start = "header.json" if "header.json" in names else "_journal/start.json"
        header = _member(log, start)
        for name in names:
            if not name.startswith("samples/"):
                continue
            try:
                yield convert(_member(log, name), header)
            except _ODD as error:
                yield Problem(file, None, f"{name}: {error!r}")


def _member(log: zipfile.ZipFile, name: str) -> Any:
    """A member of the zip. A few MB of it may be many GB of zeros."""
    about = log.getinfo(name)
    with _zstd_member(log, about) if about.compress_type == _ZSTD else log.open(name) as member:
        data = member.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"it has more than {LARGEST // MB} MB")
    return decoded(data)[0]


def _zstd_member(log: zipfile.ZipFile, about: zipfile.ZipInfo) -> IO[bytes]:
    """What Inspect compresses with Zstandard. Python's own module reads it from 3.14 on."""
    file = log.fp
    assert file is not None
    file.seek(about.header_offset + 26)  # the local header repeats the name, with other extras
    name, extra = struct.unpack("<HH", file.read(4))
    file.seek(name + extra, os.SEEK_CUR)
    return zstd.open(io.BytesIO(file.read(about.compress_size)), "rb")  # type: ignore[return-value]


def _read_json(file: Path) -> Iterator[Rollout | Problem]:
    (header,) = _files.around(file, ["samples"]) or [{}]
    if "eval" not in header:
        raise ValueError("it has no eval")
    for number, sample in _files.entries(file, ["samples"]):
        try:
            yield convert(sample, header)
        except _ODD as error:
            yield Problem(file, None, f"sample {number}: {error!r}")
