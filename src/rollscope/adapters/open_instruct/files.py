"""What open-instruct writes itself with `--save_traces`.

`{run}_metadata.jsonl` names the run and the model; `{run}_rollouts_{shard}.jsonl` holds one
trained row a line: token ids without text, without masks and without the dataset's index. Text
needs the model's tokenizer, taken from this machine's cache if `transformers` is installed.

`prompt_idx` is a row's place divided by the samples per prompt, wrong as soon as rows were
taken out (`mask_truncated_completions`); so is `request_info`. Rows are grouped by step and
prompt tokens here; where a step's rows show that some were taken out, `request_info` is left out.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...model import Error, Rollout, Span
from ...model.identity import prompt_task
from ...model.problem import Problem
from .._lines import first_record, records
from .._rows import TrainingRow, join

_OWN = {"step", "sample_idx", "prompt_idx", "prompt_tokens", "response_tokens", "finish_reason"}


def recognise(path: str | Path) -> bool:
    """Is this a file that `--save_traces` wrote, or a directory of them?"""
    shards = _shards(Path(path))
    return bool(shards) and first_record(shards[0]).keys() >= _OWN


def read(path: str | Path, tokenizer: Any = None) -> Iterator[Rollout | Problem]:
    """Every rollout of a file, or of a directory's shards in order."""
    for file in _shards(Path(path)):
        run, model = _metadata(file)
        decoder, problem = (tokenizer, None) if tokenizer is not None else _tokenizer(model)
        if problem is not None:
            yield Problem(file, None, problem)
        repeats: Counter[str] = Counter()
        for _, lines in itertools.groupby(_rows(file), key=_step):
            rows = list(lines)
            yield from (row for row in rows if isinstance(row, Problem))
            step = [row for row in rows if not isinstance(row, Problem)]
            for rollout in _of_step(step, decoder):
                rollout.run = run
                # A resumed run appends the steps that it repeats to the same file.
                repeats[str(rollout.key)] += 1
                if repeats[str(rollout.key)] > 1:
                    rollout.attempt = repeats[str(rollout.key)] - 1
                    rollout.key = f"{rollout.key}#{rollout.attempt}"
                if model is not None:
                    rollout.meta["model"] = model
                yield rollout


def _shards(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.glob("**/*_rollouts_*.jsonl"))


def _metadata(file: Path) -> tuple[str | None, str | None]:
    run = file.stem.rpartition("_rollouts_")[0] or None
    made = first_record(file.parent / f"{run}_metadata.jsonl")
    return made.get("run_name") or run, made.get("model_name")


def _tokenizer(model: str | None) -> tuple[Any, str | None]:
    if model is None:
        return None, "text is missing: no metadata file says which model's tokenizer was used"
    try:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(model, local_files_only=True), None
    except ImportError:
        return None, f"text is missing: it needs the tokenizer of {model}; pip install transformers"
    except Exception:
        how = f"huggingface-cli download {model}"
        return None, f"text is missing: the tokenizer of {model} is not on this machine; {how}"


def _rows(file: Path) -> Iterator[dict[str, Any] | Problem]:
    for number, row in enumerate(records(file), 1):
        if isinstance(row, Problem) or row.keys() >= _OWN:
            yield row
        else:
            yield Problem(file, number, "no row of open-instruct's --save_traces")


def _step(row: dict[str, Any] | Problem) -> Any:
    """Rows of one step stand together and are numbered from 0."""
    return None if isinstance(row, Problem) else row["step"]


def _of_step(rows: list[dict[str, Any]], tokenizer: Any) -> Iterator[Rollout]:
    prompts = [prompt_task(str(row["prompt_tokens"])) for row in rows]
    sizes = Counter(prompts)
    said = Counter(row["prompt_idx"] for row in rows)
    is_whole = len({*sizes.values(), *said.values()}) == 1 and all(
        len({p for p, r in zip(prompts, rows, strict=True) if r["prompt_idx"] == i}) == 1
        for i in said
    )
    seen: Counter[str] = Counter()
    for row, prompt in zip(rows, prompts, strict=True):
        rollout = _rollout(row, tokenizer, is_whole)
        rollout.task = prompt
        rollout.group = f"train/{rollout.step}/{prompt}"
        rollout.index = seen[prompt] if is_whole else None
        seen[prompt] += 1
        rollout.key = f"open-instruct/train/{rollout.step}/{row['sample_idx']}"
        yield rollout


def _rollout(row: dict[str, Any], tokenizer: Any, is_whole: bool) -> Rollout:
    prompt, response = row["prompt_tokens"], row["response_tokens"]
    info = row.get("request_info") if is_whole else None
    stats = (info or {}).get("tool_call_stats") or []
    joined = join(
        [
            TrainingRow(
                prompt + response,
                len(prompt),
                # Masks are not in the file: with tools, who wrote what is not known.
                None if stats or info is None else [1] * len(response),
                {"logprob": row.get("logprobs")},
            )
        ],
        tokenizer=tokenizer,
    )
    dataset = row.get("dataset")
    rollout = Rollout(
        messages=joined.messages,
        split="train",
        # Steps are counted from 0 in the file, from 1 in open-instruct's metrics.
        step=row["step"] + 1,
        trained_step=row["step"] + 1,
        reward=row.get("reward"),
        advantage=row.get("advantage"),
        stop_reason=row["finish_reason"],
        truncated=row["finish_reason"] != "stop",
        dataset=dataset if dataset is None or isinstance(dataset, str) else "+".join(dataset),
        reference=row.get("ground_truth"),
        fate="trained",
    )
    if info is None and row.get("request_info") is not None:
        rollout.meta["request_info"] = "left out: rows were taken out of this step"
    elif info is not None:
        rollout.meta["request_info"] = {k: v for k, v in info.items() if v}
        if info.get("tool_errors"):
            rollout.error = Error(kind="tool", text=str(info["tool_errors"]))
    for stat in stats:
        failed = None if stat.get("success") else Error(kind="tool", type=stat["tool_name"])
        span = Span(name=stat["tool_name"], error=failed, meta={"seconds": stat.get("runtime")})
        rollout.spans.append(span)
    return rollout
