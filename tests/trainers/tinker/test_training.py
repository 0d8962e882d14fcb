"""tinker-cookbook's own `train.main`, in all its loops, with only the hosted service replaced."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tinker as service_package
from service import Service, samples
from stored import Stored, flat
from tinker_cookbook.rl import rollouts, train
from tinker_cookbook.rl.problem_env import ProblemGroupBuilder
from world import TOK, Add, Batches, Builder, renderer

from rollscope.adapters import tinker
from rollscope.adapters.tinker import loop
from rollscope.model import Rollout
from rollscope.model.problem import Problem


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLSCOPE_STRICT", "1")


class LazyAdd(Add):
    """Makes its renderer where it is used, so that it travels to other processes."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(renderer("role_colon"), a, b)


def groups(*numbers: int, size: int = 3) -> list[Any]:
    return [ProblemGroupBuilder(partial(LazyAdd, n, 2), size, "sums") for n in numbers]


def run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    batches: Any,
    test: Any = None,
    traced: bool = True,
    **changes: Any,
) -> Service:
    service = Service(tmp_path / "service")
    monkeypatch.setattr(service_package, "ServiceClient", lambda **_: service)
    monkeypatch.setattr(train, "get_tokenizer", lambda _: TOK)
    monkeypatch.setattr(train.model_info, "warn_if_renderer_not_recommended", lambda *_: None)
    builder: Any = Builder(train=Batches(batches), test=None if test is None else Batches(test))
    settings: dict[str, Any] = {
        "learning_rate": 1e-4,
        "dataset_builder": tinker.traced(builder) if traced else builder,
        "model_name": "none",
        "recipe_name": "test",
        "max_tokens": 32,
        "log_path": str(tmp_path / "sums" / "run-1"),
        "eval_every": 0,
        "save_every": 0,
        "temperature": 0.75,
    }
    config = train.Config(**{**settings, **changes})
    asyncio.run(train.main(config))
    return service


def wrote(rollout: Rollout) -> list[int]:
    return [t for t, m in zip(flat(rollout), flat(rollout, "mask"), strict=True) if m]


def compare(stored: Stored, notes: Path) -> None:
    """Every sample of the service is stored, with its prompt and log probabilities."""
    wanted = [(s["shown"] + s["wrote"], s["logprobs"], s["temperature"]) for s in samples(notes)]
    found = [
        (
            flat(r),
            [v for v in flat(r, "logprob") if v is not None],
            r.sampling["temperature"],
        )
        for r in stored
    ]
    assert sorted(map(str, found)) == sorted(map(str, wanted))


def check_advantages(rollouts_: list[Rollout]) -> None:
    by_group: dict[str, list[Rollout]] = {}
    for rollout in rollouts_:
        by_group.setdefault(str(rollout.group), []).append(rollout)
    for siblings in by_group.values():
        mean = sum(float(r.reward or 0) for r in siblings) / len(siblings)
        for rollout in siblings:
            assert rollout.advantage == pytest.approx(float(rollout.reward or 0) - mean, abs=1e-6)


