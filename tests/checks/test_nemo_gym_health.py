"""Every condition of NeMo Gym's `health-check` is found here too, in rollouts that NeMo Gym wrote.

`CHECK_REGISTRY` of its `health/checks.py` names fourteen. Each is brought into real rollouts as
NeMo Gym would have written it, and these are imported and looked at like any others.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import rollscope
from rollscope import Rollout
from rollscope.checks import OneRollout, Settings, scan
from rollscope.checks.registry import ours
from rollscope.formats import read
from rollscope.model.problem import Problem

from .corpus import DATA
from .made import BROKEN

FILE = DATA / "nemo-gym/resources_servers/competitive_coding_challenges/data"

Line = dict[str, Any]

pytestmark = pytest.mark.skipif(not DATA.exists(), reason="the real rollouts are not there")


def lines() -> list[Line]:
    """Five rollouts of one task, with the calls of the model that Gym captures beside them."""
    (path,) = FILE.glob("example_rollouts.jsonl*")
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    found = [json.loads(line) for line in text.splitlines() if line.strip()]
    for n, line in enumerate(found):
        line["_ng_task_index"], line["_ng_rollout_index"] = 0, n
        line["response"]["usage"] = {"input_tokens": 900, "output_tokens": 300}
        ref = {"type": "responses_api_models", "name": "policy_model"}
        answered = {"status_code": 200, "model_ref": ref, "finish_reason": "stop"}
        turn = {"turn_no": 1, "answer": "code", "model_calls": [{"model_call_id": f"c{n}"}]}
        line["ng_trajectory"] = {
            "task_id": "0", "rollout_id": f"0-{n}",
            "turns": [turn],
            "model_calls": [{
                "model_call_id": f"c{n}", "started_at": 10.0, "completed_at": 12.0,
                "response_metadata": answered,
                "token_stats": {"prompt_tokens": 900, "completion_tokens": 300},
            }],
        }  # fmt: skip
    return found


def call(line: Line) -> Line:
    found: Line = line["ng_trajectory"]["model_calls"][0]
    return found


def fails(line: Line, **about: Any) -> None:
    call(line)["response_metadata"] |= {"status_code": 500, "error_category": "http_error"} | about


def no_turns(lines: list[Line]) -> None:
    lines[2]["response"]["output"] = []


def hollow(lines: list[Line]) -> None:
    output = lines[2]["response"]["output"]
    output[:] = [item for item in output if item["type"] == "message"][:1]
    output[0]["content"] = [{"type": "output_text", "text": " \n", "annotations": []}]


def ended_on_failure(lines: list[Line]) -> None:
    last = deepcopy(call(lines[2]))
    last |= {"model_call_id": None, "started_at": 20.0, "completed_at": 21.0, "token_stats": {}}
    lines[2]["ng_trajectory"]["model_calls"].append(last)
    last["response_metadata"] |= {"status_code": 429, "error_category": "http_error"}


def zero_tokens(lines: list[Line]) -> None:
    call(lines[2])["token_stats"]["completion_tokens"] = 0


def no_counts(lines: list[Line]) -> None:
    call(lines[2])["token_stats"] = {}


def not_captured(lines: list[Line]) -> None:
    lines[2]["ng_trajectory"]["turns"][0]["model_calls"].append({"model_call_id": "gone"})


def captured_twice(lines: list[Line]) -> None:
    calls = lines[2]["ng_trajectory"]["model_calls"]
    calls.append(deepcopy(calls[0]))


def failed_call(lines: list[Line]) -> None:
    fails(lines[2])


def other_totals(lines: list[Line]) -> None:
    lines[2]["response"]["usage"]["input_tokens"] = 999


def runaway(lines: list[Line]) -> None:
    hollow(lines)
    lines[2]["response"]["incomplete_details"] = {"reason": "max_output_tokens"}
    call(lines[2])["response_metadata"]["finish_reason"] = "length"


def all_unhealthy(lines: list[Line]) -> None:
    for line in lines:
        line["response"]["output"] = []


def all_calls_failed(lines: list[Line]) -> None:
    for line in lines:
        fails(line)


def twice(lines: list[Line]) -> None:
    lines[3]["_ng_rollout_index"] = lines[2]["_ng_rollout_index"]


CONDITIONS: dict[str, tuple[str, Callable[[list[Line]], None]]] = {
    "rollout_duplicate_identity": ("group.slot", twice),
    "rollout_missing_agent_turns": ("turns.missing", no_turns),
    "rollout_ended_on_failed_model_call": ("call.failed", ended_on_failure),
    "agent_turn_hollow": ("turn.hollow", hollow),
    "model_call_zero_completion_tokens": ("call.tokens", zero_tokens),
    "model_call_missing_token_counts": ("call.tokens", no_counts),
    "trajectory_capture_mismatch, missing": ("call.lost", not_captured),
    "trajectory_capture_mismatch, duplicated": ("call.lost", captured_twice),
    "model_call_failed": ("call.failed", failed_call),
    "rollout_token_count_mismatch": ("call.tokens", other_totals),
    "model_call_runaway_generation": ("turn.hollow", runaway),
    "task_consistently_unhealthy": ("group.unhealthy", all_unhealthy),
    "task_no_successful_model_calls": ("group.unhealthy", all_calls_failed),
}

ASKED = {check for check, _ in CONDITIONS.values()}


def written(lines: list[Line], path: Path) -> list[Rollout | Problem]:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return list(read(path, "nemo-gym"))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int | None, set[str]]]:
    """For each condition, what is found in each of the five rollouts, by their place."""
    root = tmp_path_factory.mktemp("health")
    made: dict[str, Callable[[list[Line]], None]] = {
        id: into for id, (_, into) in CONDITIONS.items()
    }
    for id, into in {"healthy": lambda _: None, **made}.items():
        given = lines()
        into(given)
        with rollscope.init(project="p", run=id, dir=root / "store") as run:
            for n, one in enumerate(written(given, root / "rollouts.jsonl")):
                assert isinstance(one, Rollout)
                one.key, one.split = str(n), "eval"
                run.log(one)
    store = rollscope.open(root / "store")
    asked = {id: check for id, check in ours().items() if id in ASKED}
    assert scan(store, settings=Settings(Path("none"), asked)).broken == {}
    rows = {
        str(row.id): (str(row.run), int(str(row.key))) for row in store.rollouts("", limit=None)
    }
    told: dict[str, dict[int | None, set[str]]] = {run: {} for run, _ in rows.values()}
    for finding in store.findings():
        run_name, n = rows[str(finding.rollout)]
        told[run_name].setdefault(n, set()).add(finding.check)
    return told


def test_what_is_healthy_is_clear(found: dict[str, dict[int | None, set[str]]]) -> None:
    assert found["healthy"] == {}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_is_found(condition: str, found: dict[str, dict[int | None, set[str]]]) -> None:
    check, _ = CONDITIONS[condition]
    assert check in found[condition].get(2, set())
    if not condition.startswith("task_"):
        assert found[condition].get(0, set()) == set(), "its siblings are healthy"


def test_a_retry_that_succeeds_is_healthy(tmp_path: Path) -> None:
    given = lines()
    first = deepcopy(call(given[0]))
    first |= {"model_call_id": "tried", "started_at": 1.0, "completed_at": 2.0, "token_stats": {}}
    first["response_metadata"] |= {"status_code": 429, "error_category": "http_error"}
    given[0]["ng_trajectory"]["model_calls"].append(first)
    (one, *_) = written(given, tmp_path / "rollouts.jsonl")
    assert isinstance(one, Rollout) and len(one.spans) == 2
    assert [*ours()["call.failed"].look(OneRollout(one))] == []


def test_record_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    written(lines()[:1], path)
    with path.open("a") as file:
        file.write('{"responses_create_params": {"input": [], "resp\n')
    one, damaged = read(path, "nemo-gym")
    assert isinstance(one, Rollout) and isinstance(damaged, Problem)


def test_check_execution_error(tmp_path: Path) -> None:
    (one, *_) = written(lines()[:1], tmp_path / "rollouts.jsonl")
    assert isinstance(one, Rollout)
    with rollscope.init(project="p", run="r", dir=tmp_path / "store") as run:
        run.log(one)
    checks = {BROKEN.id: BROKEN, "turn.hollow": ours()["turn.hollow"]}
    report = scan(rollscope.open(tmp_path / "store"), settings=Settings(Path("none"), checks))
    assert report.broken.keys() == {BROKEN.id} and report.rollouts == 1
