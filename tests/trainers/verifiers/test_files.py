"""What verifiers and prime-rl write is read whole: tokens, streams, cohorts, annotations.

The episodes are verifiers' own objects, written by its own code. prime-rl cannot be installed
here; its files are laid out as its file monitor does.
"""

from __future__ import annotations

import asyncio
import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
import verifiers.v1 as vf
from backports import zstd
from restore import restore, said
from stored import Stored, flat
from verifiers.v1.episode import (
    EnvInfo,
    Episode,
    GroupInfo,
    PolicySpan,
    TrainRunInfo,
    TrainWorkInfo,
)
from verifiers.v1.trace import Error
from verifiers.v1.utils.trace_store import write_episode
from world import BRANCHED, agent_config, serving, task

from rollscope.adapters import verifiers as adapter
from rollscope.cli import main
from rollscope.model import Rollout
from rollscope.model.problem import Problem


@cache
def _live() -> Any:
    async def main() -> Any:
        async with serving() as server, vf.make_agent(agent_config(server)) as agent:
            return await agent.run(task(0, BRANCHED))

    return asyncio.run(main())


def trace(n: int, advantage: float | None = None) -> Any:
    """A real trace, with tokens and every stream that a trainer may have left on its nodes."""
    made = copy.deepcopy(_live())
    made.id = f"trace-{n}"
    for i, node in enumerate(made.nodes):
        node.token_ids = [1000 * n + 10 * i + k for k in range(5)]
        node.mask = [False, False, True, True, True] if node.sampled else [False] * 5
        node.is_content = [False, True, True, True, True]
        if node.sampled:
            node.logprobs = [-0.123456789 * (k + 1) for k in range(3)]
            node.reference_logprobs = [-0.5, -0.25, -0.125]
            node.loss_weights = {"echo": [0.0, 0.5, 1.0, 1.0, 1.0]}
            node.advantages = None if advantage is None else [advantage] * 3
    return made


def episode(n: int, step: int = 3, **changes: Any) -> Any:
    traces = changes.pop("traces", None)
    made = trace(n, changes.pop("advantage", None)) if traces is None else None
    return Episode(
        id=f"episode-{n}",
        env=EnvInfo(id="echoes", name="my-echoes"),
        task=_live().task,
        group=GroupInfo(id=f"group-{n // 2}"),
        run=TrainRunInfo(
            id="run-id",
            name="run-name",
            work=TrainWorkInfo(step=step, policy=PolicySpan(start=step - 1, end=step)),
        ),
        traces=[made] if traces is None else traces,
        ok=True,
        **changes,
    )


def check(rollout: Rollout, n: int) -> None:
    wanted = trace(n)
    assert rollout.key == f"trace-{n}"
    assert flat(rollout) == [t for node in wanted.nodes for t in node.token_ids]
    for message, node in zip(rollout.messages, wanted.nodes, strict=True):
        assert message.tokens is not None
        assert [bool(m) for m in message.tokens.mask] == node.mask
        if node.sampled:
            assert message.tokens.logprob == [None, None, *node.logprobs]
            assert message.tokens.ref_logprob == [None, None, -0.5, -0.25, -0.125]
            assert message.tokens.streams["loss_weight.echo"] == node.loss_weights["echo"]


def test_identity_comes_from_the_episode() -> None:
    (rollout,) = adapter.convert(episode(5))
    check(rollout, 5)
    assert (rollout.step, rollout.split, rollout.group) == (3, "train", "group-2")
    assert (rollout.policy_version, rollout.run) == (2, "run-name")
    assert rollout.environment == "my-echoes"
    assert rollout.meta["episode_id"] == "episode-5"
    assert rollout.task == _live().task.key


def test_nothing_of_an_episode_is_lost() -> None:
    made = episode(1, advantage=0.5)
    (rollout,) = adapter.convert(made)
    assert restore(rollout) == said(made.traces[0].to_record(float_decimals=None))
    record = made.to_record(float_decimals=None)
    kept = rollout.meta["episode"]
    assert kept["run"] == said(record["run"]) and kept["ok"] is True
    assert rollout.meta["env"] == said(record["env"])


