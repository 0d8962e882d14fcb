"""A small world for TRL: a model and reward functions that keep their own records.

The model is a real one with random weights; it notes every `generate`. The reward functions
note what they were given and what they gave. Both know nothing of Rollscope.
"""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import tinytok
import torch
import trl
from datasets import Dataset
from transformers import Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

TOK = tinytok.make()
TOK.model_input_names = ["input_ids", "attention_mask"]  # what older ones of TRL hand on is used

VERSION = tuple(int(part) for part in trl.__version__.split(".")[:2])
NAMES_PROJECT = "project" in {field.name for field in dataclasses.fields(GRPOConfig)}
"""Does a configuration have a project? Transformers has it since 4.57."""
PROJECT = "letters" if NAMES_PROJECT else "trl"


def since(version: str, what: str) -> pytest.MarkDecorator:
    """For tests of something that TRL has since this version."""
    is_there = tuple(int(part) for part in version.split(".")) <= VERSION
    return pytest.mark.skipif(not is_there, reason=f"{what} came with TRL {version}")


class Model(Qwen2ForCausalLM):
    """Notes what it was shown and what it wrote, row by row, without padding."""

    notes: list[tuple[list[int], list[int]]]

    def generate(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        output = super().generate(*args, **kwargs)
        shown, mask = kwargs["input_ids"], kwargs["attention_mask"]
        for row, given, real in zip(output.tolist(), shown.tolist(), mask.tolist(), strict=True):
            prompt = [t for t, m in zip(given, real, strict=True) if m]
            wrote = row[len(given) :]
            if TOK.eos_token_id in wrote:
                wrote = wrote[: wrote.index(TOK.eos_token_id) + 1]
            self.notes.append((prompt, wrote))
        return output


def model() -> Model:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(TOK),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=TOK.eos_token_id,
        pad_token_id=TOK.pad_token_id,
        bos_token_id=None,
    )
    made = Model(config)
    made.notes = []
    return made


def rows(n: int = 8, chat: bool = True) -> Dataset:
    letters = "abcdefgh"[:n]
    prompts: list[Any] = [f"say {c}" for c in letters]
    if chat:
        prompts = [
            [{"role": "system", "content": "Be brief."}, {"role": "user", "content": p}]
            for p in prompts
        ]
    return Dataset.from_list(
        [
            {"prompt": p, "answer": c, "index": 100 + i, "lang": "en"}
            for i, (p, c) in enumerate(zip(prompts, letters, strict=True))
        ]
    )


class Rewards:
    """Two reward functions and their record: one entry for each completion, in order."""

    def __init__(self) -> None:
        self.notes: list[dict[str, Any]] = []
        self.given: list[Any] = []

    def functions(self) -> list[Any]:
        def variety(
            prompts: Any, completions: Any, completion_ids: Any, **columns: Any
        ) -> list[float]:
            state, log_extra = columns.pop("trainer_state"), columns.pop("log_extra", None)
            columns = {k: v for k, v in columns.items() if k in ("answer", "index", "lang")}
            self.given.append(copy.deepcopy((prompts, completions, completion_ids, columns)))
            scores = [float(len(set(ids))) for ids in completion_ids]
            for i, ids in enumerate(completion_ids):
                row = {k: v[i] for k, v in columns.items()}
                said = copy.deepcopy(completions[i])
                self.notes.append(
                    {"ids": list(ids), "said": said, "variety": scores[i], **row}
                    | {"updates": state.global_step}
                )
            if log_extra is not None:  # since TRL 1.0
                log_extra("length", [len(ids) for ids in completion_ids])
            return scores

        def vowels(completions: Any, **_: Any) -> list[float | None]:
            texts = [c if isinstance(c, str) else c[0]["content"] for c in completions]
            scores = [None if "q" in t else float(sum(t.count(v) for v in "aeiou")) for t in texts]
            for note, score in zip(self.notes[-len(texts) :], scores, strict=True):
                note["vowels"] = score
            return scores

        return [variety, vowels]


def config(tmp_path: Path, kind: type = GRPOConfig, **changes: Any) -> Any:
    settings = {
        "output_dir": str(tmp_path / "my-run"),
        "per_device_train_batch_size": 4,
        "num_generations": 4,
        "max_completion_length": 12,
        "max_steps": 2,
        "logging_steps": 1,
        "report_to": [],
        "use_cpu": True,
        "beta": 0.0,
        "save_strategy": "no",
        "disable_tqdm": True,
        "reward_weights": [1.0, 0.5],
        "seed": 7,
    }
    settings |= {"project": "letters"} if NAMES_PROJECT else {}
    return kind(**{**settings, **changes})


_NOT_SETTINGS = (
    "eval_dataset", "train_dataset", "reward_funcs", "rollout_func", "environment_factory",
)  # fmt: skip


def trainer(tmp_path: Path, rewards: Rewards, kind: type = GRPOTrainer, **changes: Any) -> Any:
    made: dict[str, Any] = {name: changes.pop(name) for name in _NOT_SETTINGS if name in changes}
    arguments = RLOOConfig if kind is RLOOTrainer else GRPOConfig
    made.setdefault("train_dataset", rows())
    made.setdefault("reward_funcs", rewards.functions())
    return kind(
        model=model(),
        processing_class=TOK,
        args=config(tmp_path, arguments, **changes),
        **made,
    )
