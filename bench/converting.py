"""What converting costs the trainer: `python bench/converting.py`, with transformers and torch.

Rollouts of 4,096 tokens are converted as each trainer hands them over. The processor time of the
thread is what counts: it is time in the trainer's interpreter, whatever else the machine does. Of
`--rounds` the best is taken. `first` is the first time that a tokenizer's tokens are met.

Then verl's are recorded while another thread launches small tensor operations, as a training loop
does. Its speed is compared with when it is alone.
"""

from __future__ import annotations

import argparse
import functools
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

import rollscope
from rollscope import Rollout
from rollscope.adapters._later import Later
from rollscope.model import wire

WORDS = [
    "the",
    " sum",
    " of",
    " 12",
    " and",
    " 30",
    " is",
    "\n",
    "<think>",
    "é",
    "你好",
    " so",
    ".",
    "🙂",
]


@functools.cache
def _trained() -> tuple[Any, list[str]]:
    """A byte-level tokenizer with a real number of merges, made here: nothing is downloaded."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    letters = random.Random(1)
    made = [
        "".join(letters.choices("abcdefghijklmnop", k=letters.randint(2, 9))) for _ in range(4000)
    ]
    texts = [
        " ".join(letters.choices(made, k=50)) + "".join(letters.choices(WORDS, k=9))
        for _ in range(500)
    ]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    marks = ["<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=8000, initial_alphabet=alphabet, special_tokens=marks, show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    return backend, texts


def tokenizer() -> Any:
    from transformers import PreTrainedTokenizerFast

    backend, texts = _trained()
    made = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")
    made.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    made.texts = texts
    return made


class Made(NamedTuple):
    """What an engine made of one prompt."""

    prompt: list[int]
    response: list[int]
    logprobs: list[float]


def rollouts(count: int, tokens: int, tok: Any) -> list[Made]:
    prompt = tok.encode("<|im_start|>user\nWhat is 12 and 30?<|im_end|>\n<|im_start|>assistant\n")
    end = tok.encode("<|im_end|>")
    made = []
    for n in range(count):
        dice = random.Random(n)
        ids: list[int] = []
        while len(ids) < tokens:
            ids += tok.encode(dice.choice(tok.texts))
        ids = ids[: tokens - 1] + end
        made.append(Made(list(prompt), ids, [-dice.random() for _ in ids]))
    return made


Converting = tuple[Callable[[Made], Any], Callable[[Any], list[Rollout]]]
"""What a trainer hands over of one rollout, and the conversion of that."""


# -- the same, as each trainer hands it over: something that converts one ------------------


def verl(tok: Any) -> Converting:
    from rollscope.adapters.verl.convert import Job, convert

    def one(made: Made) -> Any:
        return SimpleNamespace(
            prompt_ids=made.prompt,
            response_ids=made.response,
            response_mask=[1] * len(made.response),
            response_logprobs=made.logprobs,
            reward_score=0.5,
            num_turns=2,
            metrics={},
            extra_fields={},
        )

    return one, lambda output: convert([output], Job(), tokenizer=tok)


def skyrl(tok: Any) -> Converting:
    from rollscope.adapters.skyrl.convert import convert

    given = {"prompts": [[{"role": "user", "content": "What is 12 and 30?"}]]}

    def one(made: Made) -> Any:
        return {
            "prompt_token_ids": [made.prompt],
            "response_ids": [made.response],
            "rewards": [0.5],
            "loss_masks": [[1] * len(made.response)],
            "stop_reasons": ["stop"],
            "rollout_logprobs": [made.logprobs],
        }

    return one, lambda output: convert(given, output, tokenizer=tok)


def areal(tok: Any) -> Converting:
    from rollscope.adapters.areal.convert import convert

    def one(made: Made) -> Any:
        given, wrote = [0] * len(made.prompt), [1] * len(made.response)
        return {
            "input_ids": np.array([made.prompt + made.response]),
            "attention_mask": np.ones((1, len(given) + len(wrote)), bool),
            "loss_mask": np.array([given + wrote]),
            "logprobs": np.array([[0.0] * len(given) + made.logprobs], "f4"),
            "versions": np.array([[-1] * len(given) + [3] * len(wrote)]),
            "rewards": np.array([0.5], "f4"),
        }

    return one, lambda output: convert(output, tokenizer=tok)


def trl(tok: Any) -> Converting:
    from rollscope.adapters.trl.convert import convert

    def one(made: Made) -> Any:
        output = {
            "prompt_ids": np.array([made.prompt]),
            "prompt_mask": np.ones((1, len(made.prompt)), int),
            "completion_ids": np.array([made.response]),
            "completion_mask": np.ones((1, len(made.response)), int),
            "advantages": np.array([0.5], "f4"),
            "sampling_per_token_logps": np.array([made.logprobs], "f4"),
        }
        return made, output

    def converted(pair: Any) -> Any:
        made, output = pair
        asked = [{"prompt": "What is 12 and 30?"}]
        ids = [made.response]
        known = {"prompt_ids": [made.prompt], "tokenizer": tok, "pad": tok.eos_token_id}
        return convert(asked, ["?"], ["!"], ids, output, **known)

    return one, converted


def open_instruct(tok: Any) -> Converting:
    from rollscope.adapters.open_instruct.convert import convert_group

    def one(made: Made) -> Any:
        result = SimpleNamespace(
            responses=[made.response],
            masks=[[1] * len(made.response)],
            logprobs=[made.logprobs],
            finish_reasons=["stop"],
            reward_scores=[0.5],
            token_statistics=None,
            model_step=3,
            index=7,
            prompt_id="0_7",
        )
        return made, result

    return one, lambda pair: convert_group(pair[1], query=pair[0].prompt, tokenizer=tok)


TRAINERS = (verl, skyrl, areal, trl, open_instruct)


class Trainer(threading.Thread):
    """Launches small tensor operations, and counts them."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.done = 0
        self._operation = _operation()

    def run(self) -> None:
        operation = self._operation
        while True:
            for _ in range(20):
                operation()
            self.done += 1

    def speed(self, work: Callable[[], Any]) -> tuple[float, float]:
        before, start = self.done, time.perf_counter()
        work()
        took = time.perf_counter() - start
        return (self.done - before) / took, took


