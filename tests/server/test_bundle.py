"""What a bundle gives away is redacted as any export is."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import rollscope
from rollscope.model import Message, Rollout, Tokens
from rollscope.server import bundle


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands for the built page: its files are copied and not looked at here."""
    static = tmp_path / "static"
    static.mkdir()
    (static / "index.html").write_text("<title>Rollscope</title>")
    monkeypatch.setattr(sys.modules["rollscope.server.bundle"], "STATIC", static)


def bundled(tmp_path: Path, *rollouts: Rollout) -> Path:
    with rollscope.init(project="p", run="of ada@x.org", dir=tmp_path / "s") as run:
        run.log(rollouts)
        run.metrics(1, {"loss": 1.0})
    with closing(rollscope.open(tmp_path / "s")) as store:
        bundle(store, "", tmp_path / "site", redact="email")
    return tmp_path / "site" / "data"


def loaded(file: Path) -> Any:
    return json.loads(file.read_text())


@pytest.mark.usefixtures("page")
def test_tasks_that_are_named_after_people_stay_two_tasks(tmp_path: Path) -> None:
    data = bundled(tmp_path, Rollout(step=1, task="ada@x.org"), Rollout(step=1, task="bob@x.org"))
    rows = loaded(data / "rows.json")["rows"]
    tasks = {row["task"] for row in rows}
    assert len(tasks) == 2
    assert all(task.startswith("[email]-") for task in tasks)
    details = [loaded(data / "rollouts" / f"{n}.json")["detail"]["row"] for n in range(2)]
    assert [detail["task"] for detail in details] == [row["task"] for row in rows]
    assert loaded(data / "metrics.json")[0]["run"] == rows[0]["run"]


@pytest.mark.usefixtures("page")
def test_a_secret_that_is_escaped_in_json_is_found(tmp_path: Path) -> None:
    escaped = '{"to": "ada\\u0040x.org"}'
    data = bundled(tmp_path, Rollout(step=1, messages=[Message(role="tool", content=escaped)]))
    for file in data.rglob("*.json"):
        assert "x.org" not in file.read_text(), file


@pytest.mark.usefixtures("page")
def test_streams_that_may_be_token_ids_go_with_them(tmp_path: Path) -> None:
    tokens = Tokens([71, 72, 73], streams={"logprob": [-0.5, -0.5, -0.5], "raw": [71, 72, 73]})
    said = Message(role="assistant", content="to ada@x.org", tokens=tokens)
    data = bundled(tmp_path, Rollout(step=1, messages=[said]))
    (shown,) = loaded(data / "rollouts" / "0.json")["tokens"]
    assert set(shown["streams"]) == {"logprob"}
