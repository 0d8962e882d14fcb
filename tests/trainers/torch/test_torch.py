"""torch's own tensors, as loops without a trainer of ours hand them over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import rollscope
from rollscope import Message, Rollout, Tokens
from rollscope.store import frames

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no GPU here"))]  # fmt: skip


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


@pytest.mark.parametrize("device", DEVICES)
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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_batch_is_transferred_once_for_each_tensor(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transfers = []
    cpu = torch.Tensor.cpu

    def counting(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if self.is_cuda:
            transfers.append(tuple(self.shape))
        return cpu(self, *args, **kwargs)

    rollouts, _ = batch("cuda", rows=64)
    monkeypatch.setattr(torch.Tensor, "cpu", counting)
    with rollscope.init(project="p", run="r") as run:
        run.log(rollouts)
    assert len(transfers) == 4


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
