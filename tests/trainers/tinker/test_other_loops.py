"""tinker-cookbook's loops beside `rl.train`, recipes that roll out in a way of their own, and
trainings that begin again."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tinker as service_package
from service import Service
from stored import Stored
from test_training import compare
from tinker_cookbook.completers import TokenCompleter
from tinker_cookbook.rl import rollouts, train
from tinker_cookbook.rl.types import EnvGroupBuilder, Trajectory, TrajectoryGroup, Transition
from training import groups, known, run
from world import TOK, Batches, Builder

import rollscope
from rollscope.adapters import tinker

pytestmark = pytest.mark.usefixtures("strict")

KNOWS_TOKENIZER = hasattr(train, "get_tokenizer")
"""Since 0.5, the loop makes it where we can see it."""


# -- recipes that roll out in a way of their own -------------------------------------------


class Question(EnvGroupBuilder):
    """As that of `recipes/verifiers_rl`: it makes no environments and gives no rewards."""

    def __init__(self, number: int) -> None:
        self.example_id = number
        self.answer = str(number + 2)

    async def make_envs(self) -> Sequence[Any]:
        return []


async def own_rollout(builder: Any, policy: TokenCompleter, **_: Any) -> Any:
    """A rollout of four, rewarded by itself."""
    from tinker import ModelInput

    shown = ModelInput.from_ints(TOK.encode(f"User: {builder.example_id}+2=?\n\nAssistant:"))
    actions = [await policy(shown, ["\n\nUser:"]) for _ in range(4)]
    trajectories = [
        Trajectory(transitions=[Transition(shown, action, 0.0, True)], final_ob=shown)
        for action in actions
    ]
    rewards = [float(n if builder.example_id != 9 else 0) for n in range(4)]
    return TrajectoryGroup(trajectories, rewards, [{"correct": r} for r in rewards])


@pytest.mark.parametrize("when", ["before", "while it trains"])
def test_a_recipe_that_rolls_out_in_its_own_way_is_recorded(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    class Rebinds(Batches):
        def get_batch(self, index: int) -> Sequence[Any]:
            monkeypatch.setattr(rollouts, "do_group_rollout", own_rollout)
            return super().get_batch(index)

    if when == "before":
        monkeypatch.setattr(rollouts, "do_group_rollout", own_rollout)
    batches = [[Question(1), Question(9)], [Question(2), Question(3)]]
    made = Rebinds(batches) if when != "before" else Batches(batches)
    monkeypatch.setattr("training.Batches", lambda _: made)
    run(tmp_path, monkeypatch, batches, remove_constant_reward_groups=True)
    stored = Stored(own_store)
    compare(stored, tmp_path / "service")
    assert len(stored) == 16 and stored.orphans == []
    for rollout in stored:
        assert rollout.reward == (0.0 if rollout.task == "9" else rollout.index)
        assert rollout.fate == ("dropped" if rollout.task == "9" else "trained")
        assert rollout.reference == str(int(str(rollout.task)) + 2)
        if KNOWS_TOKENIZER:
            assert "+2=?" in str(rollout.messages[0].content)


# -- other loops ---------------------------------------------------------------------------


def test_on_policy_distillation(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tinker_cookbook.distillation import datasets, train_on_policy

    service = _service(tmp_path, monkeypatch, train_on_policy)
    dataset = datasets.DistillationDatasetConfig(
        dataset_builder=tinker.traced(
            Builder(train=Batches([groups(1, 2), groups(3, 4)])),
        ),
        teacher_config=datasets.TeacherConfig(base_model="teacher"),
        groups_per_batch=2,
    )
    config = known(
        train_on_policy.Config,
        learning_rate=1e-4,
        dataset_configs=[dataset],
        model_name="none",
        recipe_name="test",
        max_tokens=32,
        log_path=str(tmp_path / "sums" / "distilled"),
        eval_every=0,
        save_every=0,
    )
    asyncio.run(train_on_policy.main(config))
    stored = Stored(own_store)
    compare(stored, tmp_path / "service")
    assert stored.projects == {("sums", "distilled")} and service.training.version == 2
    assert {(r.fate, r.step, r.trained_step) for r in stored} == {
        ("trained", 0, 0),
        ("trained", 1, 1),
    }


class Demonstrations:
    """Builders, questions and answers, as SDFT draws them."""

    def get_batch(self, index: int) -> tuple[Sequence[Any], list[str], list[str]]:
        return groups(index + 1, index + 2), ["1+2=?", "2+2=?"], ["3", "4"]

    def __len__(self) -> int:
        return 2


def test_self_distillation(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sdft = pytest.importorskip("tinker_cookbook.distillation.sdft")
    service = _service(tmp_path, monkeypatch, sdft)
    config = known(
        sdft.Config,
        model_name="none",
        recipe_name="test",
        renderer_name="role_colon",
        max_tokens=32,
        topk=0,
        loss_fn="importance_sampling",
        log_path=str(tmp_path / "sums" / "sdft"),
        eval_every=0,
        save_every=0,
    )
    asyncio.run(sdft.main(config, tinker.traced(Demonstrations())))
    stored = Stored(own_store)
    compare(stored, tmp_path / "service")
    assert stored.projects == {("sums", "sdft")} and service.training.version == 2
    assert {(r.fate, r.step, r.trained_step) for r in stored} == {
        ("trained", 0, 0),
        ("trained", 1, 1),
    }
    assert {r.advantage for r in stored} == {None}, "the zeros stand for those of the tokens"
    assert all(any("advantage" in m.tokens.streams for m in r.messages if m.tokens) for r in stored)


def _service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any) -> Service:
    service = Service(tmp_path / "service")
    monkeypatch.setattr(service_package, "ServiceClient", lambda **_: service)
    monkeypatch.setattr(module, "get_tokenizer", lambda _: TOK, raising=False)  # since 0.5
    monkeypatch.setattr(module.model_info, "warn_if_renderer_not_recommended", lambda *_: None)
    return service


# -- the run -------------------------------------------------------------------------------


def _names(store: Path) -> dict[tuple[str | None, str | None], int]:
    found: dict[tuple[str | None, str | None], int] = {}
    for rollout in Stored(store):
        found[rollout.project, rollout.run] = found.get((rollout.project, rollout.run), 0) + 1
    return found


def test_a_training_that_begins_again_is_a_run_of_its_own(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        run(tmp_path, monkeypatch, [groups(1)])
        shutil.rmtree(tmp_path / "sums")  # as tinker-cookbook offers
    assert _names(own_store) == {("sums", "run-1"): 3, ("sums", "run-1-2"): 3}


def test_one_that_goes_on_from_a_checkpoint_goes_on_in_its_run(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [groups(1), groups(2)]
    run(tmp_path, monkeypatch, batches, max_steps=1)
    rollscope.finish()
    run(tmp_path, monkeypatch, batches)
    assert _names(own_store) == {("sums", "run-1"): 6}


def test_names_that_a_person_gave_are_those_of_everything(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder: Any = Builder(train=Batches([groups(1)]))
    traced = tinker.traced(builder, project="math", run="rl-3")
    run(tmp_path, monkeypatch, [], traced=False, dataset_builder=traced)
    stored = Stored(own_store)
    assert {(r.project, r.run, r.fate) for r in stored} == {("math", "rl-3", "trained")}
    assert stored.projects == {("math", "rl-3")} and stored.metrics and stored.orphans == []


def test_a_traced_builder_has_the_attributes_of_its_own() -> None:
    builder: Any = Builder(train=Batches([groups(1)]))
    traced = tinker.traced(builder)
    assert traced is not builder and traced.train is builder.train
    assert tinker.traced(traced) is traced
    with pytest.raises(AttributeError, match="no attribute 'batch_size'"):
        traced.batch_size  # noqa: B018
