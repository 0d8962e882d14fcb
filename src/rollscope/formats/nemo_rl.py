"""NeMo-RL's `train_data_step*.jsonl` and `val_data_step*.jsonl`, in its log directory.

Read from the source of NVIDIA-NeMo/RL, commit 7ea279a: `nemo_rl/utils/logger.py`
(`log_batched_dict_as_jsonl`: every value is a list of one, because a batch is cut into slices of
one row) and the log data of `nemo_rl/algorithms/grpo.py`, `grpo_sync.py`, `ppo.py` and
`distillation.py`.

Training rows have the texts of the messages without their roles, and ids, masks and streams of the
whole row, padded. The policy wrote what the mask says. Neither task nor group is in the file:
rollouts of one step that were asked the same are taken as a group.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..adapters._messages import split
from ..model import Message, Rollout, prompt_task
from ..model.chat import from_chat
from ..model.conversation import text
from ..model.problem import Problem
from . import _files, _flat

_NAME = re.compile(r"(train|val)_data_step(\d+)")
_SPLITS = {"train": "train", "val": "eval"}
_STREAMS = {
    "generation_logprobs": "logprob",
    "prev_logprobs": "train_logprob",
    "advantages": "advantage",
}
_USED = {
    "idx", "content", "rewards", "filtered_rewards", "input_lengths", "token_ids",
    "token_loss_mask", "sample_loss_mask", "agent_ref", *_STREAMS,
}  # fmt: skip


def recognise(path: Path) -> bool:
    body = _files.first_object(path, ".jsonl")
    is_row = "idx" in body and isinstance(body.get("content"), list)
    return is_row and bool(body.keys() & {"rewards", "input_lengths"})


def read(path: Path) -> Iterator[Rollout | Problem]:
    found = _NAME.search(path.name)
    split_name = _SPLITS[found[1]] if found else None
    step = int(found[2]) if found else None
    seen: dict[str, int] = {}

    def made(row: _files.Entry) -> Iterator[Rollout | Problem]:
        rollout, problem = convert(row.value, split_name, step)
        if problem is not None:
            yield row.problem(path, problem)
        rollout.group = f"{split_name}/{step}/{rollout.task}"
        rollout.index = seen.get(rollout.group, 0)
        seen[rollout.group] = rollout.index + 1
        yield rollout

    return _files.rollouts(path, "a row of NeMo-RL", made)


def convert(
    body: Mapping[str, Any], split_name: str | None, step: int | None
) -> tuple[Rollout, str | None]:
    """One row, and what could not be told of it."""
    row = {name: value[0] if isinstance(value, list) else value for name, value in body.items()}
    # With dynamic sampling `rewards` are those of another batch, cut to the same length.
    reward = row.get("filtered_rewards", row.get("rewards"))
    agent = row.get("agent_ref")
    rollout = Rollout(
        key=f"{split_name}/{step}/{row['idx']}",
        step=step,
        split=split_name,
        reward=_files.number(reward),
        environment=agent.get("name") if isinstance(agent, Mapping) else agent,
        meta={k: v for k, v in row.items() if k not in _USED and v is not None},
    )
    problem = None
    if row["content"] and isinstance(row["content"][0], Mapping):
        rollout.messages = [from_chat(message) for message in row["content"]]
        for message in rollout.messages:
            message.sampled = message.role == "assistant"
    else:
        problem = _add_row(rollout, row)
    if split_name == "train" and "token_loss_mask" in row:
        _add_fate(rollout, row, step)
    asked = [text(message) for message in rollout.messages[: _first_answer(rollout)]]
    rollout.task = prompt_task("\n".join(asked) or str(row.get("token_ids") or row["idx"]))
    return rollout, problem


def _add_row(rollout: Rollout, row: Mapping[str, Any]) -> str | None:
    """Texts and ids of a training row. Who spoke is told by the mask; the prompt's turns have no
    roles in the file."""
    texts: list[Any] = row["content"] or []
    length = row.get("input_lengths")
    ids = (row.get("token_ids") or [])[:length]
    mask = row.get("token_loss_mask")
    if not ids or mask is None:
        rollout.messages = [Message(role="unknown", content=said or None) for said in texts]
        return None
    ours = [value != 0 for value in mask[: len(ids)]]
    streams = {ours_: row[theirs][: len(ids)] for theirs, ours_ in _STREAMS.items()
               if isinstance(row.get(theirs), list)}  # fmt: skip
    runs = sum(1 for n, mine in enumerate(ours) if n == 0 or mine != ours[n - 1])
    prompt = len(texts) - runs + 1  # every turn but the prompt's is one message of the file
    if ours[0] or prompt < 1:
        told: list[str] = []
        rollout.messages = split(ids, sampled=ours, streams=streams, problems=told)
        rollout.meta["content"] = texts
        told.append(f"{len(texts)} texts for {runs} turns of the mask: they are in meta.content")
        return "; ".join(told)
    rollout.messages = [
        Message(
            role="assistant" if n >= prompt and (n - prompt) % 2 == 0 else "unknown",
            content=said or None,
            sampled=n >= prompt and (n - prompt) % 2 == 0,
        )
        for n, said in enumerate(texts)
    ]
    _take_constant(rollout, streams, ours)
    return _flat.lay(rollout.messages, ids, ours, streams)


def _take_constant(rollout: Rollout, streams: dict[str, list[Any]], ours: list[bool]) -> None:
    """An advantage that is the same for every token is the rollout's."""
    values = {v for v, mine in zip(streams.get("advantage", ()), ours, strict=False) if mine}
    if len(values) == 1:
        rollout.advantage = float(values.pop())
        del streams["advantage"]


def _add_fate(rollout: Rollout, row: Mapping[str, Any], step: int | None) -> None:
    if row.get("sample_loss_mask") in (0, 0.0, False):
        rollout.fate, rollout.fate_reason = "masked", "sample_loss_mask is 0"
    else:
        rollout.fate, rollout.trained_step = "trained", step


def _first_answer(rollout: Rollout) -> int:
    return next((n for n, m in enumerate(rollout.messages) if m.sampled), len(rollout.messages))
