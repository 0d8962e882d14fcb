"""torch's own tensors, as loops without a trainer of ours hand them over."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import rollscope
from rollscope import Message, Rollout, Tokens
from rollscope.model import staged
from rollscope.store import frames

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
DEVICES = ["cpu", "away", pytest.param("cuda", marks=needs_gpu)]
"""`away` lies on the CPU, and is taken the way of another device's tensors."""


@pytest.fixture
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "away":
        monkeypatch.setattr(staged, "is_away", lambda values: True)
        return "cpu"
    return str(request.param)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tensors have been moved together, each time."""
    sizes: list[int] = []
    begin = staged._Part.__init__

    def counting(part: staged._Part, tensors: list[torch.Tensor]) -> None:
        sizes.append(len(tensors))
        begin(part, tensors)

    monkeypatch.setattr(staged._Part, "__init__", counting)
    return sizes


def recorded(store: Path) -> list[dict[str, Any]]:
    lines = [
        json.loads(line)
        for log in sorted(store.rglob("live/*.zst"))
        for frame in frames.scan(log)
        for line in frame.lines()
    ]
    return [line["rollout"] for line in lines if "rollout" in line]


def batch(device: str, rows: int = 4) -> tuple[list[Rollout], dict[str, torch.Tensor]]:
    """Rollouts whose arrays are rows of a few large tensors, as a training step has them."""
    tensors = {
        "ids": torch.arange(rows * 6, device=device).reshape(rows, 6),
        "logprob": torch.randn(rows, 6, device=device, requires_grad=True),
        "entropy": torch.ones(rows, 6, dtype=torch.bfloat16, device=device),
        "mask": torch.ones(6, rows, dtype=torch.bool, device=device).t(),  # not contiguous
    }
    rollouts = [
        Rollout(
            task=str(row),
            messages=[
                Message(
                    role="assistant",
                    content="x",
                    tokens=Tokens(**{name: values[row, 2:] for name, values in tensors.items()}),
                )
            ],
        )
        for row in range(rows)
    ]
    return rollouts, tensors


@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("one_by_one", [False, True])
def test_tensors_are_recorded_as_they_were(own_store: Path, device: str, one_by_one: bool) -> None:
    rollouts, tensors = batch(device)
    expected = {name: values[:, 2:].tolist() for name, values in tensors.items()}
    with rollscope.init(project="p", run="r") as run:
        if one_by_one:
            for rollout in rollouts:
                run.log(rollout)
        else:
            run.log(rollouts)
        with torch.no_grad():
            for values in tensors.values():
                values.zero_()  # the trainer uses its buffers again
    for got in recorded(own_store):
        tokens = got["messages"][0]["tokens"]
        row = int(got["task"])
        assert tokens["ids"] == expected["ids"][row]
        assert tokens["logprob"] == pytest.approx(expected["logprob"][row])
        assert tokens["entropy"] == expected["entropy"][row]
        assert tokens["mask"] == [1, 1, 1, 1]
    assert len(recorded(own_store)) == 4


AWAY = pytest.mark.parametrize("device", DEVICES[1:], indirect=True)


@AWAY
def test_a_batch_is_moved_once_for_each_type(
    own_store: Path, device: str, parts: list[int]
) -> None:
    rollouts, _ = batch(device, rows=64)
    with rollscope.init(project="p", run="r") as run:
        run.log(rollouts)
    assert parts == [64, 64, 64, 64]


@AWAY
def test_a_large_batch_is_moved_in_parts(
    own_store: Path, device: str, parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged, "_PART", 100)  # three rows of ids, or one of something longer
    long = torch.arange(500, device=device)
    rollouts, tensors = batch(device, rows=7)
    rollouts.append(Rollout(task="7", messages=[Message(role="user", tokens=Tokens(long))]))
    with rollscope.init(project="p", run="r") as run:
        run.log(rollouts)
    assert parts[:4] == [3, 3, 1, 1]
    found = {int(got["task"]): got["messages"][0]["tokens"]["ids"] for got in recorded(own_store)}
    assert found == dict(enumerate([*tensors["ids"][:, 2:].tolist(), long.tolist()]))


@AWAY
def test_rows_of_any_shape_are_moved_together(
    own_store: Path, device: str, parts: list[int]
) -> None:
    whole = torch.arange(40, device=device)
    rows = [whole[:3], whole[5:5], whole[8:24].reshape(2, 8).t(), whole[::7], whole[9]]
    messages = [Message(role="user", tokens=Tokens(row)) for row in rows]
    with rollscope.init(project="p", run="r") as run:
        run.log([Rollout(task="t", messages=messages), Rollout(task="u")])
    (got,) = (r for r in recorded(own_store) if r["task"] == "t")
    expected = [row.reshape(-1).tolist() for row in rows]
    assert [m["tokens"]["ids"] for m in got["messages"]] == expected
    assert parts == [5]


@AWAY
def test_later_values_and_messages_are_moved_too(
    own_store: Path, device: str, parts: list[int]
) -> None:
    values = torch.tensor([0.5, 0.25], device=device)
    with rollscope.init(project="p", run="r") as run:
        with run.rollout(task="t") as live:
            live.message("assistant", "x", tokens=Tokens(logprob=values))
        run.annotate(live.id, streams={"advantage": values})
        values.zero_()
    rollout = rollscope.open(own_store).get(live.id)
    tokens = rollout.messages[0].tokens
    assert tokens is not None
    assert (tokens.logprob, tokens.advantage) == ([0.5, 0.25], [0.5, 0.25])
    assert parts == [1, 1]


@AWAY
def test_what_cannot_be_moved_together_is_taken_by_itself(
    own_store: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(part: staged._Part, tensors: list[torch.Tensor]) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(staged._Part, "__init__", no_memory)
    rollouts, tensors = batch(device)
    with rollscope.init(project="p", run="r") as run:
        run.log(rollouts)
    found = {int(got["task"]): got["messages"][0]["tokens"]["ids"] for got in recorded(own_store)}
    assert found == dict(enumerate(tensors["ids"][:, 2:].tolist()))


@pytest.mark.parametrize("device", ["away"], indirect=True)
def test_the_thread_goes_on_while_the_gpu_is_behind(
    own_store: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must show that the writer lives, or others would take its log for that of a dead one."""
    asked = threading.Semaphore(0)

    def not_yet(part: staged._Part) -> bool:
        asked.release()
        return False

    monkeypatch.setattr(staged._Part, "is_here", not_yet)
    rollouts, _ = batch(device)
    with rollscope.init(project="p", run="r") as run:
        run.log(rollouts)
        for _ in range(5):
            assert asked.acquire(timeout=60)
        assert run.queued and not recorded(own_store)
    assert len(recorded(own_store)) == 4  # the end waits for the GPU


