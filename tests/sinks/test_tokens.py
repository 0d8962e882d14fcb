"""No sink sends tokens: not those of messages, and not those in anything a program handed over."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rollscope.model import Message, Rollout, Span, Tokens
from rollscope.sinks import mlflow_trace, trackio, weave_calls
from rollscope.sinks.calls import calls
from rollscope.sinks.otlp_attributes import Told

IDS = list(range(5000, 6000))
LOGPROBS = [-0.125] * 1000


def otlp(rollout: Rollout) -> Any:
    told = Told(rollout, link="", provider="", has_content=True)
    return [told.call(call) for call in calls(rollout)]


def to_trackio(rollout: Rollout) -> Any:
    spans = [trackio._span(call) for call in calls(rollout) if call.span is not None]
    return spans, trackio.metadata(rollout)


def to_mlflow(rollout: Rollout) -> Any:
    return mlflow_trace.spans(rollout), mlflow_trace.assessments(rollout, "trace")


@pytest.mark.parametrize("told", [otlp, to_trackio, to_mlflow, weave_calls.completed])
def test_tokens_never_leave(told: Any) -> None:
    rollout = Rollout(
        id="r",
        time=1.0,
        messages=[
            Message(role="user", content="x", tokens=Tokens(IDS)),
            Message(role="assistant", content="y", tokens=Tokens(IDS, logprob=LOGPROBS)),
        ],
        spans=[
            Span(
                name="generate",
                inputs={"prompt_ids": IDS, "n": 8},
                outputs={"token_ids": [IDS], "log_probs": LOGPROBS},
                meta={"log_probs": LOGPROBS},
            )
        ],
        sampling={"temperature": 1.0, "stop_token_ids": IDS},
        reference=IDS,
        meta={"prompt_ids": IDS},
    )
    sent = json.dumps(told(rollout), default=str)
    assert "generate" in sent
    assert "5500" not in sent
    assert "0.125" not in sent
