"""What AReaL writes itself with `rollout.dump_to_file`: one file a task, one line a row.

    .../logs/<user>/<experiment>/<trial>/{rollout,eval-rollout}/<version>/<task>.jsonl

Text only, no tokens. Where one turn ends and the next begins is told by `segments` (AReaL after
1.0.4), else by the chat template's headers, which the text still has. Rows whose last token the
policy did not write are missing: AReaL leaves them out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...model import Message, Rollout, prompt_task
from ...model.conversation import prompt_size
from ...model.problem import Problem
from .._lines import first_record, records
from .._messages import split_text

_OWN = {"task_id", "sample_idx", "prompt_len", "tail_version", "reward", "prompt", "completion"}
_SPLITS = {"rollout": "train", "eval-rollout": "eval"}


def recognise(path: str | Path) -> bool:
    """Is this one of AReaL's dumps, or a directory of them?"""
    file = next(_files(Path(path)), None)
    return file is not None and first_record(file).keys() >= _OWN


def read(path: str | Path) -> Iterator[Rollout | Problem]:
    """Every rollout of a file, or of all files below a directory."""
    for file in _files(Path(path)):
        for number, row in enumerate(records(file), 1):
            if isinstance(row, Problem):
                yield row
            elif row.keys() >= _OWN:
                yield _rollout(row, file)
            else:
                missing = ", ".join(sorted(_OWN - row.keys()))
                yield Problem(file, number, f"no row of an AReaL dump: it has no {missing}")


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    found = [p for p in path.rglob("*.jsonl") if p.parent.name.lstrip("-").isdecimal()]
    yield from sorted(found, key=lambda p: (p.parent.parent, int(p.parent.name), p.name))


def _rollout(row: dict[str, Any], file: Path) -> Rollout:
    kind = file.parent.parent.name
    split = _SPLITS.get(kind)
    oldest, newest = row.get("head_version", -1), row["tail_version"]
    original = row.get("original_reward")
    rollout = Rollout(
        key=f"areal/{split}/{newest}/{row['task_id']}/{row['sample_idx']}",
        split=split,
        # The weights are numbered by the steps they have been trained for.
        step=newest,
        group=f"{split}/{newest}/{row['task_id']}",
        index=row["sample_idx"],
        # 1.0.4 writes -1 always: it counts the prompt's tokens too.
        policy_version=oldest if oldest >= 0 else newest,
        reward=row["reward"] if original is None else original,
        fate="scored",
        messages=_messages(row),
        meta={k: v for k, v in row.items() if k not in _OWN | {"segments", "original_reward"}},
    )
    if original is not None:
        rollout.rewards["normalised"] = row["reward"]
    rollout.task = prompt_task(_asked(rollout.messages) or row["prompt"])
    if split is not None and len(file.parents) > 4:
        rollout.project, rollout.run = file.parents[3].name, file.parents[2].name
    return rollout


def _messages(row: dict[str, Any]) -> list[Message]:
    segments = row.get("segments")
    if segments:
        messages: list[Message] = []
        for segment in segments:
            if segment["role"] == "gen":
                messages = _answered(messages, segment["text"])
            else:
                messages += _given(split_text(segment["text"]))
        return messages
    completion = split_text(row["completion"])
    if len(completion) > 1:
        # Several turns: 1.0.4 cuts prompt from completion by a count that is wrong for them.
        return split_text(row["prompt"] + row["completion"])
    return _answered(_given(split_text(row["prompt"])), row["completion"])


def _given(messages: list[Message]) -> list[Message]:
    for message in messages:
        message.sampled = False
    return messages


def _answered(messages: list[Message], text: str) -> list[Message]:
    """What the policy wrote, after the header that the template opened for it."""
    answer = split_text(text)[0]
    before = answer.meta.get("before", "")
    if messages and messages[-1].role == "assistant" and not messages[-1].content:
        before = messages.pop().meta.get("before", "") + before
    meta = {**answer.meta, "before": before} if before else answer.meta
    return [*messages, Message(role="assistant", content=answer.content, sampled=True, meta=meta)]


def _asked(messages: list[Message]) -> str:
    return "\n".join(str(message.content) for message in messages[: prompt_size(messages)])
