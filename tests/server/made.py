"""A small store with everything that the server and the page must cope with."""

from __future__ import annotations

import base64
import math
import random
from pathlib import Path

import rollscope
from rollscope.model import Error, Message, Rollout, Span, Tokens, ToolCall
from rollscope.model.records import Part

PROJECT, RUN = "math", "grpo"
STEPS, TASKS, SIBLINGS = 6, 4, 4

PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c"
        "63f8dfc0000004010180c52a185d0000000049454e44ae426082"
    )
).decode()


def tokens(
    text: str, rng: random.Random, *, sampled: bool, advantage: float, version: int
) -> Tokens:
    """Words as tokens: exact ends, streams with one missing value."""
    ends, at = [], 0
    for word in text.split(" "):
        at += len(word) + (1 if at + len(word) < len(text) else 0)
        ends.append(min(at, len(text)))
    count = len(ends)
    ids = [rng.randrange(50_000) for _ in ends]
    if not sampled:
        return Tokens(ids, ends=ends, mask=[0] * count)
    logprob: list[float | None] = [-abs(rng.gauss(0, 1)) for _ in ends]
    train = [None if x is None else x + rng.gauss(0, 0.05) for x in logprob]
    logprob[0] = None
    return Tokens(
        ids,
        ends=ends,
        logprob=logprob,
        train_logprob=train,
        mask=[1] * count,
        version=[version] * count,
        advantage=[advantage] * count,
    )


def group(step: int, place: int, rng: random.Random) -> list[Rollout]:
    a, b = 30 + place, 11 + step
    solved = [(place + step + i) % 3 == 0 if place else False for i in range(SIBLINGS)]
    mean = sum(solved) / SIBLINGS
    spread = math.sqrt(mean * (1 - mean))
    made = []
    for i, right in enumerate(solved):
        advantage = (float(right) - mean) / spread if spread else 0.0
        value = a * b if right else a * b + 10
        prompt = f"A farmer has {a} baskets with {b} apples each. How many apples are there?"
        thought = f"<think>\nWe need {a} × {b}.\n</think>\n\nI will ask the tool."
        answer = f"There are **{value}** apples: ${a} \\cdot {b} = {value}$."
        style = {"rng": rng, "advantage": advantage, "version": step}
        made.append(
            Rollout(
                key=f"{step}-{place}-{i}",
                step=step,
                trained_step=step + 1 if spread else None,
                split="train",
                dataset="apples",
                task=f"q-{place}",
                group=f"g{step}-{place}",
                index=i,
                reward=float(right),
                rewards={"correct": float(right), "format": 0.5},
                reward_texts={"correct": f"expected {a * b}, found {value}"},
                advantage=advantage if spread else None,
                stop_reason="stop",
                truncated=i == 3,
                fate="trained" if spread else "dropped",
                fate_reason=None if spread else "all rewards equal",
                reference=str(a * b),
                policy_version=step,
                environment="farm",
                start=1_000.0 + step,
                end=1_002.5 + step,
                sampling={"temperature": 1.0, "logprobs": "raw"},
                meta={"lang": "en"},
                messages=[
                    Message(
                        role="user", content=prompt, tokens=tokens(prompt, sampled=False, **style)
                    ),
                    Message(
                        role="assistant",
                        content=thought,
                        sampled=True,
                        tool_calls=[
                            ToolCall(id="c1", name="calculator", arguments={"code": f"{a} * {b}"})
                        ],
                        tokens=tokens(thought, sampled=True, **style),
                    ),
                    Message(role="tool", name="calculator", tool_call_id="c1", content=str(a * b)),
                    Message(
                        role="assistant",
                        content=answer,
                        sampled=True,
                        tokens=tokens(answer, sampled=True, **style),
                    ),
                ],
                spans=[
                    Span(name="agent", id="s0", start=1_000.0, end=1_002.5),
                    Span(name="calculator", id="s1", parent="s0", start=1_001.0, end=1_001.2,
                         inputs={"code": f"{a} * {b}"}, outputs=a * b),
                ],
            )
        )  # fmt: skip
    return made


def odd_ones() -> list[Rollout]:
    """Rollouts of unusual shape: each is one thing that a viewer tends to break on."""
    emoji = "👩‍🚀 naïve 漢字 𝔘𝔫𝔦𝔠𝔬𝔡𝔢"
    return [
        Rollout(key="nan", step=0, split="odd", task="nan", reward=float("nan"), messages=[]),
        Rollout(key="inf", step=0, split="odd", task="inf", reward=float("-inf"), messages=[]),
        Rollout(
            key="failed",
            step=1,
            split="odd",
            task="failed",
            fate="failed",
            error=Error(kind="environment", type="SandboxDied", text="no answer\nafter 30 s"),
            messages=[Message(role="user", content="do it")],
        ),
        Rollout(
            key="tree",
            step=1,
            split="odd",
            task="tree",
            reward=0.5,
            messages=[
                Message(role="user", content="question"),
                Message(role="assistant", content="first try", sampled=True),
                Message(role="assistant", content="second try", sampled=True, parent=0),
                Message(role="user", content="sub-agent, begin", parent=-1, name="helper"),
                Message(role="assistant", content="sub-agent, done", sampled=True, name="helper"),
            ],
        ),
        Rollout(
            key="parts",
            step=1,
            split="odd",
            task="parts",
            messages=[
                Message(
                    role="user",
                    content=[
                        Part(type="text", text="What is in "),
                        Part(type="image", image=f"data:image/png;base64,{PIXEL}"),
                        Part(type="image", image="https://example.com/remote.png"),
                        Part(type="text", text="these pictures?"),
                    ],
                ),
                Message(
                    role="assistant",
                    sampled=True,
                    content=[
                        Part(type="reasoning", text="They look small."),
                        Part(type="text", text="One pixel."),
                    ],
                ),
            ],
        ),
        Rollout(
            key="unicode",
            step=1,
            split="odd",
            task="unicode",
            messages=[
                Message(
                    role="assistant",
                    content=emoji,
                    sampled=True,
                    tokens=Tokens(
                        list(range(6)),
                        ends=[2, 3, 4, 10, 13, len(emoji)],
                        logprob=[-0.1, -3.0, None, -0.2, -0.5, -0.1],
                    ),
                )
            ],
        ),
        Rollout(
            key="long",
            step=2,
            split="odd",
            task="long",
            messages=[
                Message(
                    role="user" if n % 2 == 0 else "assistant",
                    content=f"turn {n}: " + "word " * (40 if n % 10 else 400),
                    sampled=n % 2 == 1,
                    start=1_000.0 + n,
                    end=1_000.5 + n,
                    tokens=Tokens([7, 8], version=[n // 1_000, 1]) if n % 2 else None,
                )
                for n in range(2_000)
            ],
        ),
        Rollout(
            key="wide",
            step=2,
            split="odd",
            task="wide",
            messages=[Message(role="tool", content="0123456789" * 30_000)],
        ),
    ]  # fmt: skip


def make(directory: Path, run: str = RUN) -> None:
    """Record all of it."""
    rng = random.Random(7)
    recording = rollscope.init(project=PROJECT, run=run, dir=directory)
    for step in range(STEPS):
        for place in range(TASKS):
            recording.log(group(step, place, rng))
        recording.metrics(step, {"loss": 1 / (1 + step), "kl": 0.01 * step})
    recording.log(odd_ones())
    recording.finish()