def test_every_rollout_of_a_run(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = run(tmp_path, monkeypatch, [groups(1, 2), groups(3, 4), groups(5, 6)])
    stored = Stored(own_store)
    compare(stored, tmp_path / "service")
    assert stored.projects == {("sums", "run-1")} and stored.orphans == []
    assert Counter((r.step, r.group) for r in stored) == {
        (step, f"train/{step}/{g}"): 3 for step in range(3) for g in range(2)
    }
    for rollout in stored:
        assert (rollout.fate, rollout.trained_step) == ("trained", rollout.step)
        assert rollout.policy_version == rollout.step
        assert sorted({s.name for s in rollout.spans}) == ["env.step", "sample"]
    check_advantages(list(stored))
    _compare_rows(stored, service)


def _compare_rows(stored: Stored, service: Service) -> None:
    """What the service was told to train on is what is stored beside the tokens."""
    wanted = sorted(
        str((row["target_tokens"], row["advantages"], [v - 1 for v in row["logprobs"]]))
        for row in service.rows()
    )
    found = []
    for rollout in stored:
        advantages = [0.0 if v is None else v for v in flat(rollout, "advantage")[1:]]
        logprobs = [-1.0 if v is None else v for v in flat(rollout, "train_logprob")[1:]]
        found.append(str((flat(rollout)[1:], advantages, logprobs)))
    assert sorted(found) == wanted


def test_the_trainers_own_numbers_stand_at_their_step(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, monkeypatch, [groups(1), groups(2)])
    metrics = Stored(own_store).metrics
    lines = (tmp_path / "sums" / "run-1" / "metrics.jsonl").read_text().splitlines()
    for entry in map(json.loads, lines):
        for name, value in entry.items():
            if name != "step" and isinstance(value, (int, float)):
                assert metrics[entry["step"]][name] == pytest.approx(value)
    assert metrics[1]["optim/norm"] == 1.0


def test_constant_groups_are_dropped_and_kept(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """9+2 is always answered right: nothing to learn."""
    run(
        tmp_path,
        monkeypatch,
        [groups(1, 9), groups(9, 2)],
        remove_constant_reward_groups=True,
    )
    stored = Stored(own_store)
    compare(stored, tmp_path / "service")
    for rollout in stored:
        constant = "9+2" in str(rollout.messages[1].content)
        assert rollout.fate == ("dropped" if constant else "trained")
        assert rollout.fate_reason == ("constant reward" if constant else None)
        assert (rollout.advantage is None) == constant


def test_evaluations_have_the_step_of_their_weights(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(
        tmp_path,
        monkeypatch,
        [groups(1), groups(2), groups(3)],
        test=[groups(4, 5, size=1), groups(6, 7, size=1)],
        eval_every=2,
    )
    stored = Stored(own_store)
    assert len(stored) == len(samples(tmp_path / "service"))
    evaluated = [r for r in stored if r.split == "eval"]
    assert Counter(r.step for r in evaluated) == {0: 4, 2: 4}
    assert len({r.key for r in evaluated}) == 8
    questions = {
        step: sorted(str(r.messages[1].content).strip() for r in evaluated if r.step == step)
        for step in (0, 2)
    }
    assert questions[0] == questions[2] == ["4+2=?", "5+2=?", "6+2=?", "7+2=?"]
    assert {r.fate for r in evaluated} == {"scored"}
    by_ids = {str(s["shown"] + s["wrote"]): s["version"] for s in samples(tmp_path / "service")}
    for rollout in evaluated:
        assert rollout.policy_version in (rollout.step, None)
        assert by_ids[str(flat(rollout))] in (0, 2)


def test_streamed_minibatches(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(
        tmp_path,
        monkeypatch,
        [groups(1, 2), groups(3, 4)],
        stream_minibatch_config=train.StreamMinibatchConfig(groups_per_batch=2, num_minibatches=2),
    )
    stored = Stored(own_store)
    compare(stored, tmp_path / "service")
    assert {(r.fate, r.trained_step == r.step) for r in stored} == {("trained", True)}
    check_advantages(list(stored))


def test_asynchronous_training(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(
        tmp_path,
        monkeypatch,
        [groups(n, n + 1) for n in range(1, 13, 2)],
        async_config=train.AsyncConfig(max_steps_off_policy=1, groups_per_batch=2),
    )
    stored = Stored(own_store)
    compare(stored, tmp_path / "service")
    trained = [r for r in stored if r.fate == "trained"]
    assert trained and {r.fate for r in stored} <= {"trained", "dropped", "scored"}
    check_advantages(trained)
    for rollout in trained:
        assert rollout.trained_step is not None and rollout.policy_version is not None
        assert 0 <= rollout.trained_step - rollout.policy_version <= 1


def test_several_datasets_of_one_run_are_told_apart(own_store: Path, tmp_path: Path) -> None:
    """As in on-policy distillation, which draws a batch from each, and evaluates by itself."""
    from service import Sampling
    from tinker_cookbook.rl.metric_util import RLTestSetEvaluator

    notes = tmp_path / "service"
    notes.mkdir()

    async def main() -> None:
        builders = [
            Builder(train=Batches([groups(n), groups(n)]), test=Batches([groups(n + 4, size=1)]))
            for n in (1, 2)
        ]
        made = [await tinker.traced(builder)() for builder in builders]
        evaluators = [RLTestSetEvaluator(test, max_tokens=32) for _, test in made]
        for step in range(2):
            for evaluator in evaluators:
                await evaluator(Sampling(str(notes), step))
            for dataset, _ in made:
                for builder in dataset.get_batch(step):
                    await train.do_group_rollout_and_filter_constant_reward(
                        Sampling(str(notes), step),
                        builder,
                        max_tokens=32,
                        temperature=1.0,
                        do_remove_constant_reward_groups=False,
                    )

    asyncio.run(main())
    stored = Stored(own_store)
    compare(stored, notes)
    assert len({r.group for r in stored if r.split == "train"}) == 4
    assert Counter((r.split, r.step) for r in stored) == {
        ("train", 0): 6,
        ("train", 1): 6,
        ("eval", 0): 2,
        ("eval", 1): 2,
    }


def test_rollouts_in_other_processes(own_store: Path, tmp_path: Path) -> None:
    """A pool of processes, as tinker-cookbook has it: the parent's own report stays empty."""
    notes = tmp_path / "service"
    notes.mkdir()

    async def main() -> None:
        from service import Sampling

        batches = Batches([groups(1, 2, 3, 9)])
        dataset, _ = await tinker.traced(Builder(train=batches), project="p", run="r")()
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            rollouts.set_rollout_executor(pool)
            try:
                made = await asyncio.gather(
                    *[
                        train.do_group_rollout_and_filter_constant_reward(
                            Sampling(str(notes), 0),
                            builder,
                            max_tokens=32,
                            temperature=0.5,
                            do_remove_constant_reward_groups=True,
                        )
                        for builder in dataset.get_batch(0)
                    ]
                )
            finally:
                rollouts.set_rollout_executor(None)
            train.compute_advantages([group for group in made if group is not None])
        assert [group is None for group in made] == [False, False, False, True]

    asyncio.run(main())
    stored = Stored(own_store)
    compare(stored, notes)
    assert stored.projects == {("p", "r")} and stored.orphans == []
    assert len({s["pid"] for s in samples(notes)}) == 2
    assert len({r.launch for r in stored}) == 1
    trained = [r for r in stored if r.fate == "trained"]
    assert len(trained) == 9 and len(stored) == 12
    check_advantages(trained)  # told by the parent, joined by key
    assert {r.fate_reason for r in stored if r.fate == "dropped"} == {"constant reward"}


def test_a_broken_adapter_trains_on_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROLLSCOPE_STRICT")
    batches = [groups(1, 2), groups(3, 4)]
    without = run(tmp_path / "a", monkeypatch, batches, traced=False).rows()

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("sabotage")

    for name in ("_begin", "_end", "_learned", "_annotate", "_trained_on", "_watched"):
        monkeypatch.setattr(loop, name, fail)
    assert run(tmp_path / "b", monkeypatch, batches).rows() == without


def test_the_same_rows_with_and_without(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [groups(1, 2), groups(3, 9)]
    without = run(tmp_path / "a", monkeypatch, batches, traced=False).rows()
    assert not own_store.exists()
    assert run(tmp_path / "b", monkeypatch, batches).rows() == without
    assert len(Stored(own_store)) == 12


def test_a_loop_without_a_seam_is_told_loudly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(train, "remove_constant_reward_groups")
    loop.attach()
    assert "no tinker_cookbook.rl.train.remove_constant_reward_groups" in caplog.text


def test_the_originals_come_back() -> None:
    before = train.compute_advantages
    loop.attach()
    assert train.compute_advantages is not before
    loop.detach()
    assert train.compute_advantages is before


# -- what tinker-cookbook writes itself ------------------------------------------------


def test_summaries_are_read(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, monkeypatch, [groups(1, 2), groups(3, 4)], test=[groups(5)], eval_every=1)
    stored = Stored(own_store)
    live = {(r.split, r.step, r.reward, len(flat(r))) for r in stored}
    log_path = tmp_path / "sums" / "run-1"
    assert tinker.recognise(log_path)
    assert tinker.recognise(next(log_path.rglob("*_rollout_summaries.jsonl")))
    read = list(tinker.read(log_path))
    assert len(read) == 18
    lengths = {
        (r.split, r.step, r.reward, r.messages[0].meta["ob_len"] + r.messages[0].meta["ac_len"])
        for r in read
    }
    assert lengths == live
    assert {r.dataset for r in read} == {"sums", "test"}
    numbers: dict[int | None, dict[str, float]] = {}
    for step, values in tinker.read_metrics(log_path):
        numbers.setdefault(step, {}).update(values)
    assert numbers == stored.metrics and set(numbers) == {0, 1}
    assert all(r.group and r.index is not None for r in read)


def test_summaries_with_traces_are_read(tmp_path: Path) -> None:
    """`RolloutTrace`, as proposed: prompts repeat the history, some numbers are texts."""
    said = {"role": "assistant", "content": "look"}
    first = [{"role": "user", "content": "hi"}]
    second = [*first, said, {"role": "tool", "content": "a cat"}]
    steps = [
        {
            "step_idx": i,
            "ob_len": 10,
            "ac_len": 2,
            "reward": 0.5,
            "episode_done": i == 1,
            "metrics": {},
            "logs": {"n": i},
            "stop_reason": "stop",
            "trace": {
                "prompt": {"type": "conversation", "messages": prompt},
                "policy_response": {"type": "conversation", "messages": [said]},
                "reward_data": {"reward": "0.500", "correct": True, "format_penalty": "-0.100"},
                "env_state": {"found": i},
                "extra": {
                    "rubric_grades": [
                        {"score": 0.25, "criterion": "Short?", "grader_response": "meh"}
                    ]
                },
            },
        }
        for i, prompt in enumerate((first, second))
    ]
    record = {
        "schema_version": 1, "split": "eval/animals", "iteration": 7, "group_idx": 1,
        "traj_idx": 2, "tags": [], "sampling_client_step": 6, "total_reward": 1.0,
        "final_reward": 0.0, "trajectory_metrics": {}, "steps": steps, "final_ob_len": 0,
    }  # fmt: skip
    path = tmp_path / "train_rollout_summaries.jsonl"
    path.write_text(json.dumps(record) + "\n" + json.dumps(record)[:40])  # the last line is torn
    rollout, torn = tinker.read(path)
    assert isinstance(torn, Problem) and torn.line == 2
    assert [(m.role, m.content, m.sampled) for m in rollout.messages] == [
        ("user", "hi", False),
        ("assistant", "look", True),
        ("tool", "a cat", False),
        ("assistant", "look", True),
    ]
    assert (rollout.split, rollout.dataset, rollout.step) == ("eval", "animals", 7)
    assert (rollout.policy_version, rollout.index, rollout.reward) == (6, 2, 1.0)
    assert rollout.rewards == {"correct": 1.0, "format_penalty": -0.1, "rubric 1": 0.25}
    assert rollout.reward_texts == {"rubric 1": "meh"}
    assert [m.state for m in rollout.messages if m.sampled] == [{"found": 0}, {"found": 1}]
    assert rollout.stop_reason == "stop"


def test_reports_are_read_but_never_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLSCOPE", "off")
    run(tmp_path, monkeypatch, [groups(1, 2)])
    log_path = tmp_path / "sums" / "run-1"
    report = next(log_path.rglob("*_logtree.json"))
    assert tinker.recognise(report)
    read = list(tinker.read(report))
    assert len(read) == 6
    for rollout in read:
        assert "unmatched" in rollout.meta and rollout.index is None
        roles = [m.role for m in rollout.messages]
        assert roles == ["system", "user", "assistant"]
        assert rollout.messages[2].sampled and not rollout.messages[1].sampled
        assert rollout.reward is not None and rollout.step == 0
        correct = str(rollout.messages[2].content).strip() == rollout.reference
        assert rollout.rewards["correct"] == float(correct)
    # A directory gives each rollout once: from the summaries.
    assert all("unmatched" not in r.meta for r in tinker.read(log_path))


def test_other_files_are_not_taken_for_tinkers(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "x.json").write_text('{"root": 1}')
    assert not tinker.recognise(tmp_path / "x.jsonl")
    assert not tinker.recognise(tmp_path / "x.json")
    assert not tinker.recognise(tmp_path)
