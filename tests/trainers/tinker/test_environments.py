"""Every kind of environment through the real `do_group_rollout`: what the policy was shown and
wrote is what is stored, token for token, and every reward lands on its own trajectory."""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from stored import Stored, flat
from tinker_cookbook.distillation.datasets import PromptOnlyEnv
from tinker_cookbook.exceptions import AllTrajectoriesFailedError
from tinker_cookbook.recipes.multiplayer_rl.guess_number.env import GuessNumberEnvGroupBuilder
from tinker_cookbook.recipes.multiplayer_rl.text_arena.env import TwoPlayerEnvGroupBuilder
from tinker_cookbook.recipes.multiplayer_rl.twenty_questions.env import (
    TwentyQuestionsEnvGroupBuilder,
)
from tinker_cookbook.recipes.rubric.data import Rubric, RubricBasedDatapoint
from tinker_cookbook.recipes.rubric.env import RubricGradedEnvGroupBuilder
from tinker_cookbook.rl.preference_envs import PairwisePreferenceGroupBuilder, TournamentPattern
from tinker_cookbook.rl.problem_env import ProblemGroupBuilder
from tinker_cookbook.rl.rollout_strategy import MinViableGroup, RetryOnFailure
from tinker_cookbook.rl.rollouts import do_group_rollout
from world import CHAT, PLAIN, TOK, Add, Batches, Builder, Diaries, Policy, Says, renderer

from rollscope.adapters import tinker
from rollscope.adapters.tinker.hook import TracedStrategy
from rollscope.model import Message, Rollout


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLSCOPE_STRICT", "1")


def roll(builder: Any, policy: Policy, strategy: Any = None) -> Any:
    """One group through a traced dataset, as step 4 of a run."""

    async def run() -> Any:
        batches = Batches([[]] * 4 + [[builder]])
        dataset, _ = await tinker.traced(Builder(train=batches), project="p", run="r")()
        return await do_group_rollout(dataset.get_batch(4)[0], policy, strategy=strategy)

    return asyncio.run(run())


def branch(rollout: Rollout, place: int) -> list[Message]:
    """The messages from the root to this one."""
    path: list[Message] = []
    while place >= 0:
        message = rollout.messages[place]
        path.append(message)
        place = place - 1 if message.parent is None else message.parent
    return path[::-1]


def calls(rollout: Rollout) -> list[tuple[list[int], list[float], str | None]]:
    """For each thing the policy wrote: all that it saw and wrote, and its log probabilities."""
    found = []
    for place, message in enumerate(rollout.messages):
        if message.sampled:
            ids = [i for m in branch(rollout, place) for i in (m.tokens.ids if m.tokens else [])]
            assert message.tokens is not None
            logprobs = [v for v in message.tokens.logprob or [] if v is not None]
            found.append((ids, logprobs, message.stop_reason))
    return found


def compare(stored: Stored, policy: Policy) -> None:
    """Every call of the policy is stored, and nothing else."""
    wanted = [(s + list(a.tokens), a.maybe_logprobs, a.stop_reason) for s, a in policy.notes]
    found = [call for rollout in stored for call in calls(rollout)]
    assert sorted(map(str, found)) == sorted(map(str, wanted))
    for rollout in stored:
        for place, message in enumerate(rollout.messages):
            text = "".join(
                m.meta.get("before", "") + str(m.content) + m.meta.get("after", "")
                for m in branch(rollout, place)
            )
            ids = [i for m in branch(rollout, place) for i in (m.tokens.ids if m.tokens else [])]
            if ids:
                assert text == TOK.decode(ids)
            assert message.role != "unknown"


def by_answer(stored: Stored) -> dict[str, Rollout]:
    """Rollouts of one turn, by the text that was written."""
    return {_said(r): r for r in stored}


def _said(rollout: Rollout) -> str:
    ids = [t for t, m in zip(flat(rollout), flat(rollout, "mask"), strict=True) if m]
    return str(TOK.decode(ids))


# -- the kinds -------------------------------------------------------------------------


@pytest.mark.parametrize("template", [PLAIN, CHAT], ids=["role_colon", "qwen3"])
def test_problems(own_store: Path, template: Any) -> None:
    stop = "\n\nUser:" if template is PLAIN else "<|im_end|>"
    policy = Policy([f" 5{stop}", f" 6{stop}", " five 😀"])
    group = roll(ProblemGroupBuilder(partial(Add, template, 2, 3), 3, "sums"), policy)
    stored = Stored(own_store)
    compare(stored, policy)
    assert len(stored) == 3
    for rollout in stored:
        assert [m.role for m in rollout.messages] == ["system", "user", "assistant"]
        assert str(rollout.messages[1].content).strip() == "2+3=?"
        assert (rollout.step, rollout.split, rollout.dataset) == (4, "train", "sums")
        assert rollout.reference == "5" and rollout.environment == "Add"
    rewards = {said: (r.reward, r.rewards) for said, r in by_answer(stored).items()}
    assert rewards == {
        f" 5{stop}": (1.0, {"correct": 1.0, "format": 1.0}),
        f" 6{stop}": (0.0, {"correct": 0.0, "format": 1.0}),
        " five 😀": (pytest.approx(-0.1), {"correct": 0.0, "format": 0.0}),
    }
    totals = {r.index: r.reward for r in stored}
    assert [totals[i] for i in range(3)] == group.get_total_rewards()


