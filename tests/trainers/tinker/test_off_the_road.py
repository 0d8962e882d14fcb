"""Rollouts of tinker-cookbook that end early, fail, are tried again, or cannot be watched."""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rolling import calls, compare, roll
from stored import Stored
from tinker_cookbook.exceptions import AllTrajectoriesFailedError
from tinker_cookbook.rl import rollout_strategy
from tinker_cookbook.rl.preference_envs import PairwisePreferenceGroupBuilder, TournamentPattern
from tinker_cookbook.rl.problem_env import ProblemGroupBuilder
from tinker_cookbook.rl.rollout_strategy import RetryOnFailure
from tinker_cookbook.rl.rollouts import do_group_rollout
from world import PLAIN, Add, Batches, Builder, Diaries, Policy, renderer

from rollscope.adapters import tinker
from rollscope.adapters.tinker.hook import TracedStrategy

pytestmark = pytest.mark.usefixtures("strict")

since_0_5 = pytest.mark.skipif(
    not hasattr(rollout_strategy, "MinViableGroup"),
    reason="an episode tells why it ended since 0.5",
)


@since_0_5
def test_parse_error(own_store: Path) -> None:
    policy = Policy(["no stop at all 😀"])
    roll(Diaries(), policy)
    stored = Stored(own_store)
    compare(stored, policy)
    for rollout in stored:
        assert rollout.stop_reason == "parse_error" and rollout.reward == -1.0
        assert str(rollout.messages[0].content).strip() == "hi"


@since_0_5
def test_context_overflow(own_store: Path) -> None:
    policy = Policy(["look<|im_end|>"])
    roll(Diaries(limit=60), policy)
    stored = Stored(own_store)
    compare(stored, policy)
    for rollout in stored:
        assert (rollout.stop_reason, rollout.truncated) == ("context_overflow", True)
        assert rollout.reward == pytest.approx(-0.1)
        assert str(rollout.messages[0].content).strip() == "hi"


@since_0_5
def test_length_stop(own_store: Path) -> None:
    policy = Policy([("and so on and", "length")])
    roll(Diaries(), policy)
    stored = Stored(own_store)
    compare(stored, policy)
    for rollout in stored:
        assert (rollout.stop_reason, rollout.truncated) == ("max_tokens", True)
        assert [m.stop_reason for m in rollout.messages if m.sampled] == ["length"]


@since_0_5
def test_a_prompt_that_is_too_long_is_kept(own_store: Path) -> None:
    policy = Policy(["never asked"])
    roll(Diaries(prompt="x" * 500, limit=100), policy)
    stored = Stored(own_store)
    assert policy.notes == [] and len(stored) == 2
    for rollout in stored:
        assert [m.content for m in rollout.messages] == ["x" * 500]
        assert rollout.messages[0].meta["shown"] is False
        assert rollout.stop_reason == "max_tokens" and rollout.reward == pytest.approx(-0.1)
        assert "exceeds max_trajectory_tokens" in str(rollout.messages[0].state)


def test_times_of_every_sample_and_step(own_store: Path) -> None:
    roll(Diaries(size=1), Policy([f"look {n}<|im_end|>" for n in range(3)]), TracedStrategy())
    (rollout,) = Stored(own_store)
    assert Counter(s.name for s in rollout.spans) == {"sample": 3, "env.step": 3}
    assert rollout.start is not None and rollout.end is not None
    for span in rollout.spans:
        assert rollout.start <= (span.start or 0) <= (span.end or 0) <= rollout.end
    wrote = [m for m in rollout.messages if m.sampled]
    assert all(m.start is not None and m.end is not None for m in wrote)


# -- failures and retries --------------------------------------------------------------


def test_a_failed_group_is_recorded_and_fails_on(own_store: Path) -> None:
    builder = Diaries(size=2, fails_at=2)
    policy = Policy([f"look {n}<|im_end|>" for n in range(4)])
    with pytest.raises(OSError, match="sandbox"):
        roll(builder, policy)
    assert builder.cleaned == 1
    rollouts = list(Stored(own_store))
    assert len(rollouts) == 2 and {r.fate for r in rollouts} == {"failed"}
    broken = [r for r in rollouts if r.error is not None]
    assert broken and broken[0].error is not None
    assert (broken[0].error.kind, broken[0].error.type) == ("environment", "OSError")
    said = [str(m.content) for r in rollouts for m in r.messages if m.sampled]
    assert any("look" in s for s in said)


def test_retries_keep_the_failed_attempts(own_store: Path) -> None:
    answers: list[Any] = ["look 0<|im_end|>", RuntimeError("engine down"), "look 2<|im_end|>"]
    answers += [f"look {n}<|im_end|>" for n in range(3, 12)]
    policy = Policy(answers, wait=False)
    group = roll(Diaries(size=2, turns=2), policy, TracedStrategy(RetryOnFailure(max_retries=2)))
    assert len(group.rollout_errors) == 1
    stored = Stored(own_store)
    failed = [r for r in stored if r.fate == "failed"]
    kept = [r for r in stored if r.fate == "scored"]
    assert len(failed) == 1 and len(kept) == len(group.trajectories_G) == 2
    error = failed[0].error
    assert error is not None
    assert (error.kind, error.type, error.text) == ("infrastructure", "RuntimeError", "engine down")
    assert sorted(r.attempt or 0 for r in kept) == [0, 1]  # one was made for the retry
    assert str(failed[0].messages[0].content).strip() == "hi"
    for rollout in kept:  # by identity: the rewards are those of the trajectory with this index
        own = group.trajectories_G[rollout.index or 0]
        assert calls(rollout)[0][0][-5:] == list(own.transitions[0].ac.tokens)[-5:]


