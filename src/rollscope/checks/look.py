"""Checks look at one thing: what they answer, and which of them broke."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..model import Finding
from ..store.derived import Broken, CheckStamp
from .check import Bound, Subject
from .digest import digest
from .subject import OneGroup, OneRollout, Steps


class Answer(NamedTuple):
    """What the checks of one subject say about one rollout, or about one step."""

    found: list[str]
    unobserved: list[str]
    findings: list[Finding]


class Panel:
    """The checks that look at the rollouts of one project."""

    def __init__(self, checks: Iterable[Bound[Any]]) -> None:
        self._checks: dict[str, list[Bound[Any]]] = {"rollout": [], "group": [], "step": []}
        for bound in checks:
            self._checks[bound.check.subject].append(bound)
        self.broken: dict[str, list[str]] = {}
        """Checks that raised an error: what it said, and the rollouts."""

    def stamps(self, subject: Subject) -> dict[str, CheckStamp]:
        """The checks of a subject as they are, by id."""
        return {bound.check.id: bound.check.stamp(bound.settings) for bound in self.of(subject)}

    def merge_broken(self, other: Mapping[str, list[str]]) -> None:
        """Another process has seen these checks break."""
        for id, (error, *rollouts) in other.items():
            self.broken.setdefault(id, [error]).extend(rollouts)

    def told_broken(self) -> dict[str, Broken]:
        """The broken checks, as they are told beside what was found."""
        return {
            id: Broken(len(rollouts), error, next(filter(None, rollouts), None))
            for id, (error, *rollouts) in self.broken.items()
        }

    def of(self, subject: Subject) -> list[Bound[Any]]:
        return self._checks[subject]

    def rollout(self, one: OneRollout) -> tuple[Answer, Mapping[str, float]]:
        """What the checks of rollouts say, and what checks of groups and steps go on with."""
        id = one.rollout.id
        answer = Answer([], [], [])
        for bound in self.of("rollout"):
            spots = self._asked(bound, one, id)
            if spots is None:
                answer.unobserved.append(bound.check.id)
            elif spots:
                answer.found.append(bound.check.id)
                answer.findings.extend(bound.check.finding(s, rollout=id) for s in spots)
        return answer, digest(one)

    def group(self, group: OneGroup) -> dict[str, Answer]:
        """What the checks of groups say about each member, by its id."""
        answers = {member.id: Answer([], [], []) for member in group.members}
        for bound in self.of("group"):
            spots = self._asked(bound, group, next(iter(answers), None))
            if spots is None:
                for answer in answers.values():
                    answer.unobserved.append(bound.check.id)
            for spot in spots or ():
                for id in answers if spot.rollout is None else (spot.rollout,):
                    answer = answers[id]
                    if bound.check.id not in answer.found:
                        answer.found.append(bound.check.id)
                    answer.findings.append(bound.check.finding(spot, rollout=id))
        return answers

    def steps(self, steps: Steps, where: str) -> dict[int, Answer]:
        """What the checks of steps say about each. `where`: finds the rollouts of the run."""
        answers = {step: Answer([], [], []) for step in steps.numbers}
        for bound in self.of("step"):
            spots = self._asked(bound, steps, None)
            if spots is None:
                for answer in answers.values():
                    answer.unobserved.append(bound.check.id)
            for spot in spots or ():
                assert spot.step is not None
                answer = answers[spot.step]
                if bound.check.id not in answer.found:
                    answer.found.append(bound.check.id)
                query = f"{where} {spot.query or f'step:{spot.step}'}".strip()
                about = {"step": spot.step, "split": steps.split, "query": query}
                if spot.value is not None:  # sums differ in their last digits from time to time
                    spot = spot._replace(value=float(f"{spot.value:.6g}"))
                answer.findings.append(bound.check.finding(spot, **about))
        return answers

    def _asked(self, bound: Bound[Any], seen: Any, rollout: str | None) -> Any:
        """What a check says. One that raises is broken: it saw nothing, and the others go on."""
        try:
            return bound.answer(seen)
        except Exception as error:
            said = self.broken.setdefault(bound.check.id, [f"{type(error).__name__}: {error}"])
            said.append(rollout or "")
            return None


def is_current(had: Mapping[str, CheckStamp], wanted: Mapping[str, CheckStamp]) -> bool:
    """Did all the checks that are wanted look, as they are now? A newer version than ours counts,
    or two programs of different age would look again for ever."""
    return all(_is_as_new(had.get(id), stamp) for id, stamp in wanted.items())


def _is_as_new(had: CheckStamp | None, wanted: CheckStamp) -> bool:
    if had is None or had.version < wanted.version:
        return False
    return had.version > wanted.version or had.parameters == wanted.parameters
