"""What converting costs beside the trainer: `python bench/converting.py`, with transformers.

Rollouts of 4,096 tokens, as verl hands them over, are converted and recorded. A thread launches
small array operations at the same time, as a training loop does; its speed is compared with
when it is alone.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import random
import tempfile
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np

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


def tokenizer() -> Any:
    """A byte-level tokenizer with a real number of merges, made here: nothing is downloaded."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

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
    wrapped = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")
    wrapped.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    wrapped.texts = texts
    return wrapped


def outputs(count: int, tokens: int, tok: Any) -> list[Any]:
    prompt = tok.encode("<|im_start|>user\nWhat is 12 and 30?<|im_end|>\n<|im_start|>assistant\n")
    end = tok.encode("<|im_end|>")
    made = []
    for n in range(count):
        dice = random.Random(n)
        ids: list[int] = []
        while len(ids) < tokens:
            ids += tok.encode(dice.choice(tok.texts))
        ids = ids[: tokens - 1] + end
        made.append(
            SimpleNamespace(
                prompt_ids=prompt,
                response_ids=ids,
                response_mask=[1] * len(ids),
                response_logprobs=[-dice.random() for _ in ids],
                reward_score=0.5,
                num_turns=2,
                metrics={},
                extra_fields={},
            )
        )
    return made


class Trainer(threading.Thread):
    """Launches small array operations, and counts them."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.done = 0
        self._data = np.zeros(64, np.float32)

    def run(self) -> None:
        while True:
            for _ in range(20):
                np.add(self._data, 1.0, out=self._data)
            self.done += 1

    def speed(self, work: Any) -> tuple[float, float]:
        before, start = self.done, time.perf_counter()
        work()
        took = time.perf_counter() - start
        return (self.done - before) / took, took


def _cpu(work: Any) -> float:
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    import rollscope
    from rollscope.adapters._record import Later, converted
    from rollscope.adapters.verl.convert import Job, convert

    tok = tokenizer()
    rows = outputs(given.rollouts, given.tokens, tok)
    convert([rows[0]], Job(), tokenizer=tok)  # the copy of the tokenizer, its table
    total = given.rollouts * given.tokens
    if given.profile:
        profile = cProfile.Profile()
        profile.enable()
        for row in rows[:8]:
            convert([row], Job(), tokenizer=tok)
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(22)
    half = len(rows) // 2  # every token has been met once
    first, then = (
        _cpu(lambda some=some: [convert([row], Job(), tokenizer=tok) for row in some])
        / sum(len(row.response_ids) for row in some)
        for some in (rows[:half], rows[half:])
    )
    with tempfile.TemporaryDirectory() as folder:
        run = rollscope.init(project="bench", run="converting", dir=folder)
        later = Later.of("verl", run)

        def record() -> None:
            for row in rows:
                later(
                    lambda row: run.log(converted("verl", convert, [row], Job(), tokenizer=tok)),
                    row,
                )
            later.drain()
            run.flush()

        trainer = Trainer()
        trainer.start()
        free, _ = trainer.speed(lambda: time.sleep(2.0))
        beside, took = trainer.speed(record)
        run.finish()
    print(json.dumps({
        "convert_us_per_token": {"first": round(first * 1e6, 3), "later": round(then * 1e6, 3)},
        "tokens": total,
        "record_s": round(took, 3),
        "trainer_speed_beside": round(beside / free, 3),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