@needs_gpu
def test_log_does_not_wait_for_the_gpu(own_store: Path) -> None:
    rollouts, tensors = batch("cuda", rows=64)
    expected = tensors["ids"][:, 2:].tolist()
    with rollscope.init(project="p", run="r") as run:
        run.log(rollouts)  # torch takes its pinned memory now
        run.flush()
        torch.cuda._sleep(2_000_000_000)  # about a second, on the stream that the rows are ready on
        run.log(rollouts)
        assert not torch.cuda.current_stream().query()
        tensors["ids"].zero_()
    for got in recorded(own_store):
        assert got["messages"][0]["tokens"]["ids"] == expected[int(got["task"])]
    assert len(recorded(own_store)) == 128


def test_scalars_in_any_place_are_numbers(own_store: Path) -> None:
    with rollscope.init(project="p", run="r") as run:
        run.log(
            Rollout(
                task="t",
                reward=torch.tensor(0.5),  # type: ignore[arg-type]
                step=torch.tensor(3),  # type: ignore[arg-type]
                meta={"t": torch.tensor([1, 2])},
            )
        )
        run.metrics(1, {"loss": torch.tensor(0.25, requires_grad=True)})
        run.annotate("x", streams={"advantage": torch.ones(2)}, advantage=torch.tensor(0.5))
    (got,) = recorded(own_store)
    assert (got["reward"], got["step"], got["meta"]) == (0.5, 3, {"t": [1, 2]})
    assert run.counters.dropped == {}
