"""A rollout as a tree of calls: whole, in order, and nothing guessed."""

from hypothesis import given
from hypothesis import strategies as st

from rollscope.model import Message, Rollout, Span, ToolCall
from rollscope.sinks._chat import prompt
from rollscope.sinks.calls import ROOT, calls


def test_a_rollout_without_spans_has_a_chat_for_each_turn_and_a_call_for_each_tool():
    rollout = Rollout(
        environment="shop",
        messages=[
            Message(role="user", content="2+2?"),
            Message(
                role="assistant",
                tool_calls=[ToolCall(id="a", name="add"), ToolCall(id="b", name="clock")],
                start=1.0,
                end=2.0,
            ),
            Message(role="tool", content="4", tool_call_id="a", start=2.0, end=3.0),
            Message(role="assistant", content="4"),
        ],
    )
    found = calls(rollout)
    assert [(c.kind, c.name, c.parent, c.message) for c in found] == [
        ("agent", "shop", None, None),
        ("chat", "assistant", ROOT, 1),
        ("tool", "add", ROOT, 2),
        ("tool", "clock", ROOT, None),  # nobody answered: no answer is made up
        ("chat", "assistant", ROOT, 3),
    ]
    assert [(c.start, c.end) for c in found[1:4]] == [(1.0, 2.0), (2.0, 3.0), (None, None)]


def test_an_answer_without_an_id_belongs_to_no_call():
    rollout = Rollout(
        messages=[
            Message(role="assistant", tool_calls=[ToolCall(id="a", name="f")]),
            Message(role="tool", content="?"),
        ]
    )
    assert [c.message for c in calls(rollout) if c.kind == "tool"] == [None]


def test_recorded_spans_are_the_calls_that_made_their_messages():
    rollout = Rollout(
        messages=[
            Message(role="user", content="x"),
            Message(role="assistant", tool_calls=[ToolCall(id="a", name="search")]),
            Message(role="tool", content="y", tool_call_id="a"),
        ],
        spans=[
            Span(name="loop", id="1"),
            Span(name="generate", id="2", parent="1", message=1),
            Span(name="engine", id="3", parent="2", message=1),
            Span(name="tool.run", id="4", parent="1", message=2),
        ],
    )
    assert [(c.kind, c.name, c.parent, c.message) for c in calls(rollout)[1:]] == [
        ("step", "loop", ROOT, None),
        ("step", "generate", "1", None),
        ("chat", "engine", "2", 1),
        ("tool", "search", "1", 2),
    ]


def test_a_prompt_is_what_the_model_saw_and_not_the_other_branch():
    rollout = Rollout(
        messages=[
            Message(role="system", content="s"),
            Message(role="user", content="u"),
            Message(role="assistant", content="first try"),
            Message(role="assistant", content="second try", parent=1),
            Message(role="assistant", content="a sub-agent", parent=-1),
        ]
    )
    first, second = rollout.messages[:2]
    assert prompt(rollout, 2, has_contexts=True).messages == [first, second]
    assert prompt(rollout, 3, has_contexts=True).messages == [first, second]
    assert prompt(rollout, 4, has_contexts=True).messages == []


@given(st.lists(st.sampled_from(["a", "b", "c", "d", None]), max_size=4))
def test_no_span_is_lost_whatever_its_parent_says(parents):
    names = ["a", "b", "c", "d"]
    spans = [Span(name=n, id=n, parent=p) for n, p in zip(names, parents, strict=False)]
    found = calls(Rollout(spans=spans))
    assert sorted(c.id for c in found[1:]) == names[: len(spans)]
    seen = {None}
    for call in found:
        assert call.parent in seen
        seen.add(call.id)
