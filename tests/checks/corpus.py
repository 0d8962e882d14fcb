"""Real rollouts that checks are measured on: recorded by other programs, none made for a check.

They lie beside the repository, in `../shared/data`; without it there is nothing to measure on. The
files are split in two halves by their names: thresholds are tuned on one and reported on the other.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from rollscope.formats import read
from rollscope.model import Message, Rollout, Tokens

DATA = Path(__file__).parents[3] / "shared" / "data"

Half = Literal["tuned", "held out"]

_SAMPLES = "prompt=question completion=full_model_response reward=score reference=expected_answer"
_TREE = "each=[].ys[] completion=. reward={} task=idx index=#"
_BASH = (
    "messages=rollouts reward=metrics.public_reward rewards.docker_error=metrics.docker_error "
    "rewards.private=metrics.private_reward"
)

SOURCES = (
    ("nemo-gym", "**/*.jsonl*", "nemo-gym", ""),
    ("swe-agent", "**/*.traj", "swe-agent", ""),
    ("tau-bench", "*.json*", "tau-bench", ""),
    ("inspect-reward-hacking", "evals/*.eval", "inspect", ""),
    ("inspect-reward-hacking", "rollouts_temp/*.json", "columns", _BASH),
    ("reasoning-gym-eval", "math-evals/**/*.json*", "columns",
     f"each=categories[].datasets[].results[].completions[] {_SAMPLES} index=#"),
    ("reasoning-gym-eval", "intra-generalisation/**/*.json*", "columns",
     f"each=categories[].datasets[].results[].completions[] {_SAMPLES} index=#"),
    ("reasoning-gym-eval", "zero-shot/**/*.json*", "columns",
     f"each=results[].completions[] {_SAMPLES} index=#"),
    ("tree-of-thought", "game24/*naive_cot*", "columns", _TREE.format("infos[#].r")),
    ("tree-of-thought", "text/*naive*", "columns", _TREE.format("infos[#].r")),
    ("tgi-snapshots", "**/*.json*", "tgi", ""),
)  # fmt: skip
"""Folder, files, format, and where each field stands."""


class Real(NamedTuple):
    """A rollout, and where it comes from."""

    source: str
    file: str
    half: Half
    rollout: Rollout


def half(file: str) -> Half:
    """Which half a file belongs to: its name alone decides."""
    return "tuned" if hashlib.sha256(file.encode()).digest()[0] % 2 else "held out"


def real(limit: int = 400) -> Iterator[Real]:
    """Real rollouts, at most so many of a file."""
    for source, pattern, name, mapping in SOURCES:
        for path in sorted((DATA / source).glob(pattern)):
            file = path.relative_to(DATA).as_posix()
            kept = 0
            for found in _tokens(path) if name == "tgi" else read(path, name, mapping):
                if not isinstance(found, Rollout) or kept >= limit:
                    continue
                kept += 1
                found.id = f"{file}#{kept}"
                found.dataset = found.dataset or file  # each numbers its tasks by itself
                yield Real(source, file, half(file), found)


def _tokens(path: Path) -> Iterator[Rollout]:
    """Answers of an engine with their tokens. Nobody trained on them, so no format reads them."""
    data = path.read_bytes()
    body = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    for answer in body if isinstance(body, list) else [body]:
        drawn = ((answer.get("details") or {}) if isinstance(answer, dict) else {}).get("tokens")
        if not drawn:
            continue
        text, ends, at = answer["generated_text"], [], 0
        for token in drawn:
            at += 0 if token["special"] else len(token["text"])
            ends.append(at)
        tokens = Tokens([t["id"] for t in drawn], logprob=[t["logprob"] for t in drawn])
        if at == len(text) and "".join(t["text"] for t in drawn if not t["special"]) == text:
            tokens.ends = ends
        prompt = Message(role="user", content=path.parent.name, sampled=False)
        yield Rollout(messages=[
            prompt, Message(role="assistant", content=text, sampled=True, tokens=tokens)
        ])  # fmt: skip
