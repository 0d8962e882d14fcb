"""What the demo promises, read back from the store as any user reads it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rollscope
import rollscope.demo
from rollscope.demo.policy import Batch, Pass
from rollscope.demo.trainer import Plan
from rollscope.model import Rollout
from rollscope.model.conversation import parent_of

from .conftest import SHORT, Demo


@pytest.fixture(scope="module")
def store(demo: Demo) -> Iterator[rollscope.Store]:
    store = rollscope.open(demo.dir)
    yield store
    store.close()


@pytest.fixture(scope="module")
def rollouts(store: rollscope.Store) -> list[Rollout]:
    """Every eleventh one."""
    ids = sorted(row.id for row in store.rollouts(""))
    return [store.get(id) for id in ids[::11]]


def conversations(rollout: Rollout) -> Iterator[list[int]]:
    """Message numbers of each conversation, from its root to its end."""
    rows: list[list[int]] = []
    for n, message in enumerate(rollout.messages):
        parent = n - 1 if message.parent is None else message.parent
        row = next((row for row in rows if row[-1] == parent), None) if parent >= 0 else None
        if row is None:
            rows.append([n])
        else:
            row.append(n)
    yield from rows


def test_every_rollout_is_in_the_store_once(store: rollscope.Store, demo: Demo) -> None:
    assert store.rollouts("").count() == demo.tally.rollouts
    asked = SHORT.steps * SHORT.groups * SHORT.siblings + 3 * 12
    assert demo.tally.rollouts == asked + demo.tally.retries


def test_stored_logprobs_are_those_of_the_saved_weights(
    rollouts: list[Rollout], demo: Demo
) -> None:
    weights = {
        int(path.stem.rpartition("-")[2]): dict(np.load(path))
        for path in demo.weights.glob("short-*.npz")
    }
    compared, two_versions = 0, 0
    for rollout in rollouts:
        for row in conversations(rollout):
            tokens = [rollout.messages[n].tokens for n in row]
            ids = [i for t in tokens for i in t.ids]
            mask = [m for t in tokens for m in t.mask]
            stored = np.array([x for t in tokens for x in t.logprob or ()])
            versions = np.array([v for t in tokens for v in t.version or ()])
            for version in set(versions.tolist()):
                mine = versions == version
                expected = Pass(weights[version], Batch.of([ids], [mask])).chosen
                assert np.allclose(stored[mine], expected[mine], atol=2e-3)
                compared += int(mine.sum())
            two_versions += len(set(versions.tolist())) > 1
    assert compared > 2000
    assert two_versions > 0


def test_the_reward_rises_because_the_policy_learns(demo: Demo) -> None:
    rewards = demo.tally.rewards
    assert np.mean(rewards[-4:]) > np.mean(rewards[:4]) + 0.06


def test_tokens_say_what_the_messages_say(rollouts: list[Rollout]) -> None:
    for rollout in rollouts:
        for message in rollout.messages:
            content = message.content
            text = content if isinstance(content, str) else "".join(p.text for p in content)
            tokens = message.tokens
            assert tokens.ends[-1] == len(text)
            assert set(tokens.mask) == {int(message.sampled)}
            if message.sampled:
                assert len(tokens.logprob) == len(tokens.entropy) == len(tokens.ids)
                assert max(tokens.logprob) <= 0 and min(tokens.entropy) >= 0


def test_two_agents_make_a_tree(rollouts: list[Rollout]) -> None:
    trees = [r for r in rollouts if len(list(conversations(r))) > 1]
    assert trees
    for rollout in trees:
        assert rollout.dataset == "team"
        helpers = [m for m in rollout.messages if m.role == "system" and m.parent == -1]
        assert len(helpers) == len(list(conversations(rollout))) - 1


def test_late_facts_arrive(store: rollscope.Store) -> None:
    trained = store.get(next(iter(store.rollouts("fate:trained", limit=1))).id)
    assert trained.advantage is not None and trained.trained_step is not None
    written = [m.tokens for m in trained.messages if m.sampled]
    for tokens in written:
        assert len(tokens.train_logprob) == len(tokens.ids)
        assert tokens.advantage == [pytest.approx(trained.advantage)] * len(tokens.ids)
    read = [m.tokens for m in trained.messages if not m.sampled]
    assert all(v is None for t in read for v in t.train_logprob or ())


def test_groups_of_equal_rewards_are_dropped_and_say_so(store: rollscope.Store) -> None:
    dropped = list(store.rollouts("fate:dropped"))
    assert dropped
    for row in dropped[:20]:
        siblings = [r for r in store.group(row.id) if r.fate != "failed"]
        assert len({s.reward for s in siblings}) == 1
        assert "zero variance" in store.get(row.id).fate_reason


@pytest.mark.parametrize(
    "query",
    [
        "truncated:true",
        "split:eval",
        "attempt:1",
        "fate:failed error:infrastructure",
        "tool:calculator",
        "tool:helper",
        "staleness:>0",
    ],
)
def test_it_contains_what_real_runs_contain(store: rollscope.Store, query: str) -> None:
    assert store.rollouts(query).count() > 0


def test_tool_errors_come_from_calls_that_the_policy_wrote(rollouts: list[Rollout]) -> None:
    asked = [
        rollout.messages[parent_of(span.message, rollout.messages[span.message])]
        for rollout in rollouts
        for span in rollout.spans
        if span.error and span.error.kind == "tool" and span.message is not None
    ]
    assert asked
    assert all(message.sampled for message in asked)


def test_metrics_are_kept_for_every_step(store: rollscope.Store) -> None:
    metrics = store.metrics("short", "demo")
    assert [step for step, _ in metrics["reward"]] == list(range(SHORT.steps))
    assert {"loss", "kl", "entropy", "grad_norm", "eval/correct"} <= metrics.keys()


def test_progress_tells_step_reward_and_held_out(demo: Demo) -> None:
    assert re.search(r"short +step +1/\d+ +reward 0\.\d\d .*held out \d+%", demo.lines[1])


TINY = Plan("tiny", steps=2, rate=1e-3, groups=4, ahead=2, siblings=4)


def tiny(dir: Path, seed: int = 0) -> list[tuple[object, ...]]:
    rollscope.demo.run(
        dir, seed, plans=[TINY], warm_steps=20, tasks=(12, 3), progress=lambda line: None
    )
    store = rollscope.open(dir)
    found = [store.get(row.id) for row in store.rollouts("")]
    store.close()
    return sorted((r.key, r.reward, tuple(tuple(m.tokens.ids) for m in r.messages)) for r in found)


def test_the_same_seed_gives_the_same_rollouts_and_replaces_the_last_demo(tmp_path: Path) -> None:
    first = tiny(tmp_path / "a")
    assert tiny(tmp_path / "b") == first
    assert tiny(tmp_path / "a", seed=1) != first
    assert len(rollscope.open(tmp_path / "a").runs()) == 1


def test_settings_of_a_users_own_run_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLSCOPE_PROJECT", "mine")
    monkeypatch.setenv("ROLLSCOPE_SAMPLE", "0")
    assert tiny(tmp_path)
    assert [(run.project, run.run) for run in rollscope.open(tmp_path).runs()] == [("demo", "tiny")]


def test_without_numpy_it_says_what_to_type() -> None:
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "import rollscope.demo\n"
        "try: rollscope.demo.run()\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'rollscope[demo]'" in done.stdout


def test_no_network_or_download_is_needed() -> None:
    """The package imports nothing that could fetch anything."""
    source = Path(rollscope.demo.__file__).parent
    for path in source.glob("*.py"):
        assert not re.search(r"^\s*(import|from) (socket|urllib|http|requests)", path.read_text())
