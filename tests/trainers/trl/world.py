"""A small world for TRL: a model and reward functions that keep their own records.

The model is a real one with random weights; it notes every `generate`. The reward functions
note what they were given and what they gave. Both know nothing of Rollscope.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import tinytok
import torch
from datasets import Dataset
from transformers import Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

TOK = tinytok.make()


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
            prompts: Any, completions: Any, completion_ids: Any, log_extra: Any, **columns: Any
        ) -> list[float]:
            state = columns.pop("trainer_state")
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
        "project": "letters",
        "seed": 7,
    }
    return kind(**{**settings, **changes})


def trainer(tmp_path: Path, rewards: Rewards, kind: type = GRPOTrainer, **changes: Any) -> Any:
    made: dict[str, Any] = {
        name: changes.pop(name)
        for name in ("eval_dataset", "train_dataset", "reward_funcs", "rollout_func")
        if name in changes
    }
    arguments = RLOOConfig if kind is RLOOTrainer else GRPOConfig
    made.setdefault("train_dataset", rows())
    made.setdefault("reward_funcs", rewards.functions())
    return kind(
        model=model(),
        processing_class=TOK,
        args=config(tmp_path, arguments, **changes),
        **made,
    )