@since_0_5
def test_too_few_survivors(own_store: Path) -> None:
    policy = Policy([RuntimeError("engine down")])
    strategy = rollout_strategy.MinViableGroup(max_retries=1)
    with pytest.raises(AllTrajectoriesFailedError):
        roll(Diaries(size=2), policy, TracedStrategy(strategy))
    rollouts = list(Stored(own_store))
    assert len(rollouts) == 3  # two, and a retry
    assert {r.error.text for r in rollouts if r.error} == {"engine down"}
    assert all(r.fate == "failed" and r.messages for r in rollouts)


def test_a_grader_that_raises(own_store: Path) -> None:
    class Broken:
        async def __call__(self, comparison: Any) -> float:
            raise ValueError("no verdict")

    policy = Policy([" a\n\nUser:", " b\n\nUser:"])
    with pytest.raises(ValueError, match="no verdict"):
        roll(
            PairwisePreferenceGroupBuilder(
                [{"role": "user", "content": "x"}],
                PLAIN,
                TournamentPattern.ALL_PAIRS_ONE_WAY,
                Broken(),
                2,
            ),
            policy,
        )
    stored = Stored(own_store)
    compare(stored, policy)
    assert {(r.fate, r.error.kind if r.error else None) for r in stored} == {("failed", "grader")}


def test_cancellation_goes_on_and_is_recorded(own_store: Path) -> None:
    asked: list[Any] = []

    class Waits(Policy):
        async def __call__(self, *args: Any, **kwargs: Any) -> Any:
            asked.append(args)
            await asyncio.sleep(600)

    async def run() -> None:
        dataset, _ = await tinker.traced(Builder(train=Batches([[Diaries()]])))()
        group = do_group_rollout(dataset.get_batch(0)[0], Waits([]), strategy=TracedStrategy())
        task = asyncio.create_task(group)
        while len(asked) < 2 and not task.done():
            await asyncio.sleep(0.01)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    rollouts = list(Stored(own_store))
    assert len(rollouts) == 2 and {r.fate for r in rollouts} == {"failed"}
    assert all(str(r.messages[0].content).strip() == "hi" for r in rollouts)


# -- unmatched, never guessed; it only looks -------------------------------------------


def test_group_rewards_of_another_length_are_unmatched() -> None:
    policy = Policy([" 5\n\nUser:"], wait=False)
    builder = ProblemGroupBuilder(partial(Add, PLAIN, 2, 3), 3)
    group = asyncio.run(do_group_rollout(builder, policy))
    problems: list[str] = []
    rollouts = tinker.convert(group.trajectories_G, [(1.0, {}), (2.0, {})], problems=problems)
    assert {r.reward for r in rollouts} == {None}
    assert all("unmatched" in r.meta for r in rollouts)
    assert "expected 3 values, found 2" in problems[0]


def test_what_is_converted_stays_as_it_was() -> None:
    policy = Policy([f"look {n}<|im_end|>" for n in range(6)], wait=False)
    group = asyncio.run(do_group_rollout(Diaries(), policy))
    before = copy.deepcopy(group)
    rewards = [(0.0, {"m": 1}) for _ in group.trajectories_G]
    tinker.convert(group.trajectories_G, rewards, envs=[object(), object()])
    assert group == before


@pytest.mark.parametrize("broken", ["convert", "convert_failed", "_watch", "join", "Notes"])
def test_a_broken_adapter_leaves_the_group_as_it_is(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rollscope.adapters.tinker import hook

    monkeypatch.delenv("ROLLSCOPE_STRICT")
    script = ["look<|im_end|>"]
    without = asyncio.run(do_group_rollout(Diaries(), Policy(script)))

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("sabotage")

    monkeypatch.setattr(hook, broken, fail)
    assert roll(Diaries(), Policy(script), TracedStrategy()) == without


def test_off_returns_the_builder_itself(own_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLSCOPE", "off")
    from tinker_cookbook.utils import ml_log

    before = ml_log.setup_logging
    builder = Builder(train=Batches([[Diaries()]]))
    assert tinker.traced(builder) is builder
    assert ml_log.setup_logging is before
    assert not own_store.exists()


def test_an_environment_that_cannot_be_watched_runs_on(
    own_store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Slots(Add):
        def __setattr__(self, name: str, value: Any) -> None:
            if name in ("step", "initial_observation"):
                raise AttributeError(name)
            super().__setattr__(name, value)

    policy = Policy([" 5\n\nUser:"])
    roll(ProblemGroupBuilder(partial(Slots, renderer("role_colon"), 2, 3), 2), policy)
    stored = Stored(own_store)
    compare(stored, policy)
    assert len(stored) == 2 and "Slots.step could not be watched" in caplog.text
