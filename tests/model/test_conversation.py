"""A conversation means the same to Python and to the engine."""

from __future__ import annotations

import itertools
from typing import Any

import duckdb
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rollscope.model import Message, Part, Rollout, Tokens, ToolCall
from rollscope.model.conversation import (
    ANSWER,
    BY_POLICY,
    PARENT,
    answer,
    branches,
    by_policy,
    parent_of,
    path_to,
    prompt_size,
    text,
    tool_calls,
    wrote,
    wrote_sql,
)
from rollscope.model.wire import rollout_line

DB = duckdb.connect()

words = st.text(alphabet="aé🙂\n </think>thinkingreasoning", max_size=12) | st.sampled_from(
    ["</think>", "so</think>\n 4", "a</thinking>b", "</reasoning>"]
)
parts = st.builds(
    Part,
    type=st.sampled_from(["text", "reasoning", "image", "tool_result", "odd"]),
    text=st.none() | words,
)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool", "unknown"]),
    sampled=st.sampled_from([None, True, False]),
    parent=st.none() | st.integers(-3, 6),
    content=st.none() | words | st.lists(parts, max_size=5),
    tokens=st.builds(lambda n: Tokens([7] * n), st.integers(1, 6)),
    meta=st.dictionaries(
        st.just("wrote"),
        st.lists(st.integers(-2, 8), max_size=3) | st.sampled_from(["all", None, [0, "x"], {}]),
    ),
)
conversations = st.lists(messages, max_size=6)


def asked(fragment: str, found: list[Message]) -> list[Any]:
    """What the engine says about these messages, as they are written into a log."""
    line = msgspec.json.decode(rollout_line(Rollout(messages=found)).encode())
    rows = [
        {
            "n": n,
            "parent": body.get("parent"),
            "role": body["role"],
            "sampled": body.get("sampled"),
            "text": body.get("content"),
            "parts": msgspec.json.encode(body["parts"]).decode() if "parts" in body else None,
            "meta": msgspec.json.encode(body.get("meta")).decode(),
            "ids": body["tokens"]["ids"],
        }
        for n, body in enumerate(line["rollout"].get("messages", ()))
    ]
    types = "n BIGINT, parent INTEGER, role VARCHAR, sampled BOOLEAN, text VARCHAR, parts JSON, "
    types += "meta JSON, ids INTEGER[]"
    given = f"SELECT unnest(?::STRUCT({types})[], recursive := true)"
    answers = DB.execute(f"SELECT {fragment} FROM ({given}) m ORDER BY n", [rows]).fetchall()
    return [row[0] for row in answers]


@given(conversations)
def test_who_wrote_a_message_is_the_same_to_the_engine(found: list[Message]) -> None:
    assert asked(BY_POLICY, found) == [by_policy(m) for m in found]


def test_what_was_said_about_a_message_counts_before_its_role() -> None:
    assert by_policy(Message(role="assistant"))
    assert by_policy(Message(role="player", sampled=True))
    assert not by_policy(Message(role="assistant", sampled=False)), "an example in the prompt"
    assert not by_policy(Message(role="user"))


@given(conversations)
def test_what_the_policy_wrote_of_a_turn_is_the_same_to_the_engine(found: list[Message]) -> None:
    begin, end = wrote_sql("len(ids)")
    told = list(zip(asked(begin, found), asked(end, found), strict=True))
    assert told == [wrote(m) for m in found]
    assert all(0 <= a <= b <= len(m.tokens) for (a, b), m in zip(told, found, strict=True))


@given(conversations)
def test_the_prompt_ends_where_the_policy_first_writes(found: list[Message]) -> None:
    size = prompt_size(found)
    assert not any(by_policy(m) for m in found[:size])
    assert size == len(found) or by_policy(found[size])


@given(conversations)
def test_the_text_of_a_message_is_the_same_to_the_engine(found: list[Message]) -> None:
    assert asked("coalesce(text, '')", found) == [text(m) for m in found]


@given(conversations)
def test_an_answer_is_the_same_to_the_engine(found: list[Message]) -> None:
    assert asked(f"coalesce({ANSWER}, '')", found) == [answer(m) for m in found]


def test_an_answer_is_what_comes_after_thinking() -> None:
    thought = Part(type="reasoning", text="2 and 2 ... ")
    said = [Part(type="text", text="It is "), thought, Part(type="text", text="4.")]
    assert answer(Message(role="assistant", content=[thought, *said])) == "It is 4."
    assert answer(Message(role="assistant", content="<think>hm</think>\n\n4")) == "4"
    assert answer(Message(role="assistant", content="<think>hm</think>")) == ""
    assert answer(Message(role="assistant", content=[thought])) == ""


def test_tools_are_called_beside_the_text_and_inside_it() -> None:
    a, b = ToolCall(name="a"), ToolCall(name="b")
    inside = [Part(type="text", text="so"), Part(type="tool_call", call=b)]
    assert tool_calls(Message(role="assistant", content=inside, tool_calls=[a])) == [a, b]
    assert tool_calls(Message(role="user", content="no")) == []


@given(conversations)
def test_a_parent_is_the_same_to_the_engine(found: list[Message]) -> None:
    told = asked(f"coalesce({PARENT}, -1)", found)
    assert told == [parent_of(n, m) for n, m in enumerate(found)]


@given(conversations)
def test_branches_lead_from_roots_to_all_leaves(found: list[Message]) -> None:
    for number, message in enumerate(found):
        message.meta["n"] = number
    made = [[message.meta["n"] for message in branch] for branch in branches(found)]
    assert {n for branch in made for n in branch} == set(range(len(found))), "none is left out"
    assert [branch[-1] for branch in made] == sorted({branch[-1] for branch in made})
    for branch in made:
        assert parent_of(branch[0], found[branch[0]]) == -1
        assert branch == path_to(found, branch[-1])
        for before, after in itertools.pairwise(branch):
            assert parent_of(after, found[after]) == before


def test_a_conversation_that_begins_anew_is_a_branch_of_its_own() -> None:
    tree = [
        Message(role="user", name="0"),
        Message(role="assistant", name="1"),
        Message(role="assistant", name="2", parent=0),
        Message(role="user", name="3", parent=-1),
        Message(role="assistant", name="4"),
    ]
    assert [[m.name for m in branch] for branch in branches(tree)] == [
        ["0", "1"], ["0", "2"], ["3", "4"],
    ]  # fmt: skip