def _operation() -> Callable[[], Any]:
    try:
        import torch
    except ImportError:
        data = np.zeros(64, np.float32)
        return lambda: np.add(data, 1.0, out=data)
    torch.set_num_threads(1)
    tensor = torch.zeros(64)
    return lambda: tensor.add_(1.0)


def _cpu(work: Callable[[], Any]) -> float:
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


def measure(made: list[Made], rounds: int) -> dict[str, dict[str, int]]:
    """Nanoseconds of a thread's processor time, for each token."""
    tokens = sum(len(one.prompt) + len(one.response) for one in made)
    found = {}
    for trainer in TRAINERS:
        one, convert = trainer(tokenizer())  # a tokenizer of its own: its tokens are new
        outputs = [one(m) for m in made]
        convert(outputs[0])  # the copy of the tokenizer
        first = _cpu(lambda: list(map(convert, outputs)))  # noqa: B023
        converted = [rollout for output in outputs for rollout in convert(output)]
        lines = [wire.rollout_line(rollout) for rollout in converted]
        works: dict[str, Callable[[], Any]] = {
            "convert": lambda: list(map(convert, outputs)),  # noqa: B023
            "snapshot": lambda: list(map(wire.rollout_line, converted)),  # noqa: B023
            "text": lambda: [line.encode() for line in lines],  # noqa: B023
        }
        best = {name: min(_cpu(work) for _ in range(rounds)) for name, work in works.items()}
        times = {"first": first, **best}
        found[trainer.__name__] = {n: round(t / tokens * 1e9) for n, t in times.items()}
    return found


def beside(made: list[Made], rounds: int) -> dict[str, float]:
    """The speed of a trainer's thread in the second in which these rollouts are recorded."""
    one, convert = verl(tokenizer())
    outputs = [one(m) for m in made]
    for output in outputs:
        convert(output)
    trainer = Trainer()
    trainer.start()
    with tempfile.TemporaryDirectory() as folder:
        run = rollscope.init(project="bench", run="converting", dir=folder)
        later = Later.of("verl", run)

        def record() -> None:
            end = time.perf_counter() + 1.0
            for output in outputs:
                later(lambda output=output: run.log(convert(output)), holds=output, rollouts=1)
            time.sleep(max(end - time.perf_counter(), 0.0))
            while run.counters.recorded % len(outputs):
                time.sleep(0.01)

        speeds, times = [], []
        for _ in range(rounds):
            free, _ = trainer.speed(lambda: time.sleep(1.0))
            speed, took = trainer.speed(record)
            speeds.append(speed / free)
            times.append(took)
        run.finish()
    return {
        "seconds": round(statistics.median(times), 2),
        "speed": round(statistics.median(speeds), 3),
        "best": round(max(speeds), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    made = rollouts(given.rollouts, given.tokens, tokenizer())
    print("ns a token:")
    for trainer, times in measure(made[:16], given.rounds).items():
        print(f"  {trainer:14s}", times)
    print("beside a trainer:", beside(made, given.rounds))


if __name__ == "__main__":
    main()
