"""Token streams that nobody wants are not recorded, wherever they come from."""

from pathlib import Path
from typing import Any

import pytest

import rollscope
from rollscope import Message, Rollout, Tokens
from rollscope.model.streams import Streams


def recorded(store: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> list[set[str]]:
    """The streams of three rollouts: logged whole, logged while it happens, and told later."""
    monkeypatch.setenv("ROLLSCOPE_STREAMS", value)
    own = Tokens([7, 8], logprob=[-0.5, -1.0], mask=[0, 1], entropy=[0.1, 0.2])
    message = Message(role="assistant", content="ok", tokens=own)
    with rollscope.init(project="p", run="r") as run:
        ids = run.log([Rollout(messages=[message])])
        with run.rollout() as live:
            live.add(message)
        ids.append(live.id)
        ids += run.log([Rollout(messages=[Message(role="assistant", tokens=Tokens([7, 8]))])])
        run.annotate(ids[2], streams=own.streams)
    assert set(own.streams) == {"logprob", "mask", "entropy"}, "the caller's own stays as it is"
    found = rollscope.open(store)
    tokens = [found.get(id).messages[0].tokens for id in ids]
    assert all(list(one.ids) == [7, 8] for one in tokens)
    return [set(one.streams) for one in tokens]


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("logprob,mask", {"logprob", "mask"}),
        (" -logprob , -entropy ", {"mask"}),
        ("-odd", {"logprob", "mask", "entropy"}),
    ],
)
def test_streams_are_chosen_by_name(
    value: str, kept: set[str], own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert recorded(own_store, monkeypatch, value) == [kept] * 3


@pytest.mark.parametrize("value", ["", "logprob,", "logprob,-mask", "-"])
def test_a_choice_that_cannot_be_read_is_told_and_everything_is_recorded(
    value: Any, own_store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ValueError):
        Streams.parse(value)
    assert recorded(own_store, monkeypatch, value) == [{"logprob", "mask", "entropy"}] * 3
    assert "ROLLSCOPE_STREAMS" in caplog.text or not value
