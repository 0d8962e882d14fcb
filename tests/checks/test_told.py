"""What a trainer's settings say is a rule from the first group on; without them, habits tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rollscope
from rollscope import Rollout
from rollscope.checks import scan
from rollscope.model.algorithm import Algorithm

from .cases import drew, known, says, scored


def answers(
    root: Path, rollouts: list[Rollout], algorithm: Algorithm | None = None
) -> dict[str, str]:
    """What each check says of these: found, unobserved or clear; found of any is found."""
    for n, one in enumerate(rollouts):
        one.key, one.index, one.step, one.split, one.task = f"{n}", n, 1, "train", "t"
    with rollscope.init(project="p", run="r", dir=root) as run:
        run.note_algorithm(algorithm or Algorithm())
        run.log(rollouts)
    store = rollscope.open(root)
    assert scan(store).broken == {}
    return {
        c.check: "found" if c.found else "clear" if c.clear else "unobserved"
        for c in store.findings().counts()
    }


TURNED: dict[str, Any] = {"advantages": [-0.5, 0.5, 0.0]}
RULES = ("advantage.sign", "advantage.order", "advantage.mean")


def test_settings_make_a_rule_of_advantages(tmp_path: Path) -> None:
    centred = Algorithm(baseline="group", scale="none")
    said = answers(tmp_path / "right", scored(1.0, 0.0, 0.5), centred)
    assert {said[id] for id in RULES} == {"clear"}
    said = answers(tmp_path / "turned", scored(1.0, 0.0, 0.5, **TURNED), centred)
    assert [said[id] for id in RULES] == ["found", "found", "clear"]
    moved = scored(1.0, 0.0, 0.5, advantages=[0.9, -0.1, 0.4])
    assert answers(tmp_path / "moved", moved, centred)["advantage.mean"] == "found"


def test_where_no_rule_is_known_advantages_are_unobserved(tmp_path: Path) -> None:
    """Never clear: one group is no habit, and a critic or a divergence may turn any sign."""
    moved = Algorithm(baseline="group", kl=0.1, kl_in="reward")
    for n, told in enumerate((None, Algorithm(baseline="critic"), moved)):
        said = answers(tmp_path / f"{n}", scored(1.0, 0.0, 0.5, **TURNED), told)
        assert {said[id] for id in RULES} == {"unobserved"}, told


def test_a_reward_is_held_against_the_weights_of_its_parts(tmp_path: Path) -> None:
    told = Algorithm(rewards="sum", reward_weights={"right": 1.0, "form": 0.5})

    def rewarded(reward: float, **about: Any) -> list[Rollout]:
        return [says(f"a{n}", reward=reward, rewards={"right": 1.0, "form": 1.0}, **about)
                for n in range(2)]  # fmt: skip

    assert answers(tmp_path / "a", rewarded(1.5), told)["reward.parts"] == "clear"
    assert answers(tmp_path / "b", rewarded(2.0), told)["reward.parts"] == "found"
    assert answers(tmp_path / "c", rewarded(2.0))["reward.parts"] == "unobserved"
    beside = {"meta": {"reward_weights": {"right": 1.0, "form": 0.25}}}
    assert answers(tmp_path / "d", rewarded(1.25, **beside))["reward.parts"] == "clear"
    assert answers(tmp_path / "e", rewarded(1.5, **beside))["reward.parts"] == "found"


def test_a_group_is_held_against_the_size_that_was_asked_for(tmp_path: Path) -> None:
    told = Algorithm(group_size=4)
    assert answers(tmp_path / "a", scored(1.0, 0.0, 0.5, 0.2), told)["group.size"] == "clear"
    assert answers(tmp_path / "b", scored(1.0, 0.0, 0.5), told)["group.size"] == "found"
    assert answers(tmp_path / "c", scored(1.0, 0.0, 0.5))["group.size"] == "unobserved"


def test_tokens_are_held_against_the_trainers_own_limit(tmp_path: Path) -> None:
    def late(steps: int) -> list[Rollout]:
        return [known(drew(2, version=[20 - steps, 20]), trained_step=20)]

    told = Algorithm(staleness=2)
    assert answers(tmp_path / "a", late(3), told)["tokens.stale"] == "clear", "counted from 1"
    assert answers(tmp_path / "b", late(4), told)["tokens.stale"] == "found"
    assert answers(tmp_path / "c", late(4))["tokens.stale"] == "clear"
    assert answers(tmp_path / "d", late(9))["tokens.stale"] == "found"
    assert answers(tmp_path / "e", late(9), Algorithm(staleness=16))["tokens.stale"] == "clear"


def test_what_has_no_text_was_not_looked_at_for_gaming(tmp_path: Path) -> None:
    assert answers(tmp_path / "a", [says("", reward=1.0)])["reward.gamed"] == "unobserved"
    assert answers(tmp_path / "b", [says("42", reward=1.0)])["reward.gamed"] == "clear"
