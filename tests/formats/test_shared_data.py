"""Real rollouts of other projects come in without a silent loss.

What is counted here is counted from the raw files by other means than the readers use.
"""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rollscope.formats import Problem, detect, read
from rollscope.model import Rollout

DATA = Path(__file__).parents[3] / "shared" / "data"

pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason="the real rollouts lie in ../shared/data, which is not here"
)


def raw(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def load(path: Path) -> Any:
    return json.loads(raw(path))


def whole(path: Path, name: str | None = None, mapping: str = "") -> list[Rollout]:
    """All rollouts; a problem is a failure."""
    found = list(read(path, name, mapping))
    assert [str(item) for item in found if isinstance(item, Problem)] == []
    return [item for item in found if isinstance(item, Rollout)]


def calls(rollouts: list[Rollout]) -> int:
    return sum(len(m.tool_calls) for r in rollouts for m in r.messages)


def test_nemo_gym() -> None:
    bodies = [
        json.loads(line)
        for file in sorted((DATA / "nemo-gym").rglob("*.jsonl*"))
        for line in raw(file).splitlines()
    ]

    def flat(items: Any) -> Iterator[Any]:
        for item in items:
            yield from flat(item) if isinstance(item, list) else (item,)

    output = [i for b in bodies for i in flat(b["response"]["output"])]
    given = [b["responses_create_params"]["input"] for b in bodies]
    texts = sum(isinstance(g, str) for g in given)
    inputs = [i for g in given if isinstance(g, list) for i in flat(g)]
    instructed = sum(bool(b["responses_create_params"].get("instructions")) for b in bodies)
    assert detect(DATA / "nemo-gym") == "nemo-gym"
    found = whole(DATA / "nemo-gym")
    assert len(found) == len(bodies) == 413
    expected = len(output) + len(inputs) + texts + instructed
    assert sum(len(r.messages) for r in found) == expected
    asked = sum(i.get("type") == "function_call" for i in (*output, *inputs))
    assert calls(found) == asked
    assert [r.reward for r in found] == [float(b["reward"]) for b in bodies]
    tokens = sum(len(i.get("generation_token_ids") or ()) for i in output)
    assert sum(len(m.tokens) for r in found for m in r.messages if m.tokens) == tokens > 4000
    places = [(r.dataset, r.environment, r.task, r.index) for r in found]
    assert len({r.dataset for r in found}) == 83, "one a file: each numbers its tasks from 0"
    assert len(set(places)) > 0.95 * len(places)


def test_inspect_logs() -> None:
    logs = sorted((DATA / "inspect-reward-hacking" / "evals").glob("*.eval"))
    samples = []
    for log in logs:
        with zipfile.ZipFile(log) as file:
            names = [n for n in file.namelist() if n.startswith("samples/")]
            samples += [json.loads(file.read(name)) for name in names]
    found = whole(logs[0].parent)
    assert detect(logs[0].parent) == detect(logs[0]) == "inspect"
    assert len(found) == len(samples) == 594
    assert sum(len(r.messages) for r in found) == sum(len(s["messages"]) for s in samples)
    letters = {"C": 1.0, "I": 0.0}
    values = [next(iter(s["scores"].values()))["value"] if s["scores"] else None for s in samples]
    assert [r.reward for r in found] == [letters.get(v, v) for v in values]
    text = json.dumps([[m.content for m in r.messages] for r in found])
    assert "attachment://" not in text
    assert sum(r.truncated is True for r in found) == 103
    assert sum(r.error is not None and r.error.kind == "infrastructure" for r in found) == 1


def test_raw_tinker_rollouts_through_the_mapping() -> None:
    files = sorted((DATA / "inspect-reward-hacking" / "rollouts_temp").glob("*.json"))
    mapping = (
        "messages=rollouts reward=metrics.public_reward rewards.private=metrics.private_reward "
        "environment=env_type meta.docker_error=metrics.docker_error"
    )
    found = [rollout for file in files for rollout in whole(file, "columns", mapping)]
    bodies = [load(file) for file in files]
    assert len(found) == 97
    assert [len(r.messages) for r in found] == [len(b["rollouts"]) for b in bodies]
    assert sum(r.reward == 1.0 for r in found) == 30
    assert sum(r.meta["docker_error"] == 1.0 for r in found) == 39


def test_swe_agent() -> None:
    files = sorted((DATA / "swe-agent").rglob("*.traj*"))
    bodies = [load(file) for file in files]
    found = whole(DATA / "swe-agent")
    assert detect(DATA / "swe-agent") == "swe-agent"
    assert len(found) == len(files) == 22
    assert sum(len(r.messages) for r in found) == sum(len(b["history"]) for b in bodies)
    asked = sum(len(m.get("tool_calls") or ()) for b in bodies for m in b["history"])
    assert calls(found) == asked > 0
    assert sum(len(r.spans) for r in found) == sum(len(b.get("trajectory", ())) for b in bodies)
    assert sum(r.task == "marshmallow-code__marshmallow-1867" for r in found) == 8
    assert len({r.key for r in found}) == 22, "attempts at one issue are told apart"
    assert all(r.reward is None for r in found), "there is no reward, so none is made up"


def test_tau_bench() -> None:
    path = DATA / "tau-bench" / "gpt-4o-airline.json.gz"
    bodies = load(path)
    found = whole(path)
    assert detect(path) == "tau-bench"
    assert len(found) == len(bodies) == 200
    assert sum(len(r.messages) for r in found) == sum(len(b["traj"]) for b in bodies)
    asked = sum(len(m.get("tool_calls") or ()) for b in bodies for m in b["traj"])
    assert calls(found) == asked > 0
    assert sum(r.reward == 1.0 for r in found) == 84
    assert len({r.task for r in found}) == 50
    empty = sum(m.content is None for r in found for m in r.messages if m.role == "assistant")
    assert empty == 1074


SAMPLES = "each=categories[].datasets[].results[].completions[]"
ANSWERS = "prompt=question completion=full_model_response reward=score reference=expected_answer"


def test_reasoning_gym_through_the_mapping() -> None:
    count = rewards = 0
    for file in sorted((DATA / "reasoning-gym-eval").rglob("*.json*")):
        body = load(file)
        nested = "categories" in body
        each = SAMPLES if nested else "each=results[].completions[]"
        found = whole(file, "columns", f"{each} {ANSWERS} index=#")
        results = (
            [r for c in body["categories"] for d in c["datasets"] for r in d["results"]]
            if nested
            else body["results"]
        )
        samples = [s for r in results for s in r["completions"]]
        assert len(found) == len(samples)
        assert [r.reward for r in found] == [
            None if s.get("score") is None else float(s["score"]) for s in samples
        ]
        silent = sum(s.get("full_model_response") is None for s in samples)
        assert sum(len(r.messages) == 1 for r in found) == silent
        count += len(found)
        rewards += sum(r.reward is not None for r in found)
    assert count > 8000
    assert rewards > 8000


@pytest.mark.parametrize(
    ("name", "mapping", "independent"),
    [
        (
            "game24/*naive_cot*",
            "each=[].ys[] completion=. reward=infos[#].r task=idx index=#",
            lambda body: [float(i["r"]) for b in body for i in b["infos"]],
        ),
        (
            "game24/*naive_standard*",
            "each=[].ys[] completion=. reward=accs[#] task=idx index=#",
            lambda body: [float(a) for b in body for a in b["accs"]],
        ),
        (
            "text/*naive*",
            "each=[].ys[] completion=. reward=infos[#].r meta.judges=infos[#].rs task=idx index=#",
            lambda body: [float(i["r"]) for b in body for i in b["infos"]],
        ),
        (
            "crosswords/*naive*",
            "each=[].ys[] completion=. reward=infos[#].r rewards.word=infos[#].r_word task=idx",
            lambda body: [float(i["r"]) for b in body for i in b["infos"]],
        ),
        (
            "crosswords/infoss*",
            "each=[][] reward=info.r_word rewards.letter=info.r_letter task=## index=#",
            lambda body: [float(s["info"]["r_word"]) for b in body for s in b],
        ),
        (
            "*/*propose*",
            "each=[].steps[].new_ys[] completion=. reward=values[#] prompt=x",
            lambda body: [float(v) for b in body for s in b["steps"] for v in s["values"]],
        ),
        (
            "text/*sample_select*",
            "each=[].steps[].new_ys[] completion=. reward=values[#] prompt=x",
            lambda body: [float(v) for b in body for s in b["steps"] for v in s["values"]],
        ),
    ],
)
def test_tree_of_thought_through_the_mapping(
    name: str, mapping: str, independent: Callable[[Any], list[float]]
) -> None:
    files = sorted((DATA / "tree-of-thought").glob(name))
    assert files
    for file in files:
        found = whole(file, "columns", mapping)
        assert [r.reward for r in found] == independent(load(file))
