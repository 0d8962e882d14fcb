"""Faults of a run: what its rollouts are like from a step on.

Each function changes the rollouts of the run, given by their steps, from the step that goes wrong
on, and says whether it could.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from statistics import fmean
from typing import NamedTuple

from rollscope import Rollout
from rollscope.model import Error

from . import STEPS, drew, planted, text


class Run(NamedTuple):
    """The rollouts of a run."""

    steps: dict[int, list[Rollout]]
    at: int
    """The step from which something is wrong."""

    def after(self, least: int = 0) -> list[Rollout]:
        """The rollouts of the steps from there on, and so many later."""
        return [r for step, rs in self.steps.items() if step >= self.at + least for r in rs]

    def by_group(self) -> list[list[Rollout]]:
        found: dict[object, list[Rollout]] = {}
        for one in self.after():
            found.setdefault((one.step, one.task), []).append(one)
        return list(found.values())


@planted(
    STEPS, "steps.hole", "one step", "two steps", "four steps", "one, and one later", "a long while"
)
def steps_hole(run: Run, how: str, draw: Random) -> bool:
    lost = {"one step": [0], "two steps": [0, 1], "four steps": [0, 1, 2, 3],
            "one, and one later": [0, 5]}.get(how, range(8))  # fmt: skip
    for n in lost:
        run.steps.pop(run.at + n, None)
    return True


@planted(
    STEPS,
    "steps.short",
    "one rollout",
    "a group",
    "half of them",
    "all but one",
    "of several steps",
)
def steps_short(run: Run, how: str, draw: Random) -> bool:
    sizes = Counter(map(len, run.steps.values()))
    if sizes.most_common(1)[0][1] < 0.9 * len(run.steps):
        return False
    for n in range(3 if how == "of several steps" else 1):
        members = run.steps[run.at + n]
        keep = {
            "one rollout": len(members) - 1,
            "all but one": 1,
            "half of them": len(members) // 2,
        }
        del members[keep.get(how, max(1, len(members) - 8)) :]
    return True


@planted(
    STEPS,
    "run.reward_jump",
    "up at once",
    "down at once",
    "within three steps",
    "nothing is solved",
    "a quarter more",
)
def reward_jump(run: Run, how: str, draw: Random) -> bool:
    before = _mean(run)
    for one in run.after():
        part = 1.0 if how != "within three steps" else min(1.0, (one.step - run.at + 1) / 3)
        if one.reward is None or draw.random() > part:
            continue
        if how == "up at once":
            one.reward = min(1.0, one.reward + 0.4)
        elif how == "down at once":
            one.reward = max(0.0, one.reward - 0.4)
        elif how == "a quarter more":
            one.reward += 0.25
        else:
            one.reward = 0.0
    return abs(_mean(run) - before) >= 0.2  # a run at its ceiling cannot rise


def _mean(run: Run) -> float:
    """Of the rewards from the step on that goes wrong."""
    return fmean(one.reward for one in run.after() if one.reward is not None)


@planted(
    STEPS,
    "run.variance_collapse",
    "all are solved",
    "none is solved",
    "all half right, nearly",
    "within five steps",
    "a grader that says one thing",
)
def variance_collapse(run: Run, how: str, draw: Random) -> bool:
    value = {"all are solved": 1.0, "none is solved": 0.0}.get(how, 0.5)
    for one in run.after():
        if how == "within five steps" and draw.random() > (one.step - run.at + 1) / 5:
            continue
        one.reward = value + (draw.gauss(0, 0.003) if how == "all half right, nearly" else 0.0)
    return True


@planted(
    STEPS,
    "run.part_dominates",
    "one part grows",
    "the others go to zero",
    "slowly",
    "a new part",
    "below zero",
)
def part_dominates(run: Run, how: str, draw: Random) -> bool:
    for one in run.after():
        names = sorted(one.rewards)
        if len(names) < 2:
            return False
        first = names[0]
        if how == "the others go to zero":
            one.rewards = {n: (1.0 if n == first else 0.0) for n in names}
        elif how == "a new part":
            one.rewards = {**one.rewards, "style": 60.0}
        else:
            size = -80.0 if how == "below zero" else 80.0
            if how == "slowly":
                size = 12.0 * (one.step - run.at + 1)
            one.rewards = {**one.rewards, first: size}
    return True


@planted(
    STEPS,
    "run.ceiling",
    "all",
    "nine of ten",
    "within five steps",
    "all, and a bonus",
    "the grader lets everything pass",
)
def ceiling(run: Run, how: str, draw: Random) -> bool:
    for one in run.after():
        if how == "nine of ten" and draw.random() > 0.92:
            continue
        if how == "within five steps" and draw.random() > (one.step - run.at + 1) / 5:
            continue
        one.reward = 1.5 if how == "all, and a bonus" else 1.0
    return True


@planted(
    STEPS,
    "run.dead_groups",
    "all solved",
    "none solved",
    "seven of ten",
    "each with a value of its own",
    "within five steps",
)
def dead_groups(run: Run, how: str, draw: Random) -> bool:
    for group in run.by_group():
        if how == "seven of ten" and draw.random() > 0.7:
            continue
        if how == "within five steps" and draw.random() > (group[0].step - run.at + 1) / 5:
            continue
        value = {"all solved": 1.0, "each with a value of its own": round(draw.random(), 2)}.get(
            how, 0.0
        )
        for one in group:
            one.reward = value
    return True


@planted(
    STEPS,
    "run.length_drift",
    "twice as long",
    "four times as long",
    "a third as long",
    "longer from step to step",
    "shorter from step to step",
)
def length_drift(run: Run, how: str, draw: Random) -> bool:
    for one in run.after():
        since = one.step - run.at + 1
        times = {
            "twice as long": 2.0, "four times as long": 4.0, "a third as long": 0.33,
            "longer from step to step": 1 + 0.3 * since,
            "shorter from step to step": 0.85**since,
        }[how]  # fmt: skip
        for n in drew(one):
            tokens = one.messages[n].tokens
            size = max(1, round(len(tokens) * times))
            at = [k % len(tokens) for k in range(size)]
            tokens.ids = [tokens.ids[k] for k in at]
            tokens.ends = None
            tokens.streams = {s: [v[k] for k in at] for s, v in tokens.streams.items()}
    return True


@planted(
    STEPS,
    "run.entropy_collapse",
    "at once",
    "within ten steps",
    "only the logprobs tell",
    "to nothing",
    "of nearly all rollouts",
)
def entropy_collapse(run: Run, how: str, draw: Random) -> bool:
    for one in run.after():
        since = one.step - run.at + 1
        if how == "of nearly all rollouts" and draw.random() > 0.95:
            continue
        share = {"within ten steps": 0.7**since, "to nothing": 0.0}.get(how, 0.04)
        for n in drew(one):
            streams = one.messages[n].tokens.streams
            for name in ("entropy", "logprob"):
                if name in streams:
                    streams[name] = [v if v is None else v * share for v in streams[name]]
    if how == "only the logprobs tell":
        for members in run.steps.values():
            for one in members:
                for message in one.messages:
                    if message.tokens is not None:
                        message.tokens.streams.pop("entropy", None)
    return True


@planted(
    STEPS,
    "run.gap",
    "weights of some steps ago",
    "another temperature",
    "one token in twenty is another",
    "slowly growing",
    "moved by one token",
)
def gap(run: Run, how: str, draw: Random) -> bool:
    for members in run.steps.values():
        for one in members:
            since = one.step - run.at + 1
            for n in drew(one):
                streams = one.messages[n].tokens.streams
                values = [v or 0.0 for v in streams["logprob"]]
                learned = [min(0.0, v + draw.gauss(0, 0.01)) for v in values]
                if since > 0:
                    if how == "weights of some steps ago":
                        learned = [min(0.0, v + draw.gauss(0, 0.3)) for v in values]
                    elif how == "another temperature":
                        learned = [v * 1.5 for v in values]
                    elif how == "one token in twenty is another":
                        learned = [v - 5 * (draw.random() < 0.05) for v in learned]
                    elif how == "slowly growing":
                        learned = [min(0.0, v + draw.gauss(0, 0.04 * since)) for v in values]
                    else:
                        learned = [*learned[1:], learned[0]]
                streams["train_logprob"] = learned
    return True


@planted(
    STEPS,
    "run.errors",
    "of tools",
    "of the machine",
    "of the grader",
    "of no known kind",
    "more from step to step",
)
def errors(run: Run, how: str, draw: Random) -> bool:
    kind = {"of tools": "tool", "of the machine": "infrastructure", "of the grader": "grader"}
    for one in run.after():
        share = 0.3 if how != "more from step to step" else 0.05 * (one.step - run.at + 1)
        if draw.random() < share:
            one.error = Error(kind=kind.get(how), type="TimeoutError", text="no answer in 60 s")
    return True


@planted(
    STEPS,
    "run.truncation",
    "half of them",
    "nearly all",
    "a third",
    "from step to step more",
    "the longest of each group",
)
def truncation(run: Run, how: str, draw: Random) -> bool:
    for members in run.steps.values():
        for one in members:
            one.truncated = bool(one.truncated)
    for one in run.after():
        share = {"half of them": 0.5, "nearly all": 0.95, "a third": 0.33}.get(
            how, 0.06 * (one.step - run.at + 1)
        )
        if draw.random() < share and how != "the longest of each group":
            one.truncated = True
    if how == "the longest of each group":
        for group in run.by_group():
            sizes = sorted(group, key=lambda r: sum(len(text(m)) for m in r.messages))
            for one in sizes[len(group) * 2 // 3 :]:
                one.truncated = True
    return True


@planted(
    STEPS,
    "run.staleness",
    "ten steps late",
    "forty steps late",
    "six of ten",
    "later from step to step",
    "nine steps late",
)
def staleness(run: Run, how: str, draw: Random) -> bool:
    for members in run.steps.values():
        for one in members:
            one.trained_step = one.step
    for one in run.after():
        late = {"ten steps late": 10, "forty steps late": 40, "nine steps late": 9}.get(how, 12)
        if how == "six of ten" and draw.random() > 0.6:
            continue
        if how == "later from step to step":
            late = 2 * (one.step - run.at + 1)
        one.trained_step = one.step + late
    return True
