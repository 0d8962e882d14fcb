"""Calls of the model that an agent made, to one rollout: a tree of messages. Pure.

AReaL trains on one row per call, each with the whole conversation before it as its prompt.
Tokens are what the model saw; the structured messages, where they are known, name tools and
tool calls.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...model import Message, Rollout
from ...model.chat import from_chat
from ...model.conversation import path_to
from .._arrays import number
from .._rows import Joined, TrainingRow, join
from .rows import digest, first_version, rows_of, versions, written

Places = tuple[range, ...]
"""Where a row's tokens lie among those of its rollout, piece by piece. A place for each token would
take 40 bytes a token, and rows are remembered until they are trained on."""


class Episode(NamedTuple):
    """A rollout, and for each of its training rows a digest and where its tokens lie."""

    rollout: Rollout
    rows: list[tuple[str, Places]]
    total: int


def from_interactions(
    interactions: Sequence[Any],
    chats: Mapping[str, Sequence[Mapping[str, Any]]],
    tokenizer: Any,
    problems: list[str],
) -> Episode:
    last = interactions[-1]
    original = getattr(last, "original_reward", None)
    rollout = Rollout(fate="scored", reward=number(last.reward if original is None else original))
    if original is not None and last.reward is not None:
        rollout.rewards["normalised"] = float(last.reward)
    said = [_said(interaction, chats) for interaction in interactions]
    if not all(interaction.has_tensor_data for interaction in interactions):
        rollout.messages, ends = chat_tree(said)
        _mark(rollout.messages, ends, interactions)
        return Episode(rollout, [], 0)
    rows = [_interaction_row(interaction) for interaction in interactions]
    responses = [getattr(i, "model_response", None) for i in interactions]
    tokenizer = tokenizer or next((r.tokenizer for r in responses if r is not None), None)
    joined = join([row for row, _ in rows], tokenizer=tokenizer, problems=problems)
    for chat, end in zip(said, joined.last, strict=True):
        take_names([joined.messages[n] for n in path_to(joined.messages, end)], chat)
    _mark(joined.messages, joined.last, interactions)
    rollout.messages = joined.messages
    rollout.policy_version = first_version(joined.messages)
    places = [
        (name, _places(joined, end, len(row.ids)))
        for (row, name), end in zip(rows, joined.last, strict=True)
    ]
    return Episode(rollout, places, joined.total)


def _interaction_row(interaction: Any) -> tuple[TrainingRow, str]:
    """An interaction as a training row, and the digest of what AReaL will train on."""
    trained = rows_of(interaction.to_tensor_dict())[0]
    ids = trained["input_ids"].tolist()
    name = digest(ids, trained.get("versions"), trained.get("logprobs"))
    mask = trained["loss_mask"].tolist()
    prompt = mask.index(1) if 1 in mask else len(mask)
    wrote = mask[prompt:]
    streams = {
        "logprob": written(wrote, trained["logprobs"][prompt:]) if "logprobs" in trained else None,
        "version": versions(trained["versions"][prompt:]) if "versions" in trained else None,
    }
    return TrainingRow(ids, prompt, wrote, streams), name


def _said(
    interaction: Any, chats: Mapping[str, Sequence[Mapping[str, Any]]]
) -> list[Mapping[str, Any]]:
    """The whole conversation up to and with this interaction's answer, if anybody knows it."""
    if interaction.messages and interaction.output_message_list:
        return [*interaction.messages, *interaction.output_message_list]
    return list(chats.get(str(interaction.interaction_id), ()))


def _mark(messages: list[Message], ends: Sequence[int], interactions: Sequence[Any]) -> None:
    """What is known of each call goes to the message that it made."""
    for interaction, end in zip(interactions, ends, strict=True):
        message = messages[end]
        message.sampled = True
        message.reward = number(interaction.reward)
        message.meta["interaction"] = interaction.interaction_id
        if interaction.parent is not None:
            message.meta["parent_interaction"] = interaction.parent.interaction_id
        response = getattr(interaction, "model_response", None)
        if response is not None:
            message.stop_reason = response.stop_reason


def _places(joined: Joined, end: int, length: int) -> Places:
    """Where the tokens of a row that ends in message `end` lie among the rollout's tokens."""
    starts, at = [], 0
    for message in joined.messages:
        starts.append(at)
        at += len(message.tokens or ())
    places: list[range] = []
    left = length
    for n in path_to(joined.messages, end):
        taken = min(left, len(joined.messages[n].tokens or ()))
        left -= taken
        if places and places[-1].stop == starts[n]:
            places[-1] = range(places[-1].start, starts[n] + taken)
        else:
            places.append(range(starts[n], starts[n] + taken))
    return tuple(places)


def chat_tree(chats: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[list[Message], list[int]]:
    """Conversations that begin alike, as one tree, and where each ends."""
    messages: list[Message] = []
    ends: list[int] = []
    known: dict[str, int] = {}
    for chat in chats:
        parent, name = -1, ""
        for m in chat:
            name += json.dumps(_given(m), sort_keys=True, default=str) + "\n"
            if name not in known:
                message = from_chat(m)
                message.parent = parent if parent != len(messages) - 1 or parent < 0 else None
                known[name] = len(messages)
                messages.append(message)
            parent = known[name]
        ends.append(parent)
    return messages, ends


def _given(value: Any) -> Any:
    """A message without its empty fields: a server's answer has them, and what a client sends back
    of it does not."""
    if isinstance(value, Mapping):
        return {name: _given(v) for name, v in value.items() if v is not None}
    return [_given(v) for v in value] if isinstance(value, list) else value


def take_names(messages: Sequence[Message], chat: Sequence[Mapping[str, Any]]) -> None:
    """Names and tool calls of the structured conversation, where it is the same one.

    Templates put messages before it (tools, a default system prompt), so the last messages are
    compared. If a role differs, only the policy's last message takes its tool calls: it is sure to
    be the last of the conversation.
    """
    if not chat:
        return
    given = [from_chat(m) for m in chat]
    pairs = list(zip(reversed(messages), reversed(given), strict=False))
    if len(given) > len(messages) or any(a.role != b.role for a, b in pairs):
        pairs = pairs[:1]
        if given[-1].role != "assistant":
            return
    for message, known in pairs:
        message.name, message.tool_call_id = known.name, known.tool_call_id
        message.tool_calls = known.tool_calls
