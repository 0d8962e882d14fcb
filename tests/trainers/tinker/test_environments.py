"""Every kind of environment through the real `do_group_rollout`: what the policy was shown and
wrote is what is stored, token for token, and every reward lands on its own trajectory."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rolling import branch, by_answer, compare, roll, said
from stored import Stored, flat
from tinker_cookbook.distillation.datasets import PromptOnlyEnv
from tinker_cookbook.recipes.multiplayer_rl.guess_number.env import GuessNumberEnvGroupBuilder
from tinker_cookbook.recipes.multiplayer_rl.text_arena.env import TwoPlayerEnvGroupBuilder
from tinker_cookbook.recipes.multiplayer_rl.twenty_questions.env import (
    TwentyQuestionsEnvGroupBuilder,
)
from tinker_cookbook.recipes.rubric.data import Rubric, RubricBasedDatapoint
from tinker_cookbook.recipes.rubric.env import RubricGradedEnvGroupBuilder
from tinker_cookbook.rl.preference_envs import PairwisePreferenceGroupBuilder, TournamentPattern
from tinker_cookbook.rl.problem_env import ProblemGroupBuilder
from tinker_cookbook.rl.rollouts import do_group_rollout
from world import CHAT, PLAIN, TOK, Add, Batches, Builder, Diaries, Policy, Says

from rollscope.adapters import tinker
from rollscope.model import Message, Rollout

pytestmark = pytest.mark.usefixtures("strict")


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
    found = {said(r).split("\n")[0]: r for r in stored}
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
