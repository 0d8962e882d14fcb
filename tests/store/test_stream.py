"""Reading many rollouts at once gives what reading each of them gives."""

from __future__ import annotations

from pathlib import Path

import pytest

import rollscope
from rollscope import Message, Rollout, Span, Tokens
from rollscope.store.read import stream
from rollscope.store.read.reader import Reader
from rollscope.store.read.stream import streamed
from rollscope.store.seal.compact import compact


def made(n: int) -> Rollout:
    tokens = Tokens([1, 2, n], logprob=[-0.1, None, -n], mask=[0, 1, 1])
    messages = [Message(role="user", content=f"question {n}")] * (n % 3)
    answer = Message(role="assistant", content=f"answer {n}", tokens=tokens)
    spans = [Span(name="call", id=str(k)) for k in range(n % 4)]
    place = {"step": n // 8, "task": f"t{n // 4 % 2}", "index": n % 4}
    return Rollout(id=f"r{n:03}", messages=[*messages, answer], spans=spans, reward=n / 7, **place)


@pytest.mark.parametrize("batch", [1, 64])
def test_streamed_rollouts_are_those_that_get_gives(
    own_store: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """Sealed and merged, live, with late facts, late streams and late spans."""
    monkeypatch.setattr(stream, "_BATCH", batch)
    directory = own_store / "p" / "r"
    for part in range(3):
        with rollscope.init(project="p", run="r") as run:
            run.log([made(n) for n in range(part * 16, part * 16 + 16)])
            run.annotate(f"r{part * 16:03}", reward=9.0)
            if part:
                run.annotate("r001", tokens={"advantage": [0.5, 0.5, 0.5]}, fate="trained")
        if part < 2:
            compact(directory, grace=0)
    with Reader(own_store, threads=1) as reader, Reader(own_store) as many_threads:
        ids = [f"r{n:03}" for n in range(48)]
        expected = {id: reader.get(id) for id in ids}
        for one in (reader, many_threads):
            found = {s.rollout.id: s.rollout for s in streamed(one, [*ids, "no such id"])}
            assert found == expected
        some = {s.rollout.id: s.rollout for s in streamed(reader, ids[5:20:3])}
        assert some == {id: expected[id] for id in ids[5:20:3]}
        assert expected["r001"] is not None and expected["r001"].fate == "trained"


def test_files_that_go_away_meanwhile_are_found_elsewhere(own_store: Path) -> None:
    directory = own_store / "p" / "r"
    for part in range(2):
        with rollscope.init(project="p", run="r") as run:
            run.log([made(n) for n in range(part * 40, part * 40 + 40)])
        compact(directory, grace=0)
    with Reader(own_store, threads=1) as reader:
        ids = [f"r{n:03}" for n in range(80)]
        found = streamed(reader, ids)
        first = next(found)
        with rollscope.init(project="p", run="r") as run:
            run.log(made(90))
        compact(directory, grace=0)
        compact(directory, grace=0)
        assert sorted([str(first.rollout.id), *(str(s.rollout.id) for s in found)]) == ids
