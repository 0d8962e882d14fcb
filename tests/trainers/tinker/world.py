"""A small world for tinker-cookbook: its real environments, and a policy that keeps a record.

The policy is the hosted service's place: it answers from a script and notes what it was shown
and what it wrote. It knows nothing of Rollscope.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import chz
import tinytok
from tinker_cookbook import renderers
from tinker_cookbook.completers import MessageCompleter, TokenCompleter, TokensWithLogprobs
from tinker_cookbook.rl.message_env import EnvFromMessageEnv, MessageEnv, MessageStepResult
from tinker_cookbook.rl.problem_env import ProblemEnv
from tinker_cookbook.rl.types import EnvGroupBuilder, RLDataset, RLDatasetBuilder


def renderer(name: str) -> Any:
    """A renderer with a tokenizer of its own. tinker-cookbook renders in threads, and Hugging
    Face's tokenizers fail ("Already borrowed") when two threads use one: a trap of theirs."""
    tokenizer = tinytok.make()
    tokenizer.bos_token = "<pad>"
    return renderers.get_renderer(name, tokenizer)


TOK = tinytok.make()
PLAIN = renderer("role_colon")
CHAT = renderer("qwen3_disable_thinking")


def encode(text: str) -> list[int]:
    return list(TOK.encode(text, add_special_tokens=False))


class Policy(TokenCompleter):
    """Answers by script, after waits that mix the order up, and notes every call."""

    def __init__(self, script: Sequence[Any] | Callable[[str], Any], wait: bool = True) -> None:
        self.script, self.wait = script, wait
        self.calls = 0
        self.notes: list[tuple[list[int], TokensWithLogprobs]] = []

    async def __call__(
        self, model_input: Any, stop: Any, *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        n, self.calls = self.calls, self.calls + 1
        shown = list(model_input.to_ints())
        said = self.script(TOK.decode(shown)) if callable(self.script) else None
        said = self.script[n % len(self.script)] if said is None else said  # type: ignore[index]
        await asyncio.sleep(0.002 * ((n * 7) % 5) if self.wait else 0)
        if isinstance(said, Exception):
            raise said
        text, reason = said if isinstance(said, tuple) else (said, "stop")
        ids = encode(text)
        answer = TokensWithLogprobs(ids, [-0.125 * (k % 8) for k in range(len(ids))], reason)
        self.notes.append((shown, answer))
        return answer

    def of(self, first: list[int]) -> list[tuple[list[int], TokensWithLogprobs]]:
        return [note for note in self.notes if note[0] == first]


class Add(ProblemEnv):
    def __init__(self, renderer: Any, a: int, b: int) -> None:
        super().__init__(renderer, convo_prefix=[{"role": "system", "content": "Add."}])
        self.a, self.b = a, b

    def get_question(self) -> str:
        return f"{self.a}+{self.b}=?"

    def check_answer(self, sample_str: str) -> bool:
        return sample_str.strip() == str(self.a + self.b)

    def check_format(self, sample_str: str) -> bool:
        return True

    def get_reference_answer(self) -> str:
        return str(self.a + self.b)


class Diary(MessageEnv):
    """Changes its history in place, also that which it handed out before."""

    def __init__(self, turns: int = 3, prompt: str = "hi", fails_at: int | None = None) -> None:
        self.history: list[Any] = [{"role": "user", "content": prompt}]
        self.n, self.turns, self.fails_at = 0, turns, fails_at

    async def initial_observation(self) -> list[Any]:
        return self.history

    async def step(self, message: Any) -> MessageStepResult:
        self.n += 1
        if self.n == self.fails_at:
            raise OSError("the sandbox is gone")
        self.history.append(message)
        self.history.append({"role": "tool", "content": f"result {self.n}", "name": "look"})
        result = MessageStepResult(
            reward=0.5,
            episode_done=self.n >= self.turns,
            next_messages=self.history,
            metrics={"n": self.n},
            logs={"note": f"after {self.n}"},
        )
        self.history[0]["content"] = self.history[0]["content"] + "!"  # in place
        return result


@dataclass
class Diaries(EnvGroupBuilder):
    size: int = 2
    template: str = "qwen3_disable_thinking"
    turns: int = 3
    prompt: str = "hi"
    fails_at: int | None = None
    limit: int | None = None
    cleaned: int = 0

    async def make_envs(self) -> list[Any]:
        return [
            EnvFromMessageEnv(
                renderer(self.template),
                Diary(self.turns, self.prompt, self.fails_at),
                max_trajectory_tokens=self.limit,
            )
            for _ in range(self.size)
        ]

    async def cleanup(self) -> None:
        self.cleaned += 1

    def logging_tags(self) -> list[str]:
        return ["diary"]


class Says(MessageCompleter):
    """A model beside the policy: a grader, an answerer."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        self.answer = answer
        self.notes: list[tuple[str, str]] = []

    async def __call__(self, messages: list[Any]) -> Any:
        text = "\n".join(str(m["content"]) for m in messages)
        said = self.answer(text)
        self.notes.append((text, said))
        return {"role": "assistant", "content": said}


class Batches(RLDataset):
    def __init__(self, batches: Sequence[Sequence[Any]]) -> None:
        self.batches = batches

    def get_batch(self, index: int) -> Sequence[Any]:
        return self.batches[index]

    def __len__(self) -> int:
        return len(self.batches)


@chz.chz
class Builder(RLDatasetBuilder):
    train: Any = None
    test: Any = None

    async def __call__(self) -> tuple[Any, Any]:
        return self.train, self.test
