"""Arguments that repeat an earlier call's are written out again."""

from __future__ import annotations

from rollscope.model import Span
from rollscope.model.repeats import expand, repeat


def test_a_list_that_goes_on_from_another_is_written_out() -> None:
    first = Span(name="f", id="a", inputs={"messages": [1, 2]})
    second = Span(name="f", id="b", inputs={"messages": repeat("a", 2, [3])})
    assert [s.inputs for s in expand([first, second])] == [
        {"messages": [1, 2]},
        {"messages": [1, 2, 3]},
    ]


def test_spans_with_the_same_id_keep_their_own_arguments() -> None:
    spans = [Span(name="f", id="a", inputs=["x"]), Span(name="g", id="a", inputs={"y": 1})]
    assert expand(spans) == spans