def test_prompt_only_distillation(own_store: Path) -> None:
    policy = Policy([" once", " upon", " a time"])
    roll(ProblemGroupBuilder(partial(PromptOnlyEnv, "tell", PLAIN), 3, "prompts"), policy)
    stored = Stored(own_store)
    compare(stored, policy)
    assert {r.environment for r in stored} == {"PromptOnlyEnv"}
    assert {(r.reward, r.reference) for r in stored} == {(0.0, None)}


def test_rubric_keeps_criteria_and_what_the_grader_wrote(own_store: Path) -> None:
    grader = Says(lambda t: f"I think <score>{0.25 if 'short' in t else 1.0}</score> ok")
    point = RubricBasedDatapoint(
        convo=[{"role": "user", "content": "why?"}],
        rubric_items=[Rubric("Is it short?"), Rubric("Is it polite?")],
    )
    policy = Policy([" because\n\nUser:", " dunno\n\nUser:"])
    roll(RubricGradedEnvGroupBuilder(PLAIN, point, grader, 2), policy)
    stored = Stored(own_store)
    compare(stored, policy)
    for rollout in stored:
        assert rollout.rewards["rubric 1"] == 0.25 and rollout.rewards["rubric 2"] == 1.0
        assert rollout.rewards["rubric_score"] == 0.625
        assert rollout.reward_texts["rubric 1"] == "I think <score>0.25</score> ok"
        assert rollout.meta["criteria"] == {
            "rubric 1": "Is it short?",
            "rubric 2": "Is it polite?",
        }
        assert type(rollout.reward) is float


def test_preference_rewards_land_on_the_right_response(own_store: Path) -> None:
    """Longer is better. The answers come in another order than they were asked for."""

    class Longer:
        async def __call__(self, comparison: Any) -> float:
            a, b = (
                len(str(c[0]["content"]))
                for c in (comparison.completion_A, comparison.completion_B)
            )
            return 1.0 if b > a else -1.0

    answers = [" aa", " a", " aaaa", " aaa"]
    policy = Policy([f"{a}\n\nUser:" for a in answers])
    group = roll(
        PairwisePreferenceGroupBuilder(
            convo_prefix=[{"role": "user", "content": "a joke"}],
            policy_renderer=PLAIN,
            preference_model=Longer(),
            num_envs=4,
            tournament_pattern=TournamentPattern.ALL_PAIRS_BOTH_WAYS,
        ),
        policy,
    )
    stored = Stored(own_store)
    compare(stored, policy)
    found = {_said(r).split("\n")[0]: r for r in stored}
    order = sorted(answers, key=lambda a: float(found[a].reward or 0))
    assert order == [" a", " aa", " aaa", " aaaa"]
    for answer, rollout in found.items():
        own = group.trajectories_G[rollout.index or 0].transitions[0].ac.tokens
        assert TOK.decode(own).startswith(answer)
        assert rollout.reward == group.final_rewards_G[rollout.index or 0]
        assert rollout.rewards["win_minus_loss"] == rollout.reward
        assert rollout.rewards["format"] == 1.0


@pytest.mark.parametrize("template", ["role_colon", "qwen3_disable_thinking"])
def test_messages_as_the_model_saw_them_though_the_history_changes_in_place(
    own_store: Path, template: str
) -> None:
    stop = "\n\nUser:" if template == "role_colon" else "<|im_end|>"
    policy = Policy([f"look {n}{stop}" for n in range(6)])
    roll(Diaries(template=template), policy)
    stored = Stored(own_store)
    compare(stored, policy)
    for rollout in stored:
        wrote = [m for m in rollout.messages if m.sampled]
        assert [m.reward for m in wrote] == [0.5, 0.5, 0.5] and rollout.reward == 1.5
        assert [m.state for m in wrote] == [{"note": f"after {n}"} for n in (1, 2, 3)]
        assert [m.meta["metrics"] for m in wrote] == [{"n": n} for n in (1, 2, 3)]
        prompts = [str(b[0].content).strip() for b in _prompts(rollout)]
        assert prompts == ["hi", "hi!", "hi!!"]
        assert rollout.environment == "Diary" and rollout.dataset == "diary"


def _prompts(rollout: Rollout) -> list[list[Message]]:
    return [branch(rollout, p) for p, m in enumerate(rollout.messages) if m.sampled]


