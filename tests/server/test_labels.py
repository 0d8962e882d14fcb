"""Labels are facts: they have an author and a time, can be queried, and last."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

import rollscope
from rollscope.cli import main
from rollscope.model import Message, Rollout
from rollscope.query import Store


@pytest.fixture
def written(tmp_path: Path) -> Path:
    run = rollscope.init(project="p", run="r", dir=tmp_path)
    run.log(
        [
            Rollout(key=str(n), step=n, messages=[Message(role="user", content="x")])
            for n in range(3)
        ]
    )
    run.finish()
    return tmp_path  # fmt: skip


def put(site: Any, **body: Any) -> None:
    answer = requests.post(f"{site.url}/api/labels", json=body, timeout=60)
    assert answer.ok, answer.text


def test_a_label_can_be_queried_at_once_and_taken_back(
    written: Path, serve: Callable[..., Any]
) -> None:
    with serve(written) as site:
        id = site.get("rollouts")["rows"][0]["id"]
        put(site, rollout=id, label="reward hack", author="ada")
        assert site.get("rollouts", q='label:"reward hack"')["count"] == 1
        note = site.get(f"rollouts/{id}")["notes"][0]
        assert (note["name"], note["author"]) == ("label.reward hack", "ada")
        assert abs(note["time"] - time.time()) < 600
        put(site, rollout=id, label="reward hack", value=False)
        assert site.get("rollouts", q='label:"reward hack"')["count"] == 0


def test_a_note_about_a_message_is_kept(written: Path, serve: Callable[..., Any]) -> None:
    with serve(written) as site:
        id = site.get("rollouts")["rows"][0]["id"]
        put(site, rollout=id, note="look here", message=0)
        notes = site.get(f"rollouts/{id}")["notes"]
        assert [(n["name"], n["value"], n["message"]) for n in notes] == [("note", "look here", 0)]


def test_labels_last_after_the_server_is_gone(written: Path, serve: Callable[..., Any]) -> None:
    with serve(written) as site:
        id = site.get("rollouts")["rows"][0]["id"]
        put(site, rollout=id, label="good")
    assert Store(written).rollouts("label:good").ids() == [id]


def test_labels_outlive_compaction(written: Path, serve: Callable[..., Any]) -> None:
    with serve(written) as site:
        id = site.get("rollouts")["rows"][0]["id"]
        put(site, rollout=id, label="good", author="ada")
        put(site, rollout=id, note="look here", message=0, author="ada")
        before = site.get(f"rollouts/{id}")["notes"]
    assert main(["compact", "--dir", str(written)]) == 0
    assert list(written.glob("p/r/merged/*")), "it was compacted"
    assert Store(written).rollouts("label:good").ids() == [id]
    with serve(written) as site:
        assert site.get(f"rollouts/{id}")["notes"] == before
        put(site, rollout=id, label="good", value=False)
        assert site.get("rollouts", q="label:good")["count"] == 0
    assert main(["compact", "--dir", str(written)]) == 0
    assert Store(written).rollouts("label:good").ids() == []


def test_the_beginning_of_an_id_is_enough(written: Path, serve: Callable[..., Any]) -> None:
    with serve(written) as site:
        id = site.get("rollouts")["rows"][0]["id"]
        put(site, rollout=id[:8], label="good")
        assert [row["id"] for row in site.get("rollouts", q="label:good")["rows"]] == [id]


def test_what_is_not_there_cannot_be_labelled(written: Path, serve: Callable[..., Any]) -> None:
    with serve(written) as site:
        id = site.get("rollouts")["rows"][0]["id"]
        for wrong in ({"message": 1}, {"message": -1}, {"message": 10**30}, {"author": "x" * 999},
                      {"label": "x" * 999}, {"label": ""}, {"value": None}):  # fmt: skip
            body = {"rollout": id, "label": "good", **wrong}
            answer = requests.post(f"{site.url}/api/labels", json=body, timeout=60)
            assert answer.status_code == 400, wrong
        assert site.get(f"rollouts/{id}")["notes"] == []


def test_an_unknown_rollout_cannot_be_labelled(written: Path, serve: Callable[..., Any]) -> None:
    with serve(written) as site:
        body = {"rollout": "nobody", "label": "good"}
        assert requests.post(f"{site.url}/api/labels", json=body, timeout=60).status_code == 404


def test_what_is_recorded_while_one_looks_is_told(written: Path, serve: Callable[..., Any]) -> None:
    with serve(written) as site:
        stream = requests.get(f"{site.url}/api/events", stream=True, timeout=60)
        lines = (line for line in stream.iter_lines(chunk_size=1) if line.startswith(b"data:"))
        first = next(lines)
        run = rollscope.init(project="p", run="r", dir=written)
        run.log(Rollout(key="new", step=9, messages=[Message(role="user", content="hello")]))
        # A word may come in between: when the log is there and the rollout is not yet in it.
        is_told = any(b'"rollouts":4' in line for line in itertools.islice(lines, 9))
        run.finish()
        stream.close()
    assert b'"rollouts":3' in first
    assert is_told