def test_eval_output_is_read(tmp_path: Path) -> None:
    for n in range(3):
        write_episode(tmp_path, episode(n))
    with (tmp_path / "traces.jsonl").open("a") as file:
        file.write('{"id": "torn')
    assert adapter.recognise(tmp_path) and adapter.recognise(tmp_path / "traces.jsonl")
    *rollouts, torn = adapter.read(tmp_path)
    assert [r.key for r in rollouts] == ["trace-0", "trace-1", "trace-2"]
    assert isinstance(torn, Problem) and torn.line == 4
    assert list(adapter.read(tmp_path / "traces.jsonl"))[-1] == torn
    # verifiers itself rounds to four decimals on disk
    written = json.loads((tmp_path / "traces.jsonl").read_text().splitlines()[0])
    assert restore(rollouts[0]) == said(written["traces"][0])


def test_an_episode_without_traces_is_a_failed_rollout(tmp_path: Path) -> None:
    broken = episode(7, traces=[], errors=[Error(type="EnvError", message="no sandbox")])
    broken.ok = False
    write_episode(tmp_path, broken)
    (rollout,) = adapter.read(tmp_path)
    assert (rollout.key, rollout.fate) == ("episode-7", "failed")
    assert rollout.error is not None
    assert (rollout.error.kind, rollout.error.text) == ("environment", "no sandbox")
    assert (rollout.step, rollout.group) == (3, "group-3")


