"""Every check finds what it is made for, and leaves alone what looks like it."""

from __future__ import annotations

from pathlib import Path

import pytest

import rollscope
from rollscope import Rollout
from rollscope.checks import OneRollout, Settings, scan
from rollscope.checks.look import Panel
from rollscope.checks.registry import ours

from .cases import GROUPS, ROLLOUTS, group, usual

SETTINGS = Settings(Path("none"))


def of(id: str) -> Panel:
    return Panel(bound for bound in SETTINGS.bound("") if bound.check.id == id)


@pytest.mark.parametrize("id", ROLLOUTS)
def test_a_check_of_rollouts_finds_what_is_planted_and_nothing_like_it(id: str) -> None:
    planted, alike = ROLLOUTS[id]
    panel = of(id)
    for rollout in planted:
        answer, _ = panel.rollout(OneRollout(rollout))
        assert answer.found == [id], rollout
        assert all(finding.text and finding.check == id for finding in answer.findings)
        _says_where(rollout, answer.findings)
    for rollout in alike:
        answer, _ = panel.rollout(OneRollout(rollout))
        assert answer.found == [], (answer.findings, rollout)
    assert panel.broken == {}
    answer, _ = panel.rollout(OneRollout(Rollout()))
    assert answer.found == [], "nothing is found in nothing"


def _says_where(rollout: Rollout, findings: list[rollscope.model.Finding]) -> None:
    for finding in findings:
        if finding.message is not None:
            message = rollout.messages[finding.message]
            text = rollscope.model.conversation.text(message)
            assert 0 <= (finding.start or 0) <= (finding.end or 0) <= len(text)
            if finding.end_token is not None and message.tokens is not None:
                assert finding.end_token <= len(message.tokens)


@pytest.fixture(scope="module")
def found_in_groups(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What was found in each group, by task: all groups stand in one store, a run for each check,
    among groups that are as they should be."""
    root = tmp_path_factory.mktemp("groups")
    for id, (planted, alike) in GROUPS.items():
        with rollscope.init(project="p", run=id, dir=root) as run:
            for step in range(20):
                run.log(usual(step))
            for n, members in enumerate([*planted, *alike]):
                run.log(group(100 + n, *members))
    store = rollscope.open(root)
    report = scan(store)
    assert report.broken == {}
    found: dict[str, set[str]] = {}
    for finding in store.findings():
        found.setdefault(f"{finding.run} {finding.step}", set()).add(finding.check)
    return found


@pytest.mark.parametrize("id", GROUPS)
def test_a_check_of_groups_finds_what_is_planted_and_nothing_like_it(
    id: str, found_in_groups: dict[str, set[str]]
) -> None:
    planted, alike = GROUPS[id]
    for n in range(len(planted)):
        assert id in found_in_groups.get(f"{id} {100 + n}", ()), n
    for n in range(len(planted), len(planted) + len(alike)):
        assert id not in found_in_groups.get(f"{id} {100 + n}", ()), n - len(planted)
    for step in range(20):
        assert found_in_groups.get(f"{id} {step}", set()) == set(), "usual groups are usual"


def test_every_check_is_planted() -> None:
    assert {id for id, c in ours().items() if c.subject == "rollout"} == ROLLOUTS.keys()
    assert {id for id, c in ours().items() if c.subject == "group"} == GROUPS.keys()
