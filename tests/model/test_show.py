"""Records show themselves in notebooks, and what they say cannot act there."""

from __future__ import annotations

from pathlib import Path

import rollscope
from rollscope.checks import align
from rollscope.model import Message, Rollout, ToolCall
from rollscope.query import Store

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\u202e"


def hostile(index: int) -> Rollout:
    return Rollout(
        key=f"{HOSTILE}{index}",
        step=1,
        group=HOSTILE,
        index=index,
        task=HOSTILE,
        fate=HOSTILE,
        reference={HOSTILE: HOSTILE},
        rewards={HOSTILE: 1.0},
        messages=[
            Message(
                role=HOSTILE,
                name=HOSTILE,
                content=f"{HOSTILE} {index}",
                tool_calls=[ToolCall(name=HOSTILE, arguments={HOSTILE: HOSTILE})],
            )
        ],
    )


def is_harmless(html: str) -> bool:
    return "<script" not in html and "<img" not in html and "\u202e" not in html


def test_a_rollout_and_a_diff_show_themselves_escaped() -> None:
    a, b = hostile(0), hostile(1)
    for shown in (a._repr_html_(), align(a, b)._repr_html_()):
        assert "&lt;script&gt;" in shown
        assert is_harmless(shown)


def test_a_selection_a_group_and_a_row_show_themselves_escaped(tmp_path: Path) -> None:
    run = rollscope.init(project="p", run="r", dir=tmp_path)
    ids = run.log([hostile(0), hostile(1)])
    run.finish()
    store = Store(tmp_path)
    selection, group = store.rollouts("step:1"), store.group(ids[0])
    for shown in (selection._repr_html_(), group._repr_html_(), group[0]._repr_html_()):
        assert "&lt;script&gt;" in shown
        assert is_harmless(shown)
    assert len(group) == 2
