"""Planted faults are found, and the table in docs/checks.md tells of the checks as they are."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import pytest

import rollscope
from rollscope import Message, Rollout, Tokens
from rollscope.checks import OneRollout, scan
from rollscope.checks.registry import ours
from rollscope.model import ToolCall

from .corpus import DATA, SOURCES
from .measure import MEASURED, everything, is_true, judgements, panel_of
from .planting import GROUPS, ROLLOUTS, STEPS, Plant, all_planted
from .planting.hosts import fresh
from .planting.steps import Run

PLANTS = all_planted()
OF = json.loads(MEASURED.read_text())["checks"]


def missed(plant: Plant) -> bool:
    """Was it not always found, or never planted, when it was measured?"""
    found, of = OF[plant.check]["planted"][plant.how]
    return bool(found < of or not of)


def test_the_table_tells_of_every_check_as_it_is() -> None:
    told = {id: numbers["version"] for id, numbers in OF.items()}
    assert told == {id: check.version for id, check in ours().items()}, "run: make checks"


def test_every_fault_is_planted_in_five_ways_and_each_was_measured() -> None:
    ways = Counter(plant.check for plant in PLANTS)
    assert ways.keys() == ours().keys()
    assert min(ways.values()) >= 5
    for id, numbers in OF.items():
        assert numbers["planted"].keys() == {p.how for p in PLANTS if p.check == id}


def test_a_check_that_is_often_wrong_is_off_by_default() -> None:
    for id, numbers in OF.items():
        if numbers["looked"] and numbers["false"] / numbers["looked"] > 1 / 200:
            assert ours()[id].off, f"{id} is wrong in {numbers['false']} of {numbers['looked']}"


def test_what_plants_faults_knows_no_check() -> None:
    for path in (Path(__file__).parent / "planting").glob("*.py"):
        assert "rollscope.checks" not in path.read_text()


def test_a_judgement_is_about_the_rollouts_that_it_names() -> None:
    judged = judgements()
    assert judged.keys() <= ours().keys()
    assert is_true({"a.b": {"x/*#1": "why"}}, "a.b", "x/y#1")
    assert not is_true({"a.b": {"x/*#1": "why"}}, "a.b", "x/y#2")


@pytest.mark.skipif(not DATA.exists(), reason="the real rollouts are not there")
def test_every_source_of_real_rollouts_has_files() -> None:
    for folder, pattern, _, _ in SOURCES:
        assert any((DATA / folder).glob(pattern)), (folder, pattern)


# -- hosts that are made, because real ones are not in the repository ----------------------

PROSE = (
    "First I look at what is asked. There are three parts, and each of them is larger than the "
    "one before. I add the first two, which gives 1200. Then I add the last one, with care. "
    "Nothing is left over, and no seat was counted twice, so that the sum is what it should be. "
)


def tokens(text: str, seed: int = 0) -> Tokens:
    """One token a word, each id standing for one word."""
    ends = [n + 1 for n, c in enumerate(text) if c == " "] + [len(text)]
    words = [text[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    draw = Random(seed)
    logprobs = [-0.3 - 2 * draw.random() for _ in words]
    return Tokens(
        [crc32(word.encode()) for word in words], ends,
        logprob=logprobs, entropy=[1.0 - v for v in logprobs], mask=[1] * len(words),
        version=[7] * len(words),
    )  # fmt: skip


def read(role: str, text: str, **about: Any) -> Message:
    made = tokens(text)
    made.streams = {"mask": [0] * len(made)}
    return Message(role=role, content=text, sampled=False, tokens=made, **about)


def wrote(text: str, seed: int = 0, **about: Any) -> Message:
    return Message(role="assistant", content=text, sampled=True, tokens=tokens(text, seed), **about)


def solved(seed: int = 0) -> Rollout:
    asked = "A hall has 3 parts. What do they add up to, if the first has 400 seats?"
    said = (
        f"<think>{PROSE}The sum is right, I have looked at it twice.</think>{PROSE}{seed} times. "
    )
    return Rollout(
        messages=[read("user", asked), wrote(said + "So it is \\boxed{1236}", seed)],
        reference="1236", reward=1.0, rewards={"right": 1.0}, fate="scored",
    )  # fmt: skip


def searched(seed: int = 0) -> Rollout:
    schema = {"type": "object", "required": ["query"], "properties": {"query": {}}}
    tool = {"function": {"name": "search", "parameters": schema}}

    def call(n: int) -> Message:
        arguments = json.dumps({"query": f"capital {n}", "limit": 5})
        made = ToolCall(id=f"c{n}", name="search", arguments=arguments)
        return wrote(f"Let me look for it, number {n} of them", seed + n, tool_calls=[made])

    return Rollout(
        messages=[
            read("user", "Which towns are the capitals of these countries?"),
            call(1), read("tool", "Bern is one of them, says a page about it", tool_call_id="c1"),
            call(2), read("tool", "Vaduz is the other one, says a page", tool_call_id="c2"),
            wrote("Bern and Vaduz are the capitals of these two countries.", seed),
        ],
        meta={"tools": [tool]}, reward=1.0, rewards={"right": 1.0}, fate="scored",
    )  # fmt: skip


@pytest.mark.parametrize("check", sorted({plant.check for plant in ROLLOUTS}))
def test_what_is_planted_in_a_rollout_is_found(check: str) -> None:
    panel = panel_of(check)
    for plant in (p for p in ROLLOUTS if p.check == check):
        fit = 0
        for make in (solved, searched):
            host = make()
            assert panel.rollout(OneRollout(host))[0].found == [], "nothing was planted yet"
            if plant.plant(host, Random(plant.how)):
                fit += 1
                found = panel.rollout(OneRollout(host))[0].found
                assert found == [check] or missed(plant), plant.how
        assert fit, f"no rollout is fit for {plant.how}"


def siblings(step: int, size: int = 8) -> list[Rollout]:
    draw = Random(step)
    rewards = [1.0, 0.0, *(draw.choice([0.0, 0.5, 1.0]) for _ in range(size - 2))]
    mean = sum(rewards) / size
    made = []
    for n, reward in enumerate(rewards):
        one = solved(10 * step + n)
        one.index, one.attempt, one.reward, one.advantage = n, 0, reward, reward - mean
        one.rewards = {"right": reward / 2, "form": reward / 2}
        one.fate = "trained"
        made.append(one)
    return made


def test_what_is_planted_in_a_group_is_found(tmp_path: Path) -> None:
    """One variant of each fault, in a run of groups that are as they should be."""
    asked = {check for check, of in OF.items() if any(n for n, _ in of["planted"].values())}
    hits: dict[str, set[str]] = {}
    for n, plant in enumerate(GROUPS):
        wrong = siblings(7)
        hit = [] if plant.check in hits or missed(plant) else plant.plant(wrong, Random(n))
        if not hit:
            continue
        run_of = [wrong if step == 7 else siblings(step) for step in range(15)]
        for step, members in enumerate(run_of):
            for i, one in enumerate(members):
                one.key, one.step, one.split, one.task = f"{n}/{step}/{i}", step, "train", "t"
                mark = "+" * str(one.group).count("+")  # of copies in groups of their own
                one.group = None if plant.check == "task.collapsed" else f"{step}{mark}"
        hits[plant.check] = {str(one.key) for one in hit}
        with rollscope.init(project="p", run=plant.check, dir=tmp_path) as run:
            run.log([one for members in run_of for one in members])
    assert hits.keys() >= {plant.check for plant in GROUPS if plant.check in asked}
    store = rollscope.open(tmp_path)
    assert scan(store, settings=everything("rollout", "group")).broken == {}
    keys = {str(row.id): str(row.key) for row in store.rollouts("has:flag", limit=None)}
    found = {(f.check, keys[str(f.rollout)]) for f in store.findings()}
    lost = [check for check, of in hits.items() if not any((check, key) in found for key in of)]
    assert lost == []


def test_what_is_planted_in_a_run_changes_it() -> None:
    steps = {step: [fresh(one) for one in siblings(step)] for step in range(12)}
    for step, members in steps.items():
        for one in members:
            one.step, one.task = step, "t"
    for plant in STEPS:
        run = Run({step: [fresh(one) for one in members] for step, members in steps.items()}, 6)
        assert plant.plant(run, Random(1)), plant
        assert any(run.steps.get(s) != steps[s] for s in range(6, 12)), plant
