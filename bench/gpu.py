"""What recording costs a training loop on a GPU: `python bench/gpu.py`, where there is one.

A small transformer takes real training steps. After each, 512 rollouts of workload T are
logged in one call, whose token ids, logprobs, mask and advantages are rows of four tensors on
the GPU, as a trainer has them. Steps with and without recording alternate. Told are

- copies from device to host in one call of `log` (the profiler counts them): 4, one a tensor;
- how much longer a step with recording takes, and the share of it that `log` itself waits for
  the tensors;
- whether what was stored is what was on the GPU, number for number.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable

import torch

import rollscope
import workloads
from rollscope import Message, Rollout, Tokens

WIDTH, LAYERS, BATCH = 2048, 8, 512
STEPS = 24


def main() -> None:
    torch.manual_seed(0)
    train = _trainer()
    batch = next(workloads.steps("A", 1))
    length = min(len(str(r.messages[1].content).split()) for r in batch)
    tensors = _tensors(length)
    with tempfile.TemporaryDirectory() as folder:
        run = rollscope.init(project="bench", run="gpu", dir=folder)
        copies = _copies(lambda: run.log(_rollouts(batch, tensors), step=-1))
        train(), run.flush()
        plain, recorded, waited = [], [], []
        for step in range(STEPS):
            plain.append(_timed(train))
            rollouts = _rollouts(batch, tensors)
            logged: list[float] = []

            def both(step: int = step, rollouts: list = rollouts, logged: list = logged) -> None:
                logged.append(_timed(lambda: run.log(rollouts, step=step)))
                train()

            recorded.append(_timed(both))
            waited += logged
        ids = run.log(_rollouts(batch, tensors), step=STEPS)
        run.finish()
        store = rollscope.open(folder)
        checked = [i for i in range(0, BATCH, 37) if _is_same(store.get(ids[i]), tensors, i)]
        is_same = len(checked) == len(range(0, BATCH, 37))
        store.close()
    slow = statistics.median(recorded) / statistics.median(plain) - 1
    told = {
        "device": torch.cuda.get_device_name(),
        "rollouts a step": BATCH,
        "tensors a step": len(tensors),
        "copies device to host in one log": copies,
        "step without, ms": round(1e3 * statistics.median(plain), 2),
        "step with 512 rollouts, ms": round(1e3 * statistics.median(recorded), 2),
        "log waits, µs a rollout": round(1e6 * statistics.median(waited) / BATCH, 1),
        "longer, %": round(100 * slow, 1),
        "stored as on the GPU": is_same,
    }
    print(json.dumps(told, indent=1, ensure_ascii=False))


def _trainer() -> Callable[[], None]:
    """A training step of about a second's tenth: forward, backward, Adam."""
    layer = torch.nn.TransformerEncoderLayer(WIDTH, 16, 4 * WIDTH, batch_first=True, dropout=0.0)
    model = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
    model = model.cuda().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    inputs = torch.randn(32, 1024, WIDTH, device="cuda", dtype=torch.bfloat16)

    def train() -> None:
        model(inputs).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()

    for _ in range(5):
        train()
    return train


def _tensors(length: int) -> dict[str, torch.Tensor]:
    shape = (BATCH, length)
    return {
        "ids": torch.randint(0, 150_000, shape, device="cuda"),
        "logprob": -torch.rand(shape, device="cuda"),
        "mask": torch.ones(shape, device="cuda", dtype=torch.int32),
        "advantage": torch.randn(shape, device="cuda"),
    }


def _rollouts(batch: list[Rollout], tensors: dict[str, torch.Tensor]) -> list[Rollout]:
    made = []
    for i, rollout in enumerate(batch):
        rows = {name: values[i] for name, values in tensors.items()}
        answer = rollout.messages[1].content
        tokens = Tokens(rows.pop("ids"), streams=rows)
        reply = Message(role="assistant", content=answer, sampled=True, tokens=tokens)
        made.append(
            Rollout(
                task=rollout.task,
                index=rollout.index,
                reward=rollout.reward,
                messages=[rollout.messages[0], reply],
            )
        )
    return made


def _is_same(rollout: Rollout, tensors: dict[str, torch.Tensor], row: int) -> bool:
    tokens = rollout.messages[1].tokens
    assert tokens is not None
    stored = {name: list(values) for name, values in tokens.arrays()}
    return all(stored[name] == values[row].tolist() for name, values in tensors.items())


def _copies(work: Callable[[], object]) -> int:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    return sum(e.count for e in seen.key_averages() if "Memcpy DtoH" in e.key)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
