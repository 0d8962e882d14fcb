"""Files are told apart by their content, however they are laid out."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from rollscope.formats import Problem, detect, read
from rollscope.model import Rollout

INSPECT = {
    "version": 2,
    "status": "success",
    "eval": {"eval_id": "e", "task": "arc", "model": "m", "dataset": {"name": "arc"}},
    "plan": {"steps": []},
    "samples": [
        {
            "id": 1,
            "epoch": 1,
            "target": "4",
            "messages": [{"role": "user", "content": "2 + 2?"}],
            "scores": {"match": {"value": "C"}},
        }
    ],
}
ATIF = {
    "schema_version": "ATIF-v1.4",
    "session_id": "s",
    "agent": {"name": "terminus", "version": "1"},
    "steps": [{"step_id": 1, "source": "user", "message": "Go."}],
}
SAID = [{"role": "user", "content": "x"}]
TAU = [{"task_id": 0, "trial": 0, "reward": 1.0, "info": {}, "traj": SAID}]


@pytest.mark.parametrize(
    ("name", "body"), [("inspect", INSPECT), ("atif", ATIF), ("tau-bench", TAU)]
)
@pytest.mark.parametrize("indent", [None, 2, "\t"])
@pytest.mark.parametrize("ending", [".json", ".json.gz"])
def test_a_format_is_recognised_however_its_json_is_laid_out(
    name: str, body: Any, indent: Any, ending: str, tmp_path: Path
) -> None:
    path = tmp_path / f"log{ending}"
    data = json.dumps(body, indent=indent).encode()
    path.write_bytes(gzip.compress(data) if ending.endswith("gz") else data)
    assert detect(path) == name
    (found,) = read(path)
    assert isinstance(found, Rollout), str(found)


def test_a_byte_order_mark_hides_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(INSPECT, indent=2).encode())
    assert detect(path) == "inspect"
    assert not any(isinstance(item, Problem) for item in read(path))


CHAT = {"messages": [{"role": "user", "content": "a\n[b]"}], "reward": 1.0}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(CHAT) + "\n" + json.dumps(CHAT),
        json.dumps([CHAT, CHAT]),
        json.dumps([CHAT, CHAT], indent=2),
        json.dumps(CHAT, indent=2) + "\n" + json.dumps(CHAT, indent=2),
    ],
)
def test_chats_are_read_as_lines_as_a_list_and_over_many_lines(text: str, tmp_path: Path) -> None:
    path = tmp_path / "chats.json"
    path.write_text(text)
    assert detect(path) == "jsonl"
    assert [item.reward for item in read(path)] == [1.0, 1.0]  # type: ignore[union-attr]
