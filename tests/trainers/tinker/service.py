"""The hosted service, replaced: samples by script, "trains" by noting what it was given.

Everything else is tinker-cookbook's own: `train.main`, its loops, evaluators, loggers.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tinker import TensorData
from world import TOK, encode

LESS = 1 / 128
"""By so much the trainer's log probabilities are lower than those of sampling."""


class Future:
    """What the calls of tinker 0.38 return: asked for at once, waited for in one of three ways."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def __await__(self) -> Any:
        return self.coroutine().__await__()

    async def coroutine(self) -> Any:
        made = await self._call
        return made.result if isinstance(made, Done) else made

    def result(self) -> Any:
        return asyncio.run(self.coroutine())


def also_as_futures(cls: Any) -> Any:
    """For each `x_async` that older versions of tinker-cookbook call, the `x` of newer ones."""
    for name, method in list(vars(cls).items()):
        if name.endswith("_async"):

            def asked(self: Any, *args: Any, _method: Any = method, **kwargs: Any) -> Future:
                return Future(_method(self, *args, **kwargs))

            setattr(cls, name.removesuffix("_async"), asked)
    return cls


@also_as_futures
class Sampling:
    """A sampling client. Notes each sample in a file of its process, so that pools can, too."""

    def __init__(self, notes: str, version: int) -> None:
        self.notes, self.version = notes, version

    async def sample_async(self, prompt: Any, num_samples: int, sampling_params: Any) -> Any:
        shown = list(prompt.to_ints())
        turn = _count(self.notes)
        # Right at every other turn, so that the rewards of a group differ; 9+2 always right.
        question = TOK.decode(shown)
        right = sum(int(n) for n in question.split("=?")[0].split()[-1].split("+"))
        answer = right if "9+" in question or turn % 2 else right + 1 + turn
        ids = encode(f" {answer}\n\nUser:")
        logprobs = [-0.5 - 0.0625 * (k % 4) for k in range(len(ids))]
        row = {"shown": shown, "wrote": ids, "logprobs": logprobs, "version": self.version}
        row |= {"pid": os.getpid(), "temperature": sampling_params.temperature}
        with (Path(self.notes) / f"{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        sample = SimpleNamespace(
            tokens=ids, logprobs=logprobs, stop_reason="stop", sequence_id=None
        )
        return SimpleNamespace(sequences=[sample], prompt_cache_hit_tokens=0)

    def result(self) -> Sampling:
        return self

    def __await__(self) -> Any:
        yield from ()
        return self

    async def compute_logprobs_async(self, prompt: Any) -> list[float | None]:
        """A teacher that finds each token as likely as any other."""
        return [None, *(-1.0 for _ in prompt.to_ints()[1:])]


def _count(notes: str) -> int:
    file = Path(notes) / f"{os.getpid()}.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def samples(notes: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for f in sorted(notes.glob("*.jsonl"))
        for line in f.read_text().splitlines()
    ]


class Done:
    def __init__(self, result: Any) -> None:
        self.result = result

    async def result_async(self) -> Any:
        return self.result


@also_as_futures
class Training:
    """A training client: the log probabilities it returns are those it was given, minus 1."""

    def __init__(self, notes: str) -> None:
        self.notes = notes
        self.version = 0
        self.data: list[list[Any]] = []

    def get_tokenizer(self) -> Any:
        return TOK

    async def forward_backward_async(self, data: list[Any], **_: Any) -> Done:
        self.data.append(data)
        outputs = [
            {"logprobs": TensorData.from_torch(d.loss_fn_inputs["logprobs"].to_torch() - LESS)}
            for d in data
        ]
        return Done(SimpleNamespace(loss_fn_outputs=outputs, metrics={}))

    async def optim_step_async(self, _: Any) -> Done:
        self.version += 1
        return Done(SimpleNamespace(metrics={"optim/norm": 0.5 * self.version}))

    async def save_weights_and_get_sampling_client_async(self, **_: Any) -> Sampling:
        return Sampling(self.notes, self.version)

    def create_sampling_client(self, path: str, **_: Any) -> Sampling:
        return Sampling(self.notes, self.version)

    async def save_state_async(self, name: str, **_: Any) -> Done:
        return Done(SimpleNamespace(path=f"tinker://state/{name}"))

    async def save_weights_for_sampler_async(self, name: str, **_: Any) -> Done:
        return Done(SimpleNamespace(path=f"tinker://sampler/{name}"))


@also_as_futures
class Service:
    def __init__(self, notes: Path) -> None:
        notes.mkdir(parents=True, exist_ok=True)
        self.training = Training(str(notes))

    async def create_lora_training_client_async(self, *_: Any, **__: Any) -> Training:
        return self.training

    async def create_training_client_from_state_with_optimizer_async(
        self, *_: Any, **__: Any
    ) -> Training:
        return self.training

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None: ...

    async def get_training_run_by_tinker_path_async(self, _: str) -> Any:
        return SimpleNamespace(user_metadata={})

    def create_rest_client(self) -> Service:
        return self

    def create_sampling_client(self, **_: Any) -> Sampling:
        return Sampling(self.training.notes, 0)

    def rows(self) -> list[dict[str, list[float]]]:
        """Every row that was trained on, in order."""
        return [
            {name: values.to_torch().tolist() for name, values in d.loss_fn_inputs.items()}
            for batch in self.training.data
            for d in batch
        ]
