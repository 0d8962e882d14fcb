"""Atropos: groups of scored rollouts, as JSON lines, and the HTML page that is made of them.

Read from the source of NousResearch/atropos, commit 296a0bc: `atroposlib/envs/base.py`
(`ScoredDataGroup`, `handle_send_to_api` with `data_path_to_save_groups`),
`atroposlib/utils/tokenize_for_trainer.py` (masks), `envs/server_handling/managed_server.py`
(logprobs), and `atroposlib/frontend/jsonl2html.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..adapters._lines import TORN, opened
from ..adapters._messages import split, split_text
from ..model import Message, Rollout, prompt_task
from ..model.chat import from_chat
from ..model.conversation import text
from ..model.problem import Problem
from . import _files, _flat
from ._atropos_html import Item, items

_MASKED = -100
_STREAMS = {
    "inference_logprobs": "logprob",
    "ref_logprobs": "ref_logprob",
    "advantages": "advantage",
}
_OWN = {"tokens", "masks", "scores", "messages", "generation_params", "overrides", *_STREAMS}
_NOT_KEPT = ("distill_token_ids", "distill_logprobs")
"""The likeliest tokens of another model at every place: there is no room for lists of lists."""
_POLICY = ("assistant", "agent")
_HTML = (".html", ".htm")


def recognise(path: Path) -> bool:
    if path.is_file() and _files.plain_suffix(path) in _HTML:
        with opened(path) as file:
            head = file.read(1 << 14)
        return b'id="groups-container"' in head and b"Rendered Messages" in head
    return _files.first_object(path, ".jsonl").keys() >= {"tokens", "masks", "scores"}


def read(path: Path) -> Iterator[Rollout | Problem]:
    label = _files.label(path)
    if _files.plain_suffix(path) in _HTML:
        return _read_html(path, label)

    def group(found: _files.Entry) -> Iterator[Rollout | Problem]:
        for item in convert(found.value, f"{label}/{found.number}"):
            yield found.problem(path, item) if isinstance(item, str) else item

    return _files.rollouts(path, "a group of Atropos", group)


def convert(group: Mapping[str, Any], name: str) -> Iterator[Rollout | str]:
    """The rollouts of one group, and what could not be told of them."""
    size = len(group["scores"])
    for index in range(size):
        own = {
            key: values[index] if isinstance(values, list) and len(values) == size else values
            for key, values in group.items()
        }
        rollout = _rollout(own)
        rollout.group, rollout.index = name, index
        if problem := _add_tokens(rollout.messages, own):
            yield f"rollout {index}: {problem}"
        yield rollout


def _rollout(own: Mapping[str, Any]) -> Rollout:
    said = own.get("messages")
    if isinstance(said, str):
        messages = split_text(said)
    else:
        messages = [from_chat(message) for message in said or ()]
    for message in messages:
        message.sampled = message.role in _POLICY
    count = len(own["tokens"])
    asked = "\n".join(text(m) for m in messages[:-1]) or str(own["tokens"][:100])
    rest = {k: v for k, v in own.items() if k not in (*_OWN, *_NOT_KEPT) and v not in (None, {})}
    if own.get("overrides"):
        rest["overrides"] = own["overrides"]
    return Rollout(
        messages=messages,
        task=prompt_task(asked),
        reward=float(own["scores"]),
        fate="scored",
        sampling=own.get("generation_params") or {},
        meta={k: v for k, v in rest.items() if not _is_stream(v, count)},
    )


def _add_tokens(messages: list[Message], own: Mapping[str, Any]) -> str | None:
    ids = own["tokens"]
    ours = [mark != _MASKED for mark in own["masks"]]
    streams = {
        _STREAMS.get(key, key): values
        for key, values in own.items()
        if key not in ("tokens", "masks") and _is_stream(values, len(ids))
    }
    if messages:
        return _flat.lay(messages, ids, ours, streams)
    told: list[str] = []
    messages += split(ids, sampled=ours, streams=streams, problems=told)
    return "; ".join(told) or None


def _is_stream(values: Any, count: int) -> bool:
    is_row = isinstance(values, list) and len(values) == count > 0
    return is_row and all(isinstance(value, (int, float)) for value in values[:3])


def _read_html(path: Path, label: str) -> Iterator[Rollout | Problem]:
    try:
        with opened(path) as file:
            for item in items(file):
                yield _of_page(item, label)
    except (ValueError, *TORN) as error:
        yield Problem(path, None, f"the page cannot be read further: {error}")


def _of_page(item: Item, label: str) -> Rollout:
    """A rollout of the page: what Markdown was rendered to, without its marks."""
    messages = item.messages()
    if not messages:
        messages = split_text(item.text)
    for message in messages:
        message.sampled = message.role in _POLICY
    try:
        reward: float | None = float(item.score)
    except ValueError:
        reward = None
    return Rollout(
        messages=messages,
        task=prompt_task("\n".join(text(m) for m in messages[:-1]) or f"{label}/{item.group}"),
        group=f"{label}/{item.group}",
        index=item.number,
        reward=reward,
        meta={"rendered": "read from HTML: Markdown marks and tokens are not in it"},
    )
