"""What recording costs a GRPO loop on a GPU: `python bench/gpu.py`, where there is one.

A small transformer with random weights generates 32 groups of 8 answers of 256 tokens, which are
rewarded, given advantages, and learned from: all on the GPU. Nothing is downloaded. Each round
takes one step of each kind, in an order drawn anew:

- `without`: nothing is recorded.
- `recorded`: one `log` of the 256 rollouts. Their ids, logprobs, mask and advantages are rows of
  four tensors on the GPU, which are overwritten after `log` returns.
- `plain`: what people write themselves: `.cpu()` for each tensor of each sample, a line of JSON.

Told are the time that the call itself takes, its share of the step, how much longer the steps are
than those without in the same round, and whether the values are stored that were on the GPU when
`log` was called. Figures are medians, with intervals of 95 % by drawing the rounds anew.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import rollscope
from rollscope import Message, Rollout, Tokens

GROUPS, SIBLINGS, PROMPT, ANSWER = 32, 8, 32, 256
ROWS = GROUPS * SIBLINGS
VOCABULARY, WIDTH, LAYERS, HEADS = 32_000, 1024, 8, 16
WORDS = [f"w{n:x} " for n in range(VOCABULARY)]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.heads, self.joined = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, cache: torch.Tensor | None, at: int) -> torch.Tensor:
        """`cache` holds keys and values of the tokens before `at`, and gets those of `x`."""
        rows, length, _ = x.shape
        parts = self.heads(self.before(x)).view(rows, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        if cache is not None:
            cache[0, :, :, at : at + length], cache[1, :, :, at : at + length] = key, value
            key, value = cache[0, :, :, : at + length], cache[1, :, :, : at + length]
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=length > 1)
        x = x + self.joined(seen.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(PROMPT + ANSWER, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.end, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: torch.Tensor, caches: Any = None, at: int = 0) -> torch.Tensor:
        places = torch.arange(at, at + ids.shape[1], device=ids.device)
        x = self.words(ids) + self.places(places)
        for number, block in enumerate(self.blocks):
            x = block(x, None if caches is None else caches[number], at)
        return self.out(self.end(x))


class Loop:
    """GRPO: generate, reward, compare the siblings, learn."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.policy = Policy().cuda().bfloat16()
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=1e-6, fused=True)
        shape = (LAYERS, 2, ROWS, HEADS, PROMPT + ANSWER, WIDTH // HEADS)
        self.caches = torch.empty(shape, device="cuda", dtype=torch.bfloat16)

    @torch.no_grad()
    def generate(self) -> dict[str, torch.Tensor]:
        prompt = torch.randint(0, VOCABULARY, (GROUPS, PROMPT), device="cuda")
        prompt = prompt.repeat_interleave(SIBLINGS, 0)
        ids = torch.empty(ROWS, ANSWER, device="cuda", dtype=torch.long)
        logprob = torch.empty(ROWS, ANSWER, device="cuda")
        given, at = prompt, 0
        for place in range(ANSWER):
            scores = self.policy(given, self.caches, at)[:, -1].float().log_softmax(-1)
            at += given.shape[1]
            given = torch.multinomial(scores.exp(), 1)
            ids[:, place] = given[:, 0]
            logprob[:, place] = scores.gather(1, given)[:, 0]
        reward = (ids < VOCABULARY // 2).float().mean(1)
        siblings = reward.view(GROUPS, SIBLINGS)
        scaled = (siblings - siblings.mean(1, keepdim=True)) / (
            siblings.std(1, keepdim=True) + 1e-6
        )
        return {
            "prompt": prompt,
            "ids": ids,
            "logprob": logprob,
            "mask": torch.ones(ROWS, ANSWER, device="cuda", dtype=torch.int32),
            "advantage": scaled.view(ROWS, 1).repeat(1, ANSWER),
            "reward": reward,
        }

    def learn(self, made: dict[str, torch.Tensor]) -> None:
        for some in torch.arange(ROWS, device="cuda").chunk(4):
            ids = torch.cat([made["prompt"][some], made["ids"][some]], 1)
            scores = self.policy(ids[:, :-1])[:, PROMPT - 1 :].float().log_softmax(-1)
            new = scores.gather(2, made["ids"][some].unsqueeze(2)).squeeze(2)
            ratio = (new - made["logprob"][some]).exp()
            gain = made["advantage"][some]
            (-torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean() / 4).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


STREAMS = ("ids", "logprob", "mask", "advantage")


Kept = tuple[float, list[str]]
"""Seconds that recording took, and the ids of the rollouts."""


def record(run: rollscope.Run, made: dict[str, Any], texts: list[str], step: int) -> Kept:
    rollouts = []
    for row, text in enumerate(texts):
        tokens = Tokens(**{name: made[name][row] for name in STREAMS})
        asked = Message(role="user", content=f"task {row // SIBLINGS}")
        answer = Message(role="assistant", content=text, sampled=True, tokens=tokens)
        task, index = f"q-{row // SIBLINGS}", row % SIBLINGS
        reward = made["rewards"][row]
        rollouts.append(Rollout(task=task, index=index, reward=reward, messages=[asked, answer]))
    begun = time.perf_counter()
    ids = run.log(rollouts, step=step)
    return time.perf_counter() - begun, ids


def plainly(file: Any, made: dict[str, Any], texts: list[str], step: int) -> Kept:
    begun = time.perf_counter()
    for row, text in enumerate(texts):
        line = {name: made[name][row].cpu().tolist() for name in STREAMS}
        line |= {"step": step, "task": row // SIBLINGS, "index": row % SIBLINGS}
        line |= {"text": text, "reward": made["rewards"][row]}
        file.write(json.dumps(line) + "\n")
    file.flush()
    return time.perf_counter() - begun, []


Keep = Callable[[dict[str, Any], list[str]], Kept]


def step(loop: Loop, keep: Keep) -> tuple[float, Kept]:
    """Seconds of one whole step, and what recording it gave."""
    torch.cuda.synchronize()
    begun = time.perf_counter()
    made: dict[str, Any] = loop.generate()
    made["rewards"] = made["reward"].tolist()
    texts = ["".join(map(WORDS.__getitem__, row)) for row in made["ids"].tolist()]
    kept = keep(made, texts)
    loop.learn(made)
    for name in STREAMS:
        made[name].zero_()  # a trainer uses its buffers again
    torch.cuda.synchronize()
    return time.perf_counter() - begun, kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=24)
    rounds = parser.parse_args().rounds
    loop = Loop()
    took: dict[str, list[float]] = {"without": [], "recorded": [], "plain": []}
    called: dict[str, list[float]] = {"recorded": [], "plain": []}
    copies: list[dict[str, torch.Tensor]] = []
    dice = random.Random(0)
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "plain.jsonl").open("w") as file:
        run = rollscope.init(project="bench", run="gpu", dir=folder)

        def recorded(made: dict[str, Any], texts: list[str]) -> Kept:
            return record(run, made, texts, len(took["recorded"]))

        def compared(made: dict[str, Any], texts: list[str]) -> Kept:
            copies.append({name: made[name].clone() for name in STREAMS})
            return recorded(made, texts)

        kinds: dict[str, Keep] = {
            "without": lambda made, texts: (0.0, []),
            "recorded": recorded,
            "plain": lambda made, texts: plainly(file, made, texts, len(took["plain"])),
        }
        for keep in (*kinds.values(), compared):
            ids = step(loop, keep)[1][1]
        for _ in range(rounds):
            for kind in dice.sample(list(kinds), len(kinds)):
                whole, (own, _) = step(loop, kinds[kind])
                took[kind].append(whole)
                if kind in called:
                    called[kind].append(own)
        run.finish()
        store = rollscope.open(folder)
        is_same = all(_is_same(store.get(id), copies[0], row) for row, id in enumerate(ids))
        store.close()
    told: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "rounds": rounds,
        "rollouts a step": ROWS,
        "step without, s": _interval(took["without"]),
        "stored as it was on the GPU": is_same,
    }
    for kind, times in called.items():
        shares = [100 * own / whole for own, whole in zip(times, took[kind], strict=True)]
        pairs = zip(took[kind], took["without"], strict=True)
        longer = [100 * (whole / free - 1) for whole, free in pairs]
        told[f"{kind}: blocked a rollout, µs"] = _interval([1e6 * own / ROWS for own in times])
        told[f"{kind}: blocked share of the step, %"] = _interval(shares)
        told[f"{kind}: step longer, %"] = _interval(longer)
    print(json.dumps(told, indent=1, ensure_ascii=False))


def _interval(values: Sequence[float]) -> str:
    """The median, and its interval of 95 %."""
    dice = random.Random(1)
    drawn = sorted(statistics.median(dice.choices(values, k=len(values))) for _ in range(2000))
    return f"{statistics.median(values):.3g} [{drawn[50]:.3g}, {drawn[1949]:.3g}]"


def _is_same(rollout: Rollout, tensors: dict[str, torch.Tensor], row: int) -> bool:
    tokens = rollout.messages[1].tokens
    assert tokens is not None
    stored = {name: list(values) for name, values in tokens.arrays()}
    return all(stored[name] == values[row].tolist() for name, values in tensors.items())


if __name__ == "__main__":
    main()