def test_a_history_that_only_grows_is_stored_once(own_store: Path) -> None:
    """Linear in turns: the second prompt is not repeated."""

    class Grows(Diaries):
        async def make_envs(self) -> list[Any]:
            envs = await super().make_envs()
            for env in envs:
                step = env.message_env.step
                env.message_env.step = partial(_without_change, env.message_env, step)
            return envs

    async def _without_change(env: Any, step: Any, message: Any) -> Any:
        result = await step(message)
        env.history[0]["content"] = "hi"
        return result

    policy = Policy([f"look {n}<|im_end|>" for n in range(20)])
    roll(Grows(template="qwen3_instruct", turns=8), policy)
    stored = Stored(own_store)
    compare(stored, policy)
    for rollout in stored:
        assert all(m.parent is None for m in rollout.messages)
        longest = max(len(s) + len(a.tokens) for s, a in policy.notes)
        assert len(flat(rollout)) <= longest


def test_guess_number_and_its_players(own_store: Path) -> None:
    policy = Policy([f" Guess: {n}\n\nUser:" for n in (3, 9, 7, 5, 7, 7)])
    roll(GuessNumberEnvGroupBuilder(7, PLAIN, 3), policy)
    stored = Stored(own_store)
    compare(stored, policy)
    roles = {m.role for r in stored for m in r.messages}
    assert "player" in roles
    for rollout in stored:
        last = [m for m in rollout.messages if m.sampled][-1]
        assert last.state["target"] == 7 and rollout.reference == 7


def test_one_prompt_with_two_answers_is_two_tasks(own_store: Path) -> None:
    async def run() -> None:
        games = [GuessNumberEnvGroupBuilder(n, PLAIN, 1) for n in (7, 8)]
        dataset, _ = await tinker.traced(Builder(train=Batches([games])))()
        for game in dataset.get_batch(0):
            await do_group_rollout(game, Policy([" Guess: 7\n\nUser:"]))

    asyncio.run(run())
    assert len({r.task for r in Stored(own_store)}) == 2


def test_twenty_questions_against_another_model(own_store: Path) -> None:
    answerer = Says(lambda text: "no" if "Guess: cat" not in text else "yes")
    policy = Policy([" Is it red?\n\nUser:", " Guess: cat\n\nUser:"], wait=False)
    roll(TwentyQuestionsEnvGroupBuilder(answerer, "cat", PLAIN, 1), policy)
    stored = Stored(own_store)
    compare(stored, policy)
    (rollout,) = stored
    said = [(m.role, str(m.content).strip()) for m in rollout.messages]
    assert ("user", "no") in said
    assert rollout.reward == 1.0 and rollout.reference == "cat"


def test_two_players_of_one_game(own_store: Path) -> None:
    moves = iter(range(9))
    policy = Policy(lambda _: f" [{next(moves)}]", wait=False)
    roll(TwoPlayerEnvGroupBuilder("TicTacToe-v0", PLAIN, 2, self_play=True), policy)
    stored = Stored(own_store)
    compare(stored, policy)
    assert sorted(r.meta["player"] for r in stored) == [0, 1]
    for rollout in stored:
        names = {m.name for m in rollout.messages if m.sampled}
        assert names == {f"player {rollout.meta['player']}"}
    assert sum(float(r.reward or 0) for r in stored) == 0.0


# -- the paths off the road ------------------------------------------------------------


def test_parse_error(own_store: Path) -> None:
    policy = Policy(["no stop at all 😀"])
    roll(Diaries(), policy)
    stored = Stored(own_store)
    compare(stored, policy)
    for rollout in stored:
        assert rollout.stop_reason == "parse_error" and rollout.reward == -1.0
        assert str(rollout.messages[0].content).strip() == "hi"


def test_context_overflow(own_store: Path) -> None:
    policy = Policy(["look<|im_end|>"])
    roll(Diaries(limit=60), policy)
    stored = Stored(own_store)
    compare(stored, policy)
    for rollout in stored:
        assert (rollout.stop_reason, rollout.truncated) == ("context_overflow", True)
        assert rollout.reward == pytest.approx(-0.1)
        assert str(rollout.messages[0].content).strip() == "hi"


def test_length_stop(own_store: Path) -> None:
    policy = Policy([("and so on and", "length")])
    roll(Diaries(), policy)
    stored = Stored(own_store)
    compare(stored, policy)
    for rollout in stored:
        assert (rollout.stop_reason, rollout.truncated) == ("max_tokens", True)
        assert [m.stop_reason for m in rollout.messages if m.sampled] == ["length"]


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


def test_too_few_survivors(own_store: Path) -> None:
    policy = Policy([RuntimeError("engine down")])
    with pytest.raises(AllTrajectoriesFailedError):
        roll(Diaries(size=2), policy, TracedStrategy(MinViableGroup(max_retries=1)))
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
    class Waits(Policy):
        async def __call__(self, *args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(60)

    async def run() -> None:
        dataset, _ = await tinker.traced(Builder(train=Batches([[Diaries()]])))()
        group = do_group_rollout(dataset.get_batch(0)[0], Waits([]), strategy=TracedStrategy())
        task = asyncio.create_task(group)
        await asyncio.sleep(0.2)
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
