"""What is exported opens in the programs it is meant for.

Runs in `.venv-readers` (requirements/readers.txt), where Inspect Scout and Hugging Face's
`datasets` live; Rollscope itself is called in its own environment, as a person would.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LINES = [
    {
        "id": f"r{n}", "step": n // 2, "group": f"g{n // 2}", "index": n % 2, "task": f"q-{n // 2}",
        "split": "train" if n < 4 else "eval", "reward": float(n % 2), "project": "p",
        "rewards": {"exact": float(n % 2)}, "environment": "calculator", "truncated": n == 3,
        "meta": {"model": "tiny", "lang": "de"},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [
                {"type": "text", "text": "What is it?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ]},
            {"role": "assistant", "content": None, "reasoning_content": "Let me add.",
             "tool_calls": [{"id": "c1", "type": "function",
                             "function": {"name": "add", "arguments": '{"a": 2, "b": 2}'}}]},
            {"role": "tool", "tool_call_id": "c1", "name": "add", "content": "4"},
            {"role": "assistant", "content": f"It is {n}."},
        ],
    }
    for n in range(6)
]  # fmt: skip


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, rollscope: Callable[..., str]) -> Any:
    """`exported(format)`: where the export of six rollouts lies."""
    folder = tmp_path_factory.mktemp("readers")
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))

    def run(*words: str) -> None:
        rollscope(*words, "--dir", str(folder / "store"))

    run("import", str(folder / "in.jsonl"))

    def export(name: str) -> Path:
        out = folder / (f"{name}.jsonl" if name in ("sft", "pairs") else name)
        if not out.exists():
            run("export", name, "--out", str(out))
        return out

    return export


def test_inspect_scout_reads_the_transcripts(exported: Any) -> None:
    from inspect_scout import transcripts_from
    from inspect_scout._transcript.database.schema import validate_transcript_schema
    from inspect_scout._transcript.types import TranscriptContent

    folder = exported("scout")
    for file in folder.glob("*.parquet"):
        assert validate_transcript_schema(file) == []

    async def read() -> list[Any]:
        async with transcripts_from(str(folder)).reader() as reader:
            everything = TranscriptContent(messages="all", events="all")
            return [await reader.read(info, everything) async for info in reader.index()]

    found = sorted(asyncio.run(read()), key=lambda t: t.metadata["step"] * 2 + t.task_repeat)
    assert len(found) == 6
    first = found[0]
    assert (first.source_type, first.task_id, first.task_repeat) == ("rollscope", "q-0", 0)
    assert [t.score for t in found] == ["0.0", "1.0"] * 3, "Scout keeps numbers as text itself"
    assert [t.metadata["reward"] for t in found] == [0.0, 1.0] * 3
    assert (first.model, first.agent, first.message_count) == ("tiny", "calculator", 5)
    assert first.metadata["split"] == "train"
    system, user, asked, tool, answer = first.messages
    assert [m.role for m in first.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert [part.type for part in user.content] == ["text", "image"]
    assert asked.content[0].reasoning == "Let me add."
    assert (asked.tool_calls[0].function, asked.tool_calls[0].arguments) == (
        "add",
        {"a": 2, "b": 2},
    )
    assert (tool.tool_call_id, tool.function, tool.text) == ("c1", "add", "4")
    assert (system.text, answer.text) == ("Be brief.", "It is 0.")


def test_datasets_loads_the_folder_with_its_splits(exported: Any, tmp_path: Path) -> None:
    import datasets

    folder = exported("hf")
    loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path))
    assert {name: len(split) for name, split in loaded.items()} == {"train": 4, "eval": 2}
    row = loaded["train"][1]
    assert (row["task"], row["reward"], json.loads(row["rewards"])) == ("q-0", 1.0, {"exact": 1.0})
    assert json.loads(row["meta"])["lang"] == "de"
    asked = row["messages"][2]
    assert asked["reasoning_content"] == "Let me add."
    assert asked["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 2, "b": 2}'}
    assert row["messages"][1]["content"] == "What is it?"
    assert json.loads(row["messages"][1]["parts"])[1]["type"] == "image_url"
    assert row["messages"][0]["tool_calls"] == []


def test_datasets_loads_lines_for_fine_tuning_and_pairs(exported: Any, tmp_path: Path) -> None:
    import datasets

    def load(name: str) -> Any:
        return datasets.load_dataset(
            "json", data_files=str(exported(name)), split="train", cache_dir=str(tmp_path)
        )

    sft, pairs = load("sft"), load("pairs")
    assert (len(sft), len(pairs)) == (6, 3)
    assert sft[0]["messages"][4]["content"] == "It is 0."
    answers = {(p["chosen"][-1]["content"], p["rejected"][-1]["content"]) for p in pairs}
    assert answers == {(f"It is {n + 1}.", f"It is {n}.") for n in (0, 2, 4)}
    assert [m["role"] for m in pairs[0]["prompt"]] == ["system", "user"]
