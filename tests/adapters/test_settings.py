"""What trainers' settings say about rewards and advantages stands in the writer's file.

Values of real trainers are checked in tests/trainers; here are the shapes that settings have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rollscope
from rollscope.adapters._settings import Settings, note
from rollscope.adapters.areal.settings import algorithm as of_areal
from rollscope.adapters.open_instruct.settings import algorithm as of_open_instruct
from rollscope.adapters.skyrl.settings import algorithm as of_skyrl
from rollscope.adapters.slime.settings import algorithm as of_slime
from rollscope.adapters.tinker.settings import algorithm as of_tinker
from rollscope.adapters.trl.settings import algorithm as of_trl
from rollscope.adapters.verl.settings import algorithm as of_verl
from rollscope.model.algorithm import Algorithm


class Word(Enum):
    GRPO = "grpo"


@dataclass
class Inner:
    n: int = 8
    ratio: float = 0.5
    kind: Word = Word.GRPO
    on: bool = False


@dataclass
class Outer:
    rollout: Inner = field(default_factory=Inner)

    @property
    def broken(self) -> Any:
        raise RuntimeError("an interpolation that leads nowhere")


@pytest.mark.parametrize(
    "given",
    [
        Outer(),
        SimpleNamespace(rollout={"n": 8, "ratio": 0.5, "kind": "grpo", "on": False}),
        {"rollout": SimpleNamespace(n=8, ratio=0.5, kind=Word.GRPO, on=False)},
    ],
)
def test_settings_of_any_type_are_read_by_name(given: Any) -> None:
    settings = Settings(given)
    assert settings.whole("rollout.n") == 8
    assert settings.number("rollout.ratio") == 0.5
    assert settings.word("rollout.kind") == "grpo"
    assert settings.flag("rollout.on") is False
    assert settings.whole("rollout.on") is None, "a flag is no number"
    assert settings.number("rollout.kind") is None
    assert settings.whole("rollout.ratio") is None
    assert settings.value("rollout.n.more") is None
    assert settings.value("broken.more") is None


@pytest.mark.parametrize(
    "read",
    [of_areal, of_skyrl, of_slime, of_tinker, of_trl, of_verl, lambda one: of_open_instruct([one])],
)
@pytest.mark.parametrize("given", [{}, (), SimpleNamespace(), {"algorithm": 3, "actor": "x"}])
def test_settings_that_are_not_there_are_not_known(read: Any, given: Any) -> None:
    assert read(given) in (Algorithm(), Algorithm(rewards="sum"))


def _verl(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "algorithm": {
            "adv_estimator": "grpo",
            "norm_adv_by_std_in_grpo": True,
            "use_kl_in_reward": False,
            "kl_ctrl": {"kl_coef": 0.001},
        },
        "actor_rollout_ref": {
            "actor": {
                "clip_ratio": 0.2,
                "clip_ratio_low": None,
                "clip_ratio_high": 0.28,
                "loss_agg_mode": "token-mean",
                "use_kl_loss": True,
                "kl_loss_coef": 0.002,
            },
            "rollout": {"n": 8, "val_kwargs": {"n": 2}, "temperature": 0.7, "response_length": 64},
        },
        "data": {"max_prompt_length": 32},
    }
    return made | changes


def test_verl_says_how_advantages_are_made() -> None:
    assert of_verl(_verl()) == Algorithm(
        estimator="grpo",
        baseline="group",
        scale="group",
        epsilon=1e-6,
        unbiased=True,
        group_size=8,
        eval_group_size=2,
        aggregation="token-mean",
        clip_low=0.2,
        clip_high=0.28,
        kl=0.002,
        kl_in="loss",
        temperature=0.7,
        prompt_tokens=32,
        response_tokens=64,
    )
    own = of_verl(_verl(algorithm={"adv_estimator": "my_own", "norm_adv_by_std_in_grpo": True}))
    assert (own.estimator, own.baseline, own.scale) == ("my_own", None, None)
    rloo = of_verl(_verl(algorithm={"adv_estimator": "rloo"}))
    assert (rloo.baseline, rloo.scale, rloo.epsilon) == ("leave_one_out", "none", None)


@pytest.mark.parametrize(
    ("mode", "strategy", "expected"),
    [("sync", "drop", None), ("separate_async", "drop", 7), ("separate_async", "wait", None)],
)
def test_verl_bounds_staleness_where_it_drops(
    mode: str, strategy: str, expected: int | None
) -> None:
    sampler = {"max_off_policy_threshold": 8, "max_off_policy_strategy": strategy}
    trainer = {"use_v1": True, "v1": {"trainer_mode": mode, "sampler": sampler}}
    assert of_verl(_verl(trainer=trainer)).staleness == expected


class GRPOTrainer:
    reward_func_names = ("correct", "reward", "reward")
    reward_weights = (1.0, 0.5, 0.25)
    num_generations = 4

    def __init__(self, **args: Any) -> None:
        self.args = SimpleNamespace(**args)


class Mine(GRPOTrainer):
    pass


@pytest.mark.parametrize(
    ("said", "scale"),
    [("group", "group"), (True, "group"), (False, "none"), ("batch", "batch"), ("new", None)],
)
def test_trl_says_scale_by_word_or_flag(said: Any, scale: str | None) -> None:
    found = of_trl(Mine(scale_rewards=said, beta=0.0, epsilon=0.2))
    assert (found.estimator, found.scale) == ("grpo", scale)
    assert found.epsilon == (None if scale in (None, "none") else 1e-4)
    assert found.reward_weights == {"correct": 1.0, "reward": 0.5, "reward#1": 0.25}
    assert (found.kl, found.kl_in, found.clip_high) == (0.0, None, 0.2)


def test_trl_that_normalises_each_part_has_no_baseline_of_the_sum() -> None:
    args = {"scale_rewards": "group", "multi_objective_aggregation": "normalize_then_sum"}
    found = of_trl(GRPOTrainer(**args))
    assert (found.rewards, found.baseline, found.scale) == (None, None, None)


def test_areal_with_advantages_normalised_twice_says_no_formula() -> None:
    norm = {"mean_level": "group", "std_level": "group", "eps": 1e-5, "mean_leave1out": True}
    actor = {"discount": 1.0, "gae_lambda": 1.0, "reward_norm": norm, "kl_ctl": 0.0}
    plain = of_areal({"actor": actor})
    assert (plain.baseline, plain.scale, plain.epsilon) == ("leave_one_out", "group", 1e-5)
    twice = of_areal({"actor": actor | {"adv_norm": {"mean_level": "batch"}}})
    assert (twice.baseline, twice.scale, twice.epsilon) == (None, None, None)


def test_it_is_read_back_from_the_newest_writer_that_knows_it(tmp_path: Path) -> None:
    with rollscope.init(project="p", run="r", dir=tmp_path) as run:
        note("verl", run, of_verl, _verl())
        run.log(rollscope.Rollout(step=1, reward=1.0))
        launch = run.launch
    with rollscope.init(project="p", run="other", dir=tmp_path) as run:
        note("verl", run, of_verl, {})
        run.log(rollscope.Rollout(step=1, reward=1.0))
    store = rollscope.open(tmp_path)
    found = store.algorithm("r", launch)
    assert found is not None
    assert (found.estimator, found.group_size, found.staleness) == ("grpo", 8, None)
    assert store.algorithm("r") == found == store.algorithm("r", project="p")
    assert store.algorithm("r", "no such launch") is None
    assert store.algorithm("r", project="no such project") is None
    assert store.algorithm("other") is None, "nothing is known"


def test_settings_that_cannot_be_read_cost_only_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Any) -> Algorithm:
        raise RuntimeError("odd")

    monkeypatch.setenv("ROLLSCOPE_STRICT", "0")
    with rollscope.init(project="p", run="r", dir=tmp_path) as run:
        note("verl", run, broken, {})
        run.log(rollscope.Rollout(step=1))
    store = rollscope.open(tmp_path)
    assert store.rollouts().count() == 1
    assert store.algorithm("r") is None


def test_tinker_names_the_loss_that_is_trained_with() -> None:
    """Since 0.6 asynchronous training has a loss of its own."""
    config = {"kl_penalty_coef": 0.0, "loss_fn": "ppo", "async_config": None}
    assert of_tinker(config).loss == "ppo"
    config["async_config"] = {"max_steps_off_policy": 2, "loss_fn": "stable_reinforce"}
    assert of_tinker(config).loss == "stable_reinforce"