def dump(path: Path, records: list[Any]) -> None:
    """As prime-rl's file monitor writes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    options = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY
    with path.open("ab") as file:
        for record in records:
            record = record.to_record() if isinstance(record, Episode) else record
            file.write(orjson.dumps(record, default=str, option=options))


def by_key(path: Path) -> dict[str | None, Rollout]:
    rollouts = list(adapter.read(path))
    assert len({r.key for r in rollouts}) == len(rollouts), "a rollout is there twice"
    return {r.key: r for r in rollouts}


def test_prime_rl_one_directory_a_step(tmp_path: Path) -> None:
    failed = episode(3, step=1)
    failed.traces[0].ok = False
    failed.traces[0].errors = [Error(type="ToolsetError", message="no cat")]
    steps = tmp_path / "rollouts"
    dump(steps / "step_1/train/all/traces.jsonl", [episode(n, 1) for n in (0, 1, 2)] + [failed])
    dump(steps / "step_1/train/effective/traces.jsonl", [episode(1, 1, advantage=0.5)])
    dump(steps / "step_2/train/all/traces.jsonl", [episode(4, 2)])
    # asked for in step 1, learned from in step 2
    dump(steps / "step_2/train/effective/traces.jsonl", [episode(0, 1, advantage=-0.5)])
    dump(steps / "step_2/eval/all/traces.jsonl", [_evaluated(5)])
    dump(steps / "step_2/eval/effective/traces.jsonl", [_evaluated(5)])
    assert adapter.recognise(tmp_path)
    found = by_key(tmp_path)
    assert found.keys() == {f"trace-{n}" for n in range(6)}
    facts = {k: (r.fate, r.step, r.trained_step, r.advantage, r.split) for k, r in found.items()}
    assert facts == {
        "trace-0": ("trained", 1, 2, -0.5, "train"),
        "trace-1": ("trained", 1, 1, 0.5, "train"),
        "trace-2": ("dropped", 1, None, None, "train"),
        "trace-3": ("failed", 1, None, None, "train"),
        "trace-4": ("scored", 2, None, None, "train"),  # step 2 may still ship it
        "trace-5": ("scored", 2, None, None, "eval"),
    }
    trained = found["trace-1"].messages[2]
    assert trained.tokens is not None
    assert trained.tokens.advantage == [None, None, 0.5, 0.5, 0.5]


def _evaluated(n: int) -> Any:
    made = episode(n, 2)
    made.run = TrainRunInfo.model_validate(
        {"id": "run-id", "work": {"type": "eval", "step": 2, "policy": None}}
    )
    return made


def annotations() -> tuple[list[Any], list[Any]]:
    """What the orchestrator and the trainer learn later, as they write it."""
    nodes = trace(1).nodes
    path = [0, 1, 2, 3, 4, 5, 6, 7]  # the first branch
    mask = [m for i in path for m in nodes[i].mask]
    ship = {"effective": True, "ship": {"step": 4, "time": 1.0}, "advantage": 0.75}
    streams = {
        "trainer_logprobs": [-0.5 if m else None for m in mask],
        "entropies": [0.25 if m else None for m in mask],
        "is_masked": [bool(k % 2) if m else None for k, m in enumerate(mask)],
    }
    orchestrator = [
        {
            "version": 1,
            "trace_id": "trace-1",
            "info": ship,
            "branches": [{"index": 0, "advantages": [0.75 * m for m in mask]}],
        }
    ]
    trainer = [
        {"version": 1, "trace_id": "trace-1", "info": {}, "branches": [{"index": 0, **streams}]}
    ]
    return orchestrator, trainer


def check_annotated(found: dict[str | None, Rollout]) -> None:
    assert found.keys() == {"trace-0", "trace-1", "trace-2"}
    rollout = found["trace-1"]
    check_tokens = rollout.messages[2].tokens
    assert check_tokens is not None
    assert (rollout.fate, rollout.trained_step, rollout.advantage) == ("trained", 4, 0.75)
    assert check_tokens.train_logprob == [None, None, -0.5, -0.5, -0.5]
    assert check_tokens.entropy == [None, None, 0.25, 0.25, 0.25]
    assert check_tokens.advantage == [None, None, 0.75, 0.75, 0.75]
    assert check_tokens.streams["is_masked"] == [None, None, False, True, False]
    other = rollout.messages[9].tokens  # of another branch
    assert other is not None and other.train_logprob is None
    given = rollout.messages[1].tokens  # not sampled: advantages of 0.0 there are filling
    assert given is not None and given.advantage is None
    assert found["trace-0"].fate == "scored" and found["trace-0"].advantage is None


def test_prime_rl_one_stream_and_annotations(tmp_path: Path) -> None:
    traces = tmp_path / "monitors" / "file" / "traces"
    dump(traces / "stream.jsonl", [episode(n) for n in range(3)])
    dump(traces / "stream.index.jsonl", [{"id": "episode-0", "offset": 0}])
    orchestrator, trainer = annotations()
    dump(traces / "annotations" / "orch.jsonl", orchestrator)
    dump(traces / "annotations" / "orch.index.jsonl", [{"trace_id": "trace-1"}])
    dump(traces / "annotations" / "trainer.jsonl", trainer)
    assert adapter.recognise(tmp_path)
    check_annotated(by_key(tmp_path))


def test_prime_rl_chunks_of_which_some_are_sealed(tmp_path: Path) -> None:
    traces = tmp_path / "monitors" / "file" / "traces"
    dump(traces / "stream" / "00000.jsonl", [episode(0)])
    dump(traces / "stream" / "00001.jsonl", [episode(1)])
    dump(traces / "stream" / "00002.jsonl", [episode(2)])
    dump(traces / "stream.index.jsonl", [{"id": "episode-0"}])
    orchestrator, trainer = annotations()
    dump(traces / "annotations" / "orch" / "00000.jsonl", orchestrator)
    dump(traces / "annotations" / "orch.index.jsonl", [{"trace_id": "trace-1"}])
    dump(traces / "annotations" / "trainer" / "00000.jsonl", trainer)
    _seal(traces / "stream" / "00000.jsonl")
    _seal(traces / "stream" / "00001.jsonl", keep=True)  # killed before the plain one was removed
    _seal(traces / "annotations" / "trainer" / "00000.jsonl")
    assert adapter.recognise(tmp_path)
    check_annotated(by_key(tmp_path))


def _seal(path: Path, keep: bool = False) -> None:
    data = path.read_bytes()
    half = len(data) // 2  # in several frames, as prime-rl's are
    sealed = zstd.compress(data[:half]) + zstd.compress(data[half:])
    path.with_name(path.name + ".zst").write_bytes(sealed)
    if not keep:
        path.unlink()


def test_prime_rls_numbers_are_read(tmp_path: Path) -> None:
    rows = [{"step": 1, "time": 5.0, "loss": 0.5, "producer": "trainer"}, {"step": None, "x": 2}]
    dump(tmp_path / "monitors" / "file" / "metrics.jsonl", rows)
    assert list(adapter.read_metrics(tmp_path)) == [(1, {"loss": 0.5}), (None, {"x": 2.0})]


@pytest.mark.parametrize("layout", ["a directory a step", "one stream"])
def test_a_run_directory_of_prime_rl_is_imported_with_its_numbers(
    own_store: Path, tmp_path: Path, layout: str
) -> None:
    """`rollscope import RUN_DIR`, format recognised; a second time nothing is added."""
    if layout == "one stream":
        traces = tmp_path / "monitors" / "file" / "traces"
        dump(traces / "stream.jsonl", [episode(n, step=3) for n in range(4)])
        for n, producer in enumerate(annotations()):
            dump(traces / "annotations" / f"producer-{n}.jsonl", producer)
        numbers = tmp_path / "monitors" / "file" / "metrics.jsonl"
    else:
        steps = tmp_path / "rollouts" / "step_3" / "train"
        dump(steps / "all" / "traces.jsonl", [episode(n) for n in range(4)])
        dump(steps / "effective" / "traces.jsonl", [episode(1, advantage=0.75)])
        numbers = tmp_path / "metrics.jsonl"
    dump(numbers, [{"step": s, "time": 5.0, "loss": s / 4, "note": "x"} for s in (1, 2, 3)])
    for _ in range(2):
        command = ["import", str(tmp_path), "--dir", str(own_store), "--project", "prime"]
        assert main([*command, "--run", "math"]) == 0
    found = Stored(own_store)
    assert found.projects == {("prime", "math")}
    assert {r.key for r in found} == {f"trace-{n}" for n in range(4)}
    assert {r.step for r in found} == {3}
    shipped = next(r for r in found if r.key == "trace-1")
    assert shipped.fate == "trained" and shipped.advantage == 0.75
    assert found.metrics == {s: {"loss": s / 4} for s in (1, 2, 3)}
    assert found.repeated == 0


# -- unmatched, never guessed ----------------------------------------------------------


def test_streams_of_another_length_are_missing_not_shifted() -> None:
    record = episode(1, advantage=0.5).to_record()
    node = record["traces"][0]["nodes"][2]
    node["logprobs"].append(-9.0)
    node["mask"] = node["mask"][:4]
    record["traces"][0]["nodes"][4]["advantages"] = [0.5]
    problems: list[str] = []
    (rollout,) = adapter.convert(record, problems=problems)
    bad, other = rollout.messages[2].tokens, rollout.messages[4].tokens
    assert bad is not None and other is not None
    assert bad.ids == node["token_ids"] and bad.logprob is None and bad.mask is None
    assert other.advantage is None and other.logprob is not None
    assert any("node 2 mask: expected 5 values, found 4" in p for p in problems)
    assert any("node 4 advantages: expected 3 values, found 1" in p for p in problems)


def test_an_annotation_that_does_not_fit_is_left_out(tmp_path: Path) -> None:
    traces = tmp_path / "monitors" / "file" / "traces"
    dump(traces / "stream.jsonl", [episode(1)])
    short = {"index": 0, "entropies": [0.5] * 12}  # ends inside the third node
    wrong = {"index": 9, "entropies": [0.5] * 100}
    updates = [
        {"trace_id": "trace-1", "info": {}, "branches": [short, wrong]},
        {"trace_id": "nobody", "info": {"advantage": 3.0}},
    ]
    dump(traces / "annotations" / "trainer.jsonl", updates)
    (rollout,) = adapter.read(tmp_path)
    assert all(m.tokens is None or m.tokens.entropy is None for m in rollout.messages)
    assert rollout.advantage is None


def test_other_files_are_not_taken_for_theirs(tmp_path: Path) -> None:
    (tmp_path / "traces.jsonl").write_text('{"traces": 3}\n')
    assert not adapter.recognise(tmp_path) and not adapter.recognise(tmp_path / "traces.jsonl")
    assert not adapter.recognise(tmp_path / "nothing")


@pytest.mark.parametrize("content", ["text", [{"type": "text", "text": "a"}]])
def test_bare_traces_are_read(tmp_path: Path, content: Any) -> None:
    record = trace(1).to_record()
    record["nodes"][1]["message"]["content"] = content
    (tmp_path / "x.jsonl").write_text(json.dumps(record) + "\n")
    assert adapter.recognise(tmp_path / "x.jsonl")
    (rollout,) = adapter.read(tmp_path / "x.jsonl")
    assert restore(rollout) == said(record)


def test_reasoning_images_and_provider_state_are_kept() -> None:
    record = trace(1).to_record()
    state = [{"type": "reasoning", "encrypted_content": "xyz"}]
    record["nodes"][2]["message"] |= {"reasoning_content": "hm", "provider_state": state}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    record["nodes"][1]["message"]["content"] = [{"type": "text", "text": "see"}, image]
    (rollout,) = adapter.convert(record)
    assert restore(rollout) == said(record)
    content = rollout.messages[2].content
    assert isinstance(content, list) and content[0].type == "reasoning"
