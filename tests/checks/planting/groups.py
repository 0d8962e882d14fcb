"""Faults of a group: of its record, and of what its members did beside each other.

Each function gives the members in which the fault should be found; all of them, where the fault is
the group's.
"""

from __future__ import annotations

import re
from copy import deepcopy
from random import Random

from rollscope import Rollout
from rollscope.model import Error

from . import GROUPS, planted, say, text, wrote

Members = list[Rollout]


def _learned(group: Members) -> Members:
    """Members with a reward and an advantage, if the rewards differ."""
    known = [m for m in group if m.reward is not None and m.advantage is not None]
    return known if len(known) > 1 and len({m.reward for m in known}) > 1 else []


@planted(
    GROUPS,
    "advantage.mean",
    "of another group",
    "without the mean taken off",
    "one member is missing",
    "all moved up",
    "one is set to zero",
)
def advantage_mean(group: Members, how: str, draw: Random) -> Members:
    known = _learned(group)
    if not known:
        return []
    largest = max(abs(m.advantage or 0) for m in known)
    if how == "of another group":
        for member in known:
            member.advantage = draw.gauss(0.4, 1.0)
    elif how == "without the mean taken off":
        for member in known:
            member.advantage = member.reward
    elif how == "one member is missing":
        if len(known) < 3:
            return []
        gone = max(known, key=lambda m: abs(m.advantage or 0))
        group.remove(gone)
        known.remove(gone)
    elif how == "all moved up":
        for member in known:
            member.advantage = (member.advantage or 0) + 0.3 * largest
    else:
        max(known, key=lambda m: abs(m.advantage or 0)).advantage = 0.0
    return known


@planted(
    GROUPS,
    "advantage.order",
    "turned round",
    "two are exchanged",
    "in another order",
    "moved by one place",
    "of the length instead of the reward",
)
def advantage_order(group: Members, how: str, draw: Random) -> Members:
    known = _learned(group)
    if not known:
        return []
    best, worst = max(known, key=lambda m: m.reward or 0), min(known, key=lambda m: m.reward or 0)
    made = [m.advantage for m in known]
    if how == "turned round":
        made = [-(a or 0) for a in made]
    elif how == "two are exchanged":
        best.advantage, worst.advantage = worst.advantage, best.advantage
        return known
    elif how == "in another order":
        made = draw.sample(made, len(made))
    elif how == "moved by one place":
        made = [*made[1:], made[0]]
    else:
        sizes = [sum(len(text(m.messages[n])) for n in wrote(m)) for m in known]
        middle = sum(sizes) / len(sizes)
        made = [(size - middle) / 50 for size in sizes]
    for member, advantage in zip(known, made, strict=True):
        member.advantage = advantage
    ranked = sorted(known, key=lambda m: m.reward or 0)
    harm = any((a.reward or 0) < (b.reward or 0) and (a.advantage or 0) > (b.advantage or 0) + 1e-3
               for a in ranked for b in ranked)  # fmt: skip
    return known if harm else []


@planted(
    GROUPS,
    "advantage.sign",
    "the best is pushed down",
    "the worst is pushed up",
    "all have the other sign",
    "all are pushed up",
    "the best and the worst are exchanged",
)
def advantage_sign(group: Members, how: str, draw: Random) -> Members:
    known = _learned(group)
    if not known:
        return []
    best, worst = max(known, key=lambda m: m.reward or 0), min(known, key=lambda m: m.reward or 0)
    if how == "the best is pushed down":
        best.advantage = -0.5
    elif how == "the worst is pushed up":
        worst.advantage = 0.5
    elif how == "all have the other sign":
        for member in known:
            member.advantage = -(member.advantage or 0)
    elif how == "all are pushed up":
        for member in known:
            member.advantage = abs(member.advantage or 0) + 0.1
    else:
        best.advantage, worst.advantage = worst.advantage, best.advantage
    return known


@planted(
    GROUPS,
    "fate.unfinished",
    "one is only scored",
    "one is only generated",
    "half of them",
    "all but one",
    "one that has no reward",
)
def fate_unfinished(group: Members, how: str, draw: Random) -> Members:
    ended = [m for m in group if m.fate in ("trained", "dropped", "masked", "rejected")]
    if len(ended) < 2:
        return []
    count = {"half of them": len(ended) // 2, "all but one": len(ended) - 1}.get(how, 1)
    lost = draw.sample(ended, count)
    for member in lost:
        member.fate = "generated" if how == "one is only generated" else "scored"
        member.fate_reason = None
        if how == "one that has no reward":
            member.fate, member.reward, member.rewards, member.advantage = (
                "generated",
                None,
                {},
                None,
            )
    return lost


@planted(
    GROUPS,
    "group.prompt",
    "of another task",
    "a sentence more",
    "cut at the end",
    "one number is another",
    "of two members",
)
def group_prompt(group: Members, how: str, draw: Random) -> Members:
    if len(group) < 6:
        return []
    hit = draw.sample(group, 2 if how == "of two members" else 1)
    for member in hit:
        mine = wrote(member)
        if not mine or mine[0] == 0:
            return []
        asked = member.messages[mine[0] - 1]
        words = text(asked)
        if how in ("of another task", "of two members"):
            words = "How many days has a leap year, if you count the extra one?"
        elif how == "a sentence more":
            words += " Think step by step."
        elif how == "cut at the end":
            words = words[: len(words) * 2 // 3]
        else:
            found = re.search(r"\d+", words)
            if found is None:
                return []
            words = words[: found.start()] + str(int(found[0]) + 1) + words[found.end() :]
        say(asked, words)
    return hit


@planted(
    GROUPS,
    "group.size",
    "one is missing",
    "the last is missing",
    "half are missing",
    "one too many",
    "two too many",
)
def group_size(group: Members, how: str, draw: Random) -> Members:
    if len(group) < 2:
        return []
    if how == "one is missing":
        group.remove(draw.choice(group))
    elif how == "the last is missing":
        group.pop()
    elif how == "half are missing":
        del group[len(group) // 2 :]
    else:
        for more in range(1 if how == "one too many" else 2):
            extra = deepcopy(draw.choice(group))
            extra.key, extra.index = f"{extra.key}+{more}", len(group) + more
            group.append(extra)
    return list(group)


@planted(
    GROUPS,
    "group.slot",
    "logged twice",
    "two have the first place",
    "two have the last place",
    "three have one place",
    "all have the same place",
)
def group_slot(group: Members, how: str, draw: Random) -> Members:
    if len(group) < (4 if how == "three have one place" else 2):
        return []
    if any(m.index is None or m.fate in ("dropped", "rejected", "failed") for m in group):
        return []  # there another may take the place
    if how == "logged twice":
        one = draw.choice(group)
        extra = deepcopy(one)
        extra.key = f"{extra.key}+again"
        group.append(extra)
        return [one, extra]
    hit = {"two have the first place": group[:2], "two have the last place": group[-2:],
           "three have one place": group[1:4]}.get(how, group)  # fmt: skip
    for member in hit:
        member.index, member.attempt = hit[0].index, hit[0].attempt
    return list(hit)


@planted(
    GROUPS,
    "reward.parts",
    "a part is left out",
    "another reward",
    "twice the reward",
    "a penalty that no part has",
    "of another member",
)
def reward_parts(group: Members, how: str, draw: Random) -> Members:
    least = 2 if how == "a part is left out" else 1
    known = [
        m for m in group
        if m.reward is not None and len(m.rewards) >= least and any(m.rewards.values())
        and abs(m.reward - sum(m.rewards.values())) < 1e-3
    ]  # fmt: skip
    if not known:
        return []
    one = draw.choice(known)
    before = one.reward or 0.0
    if how == "a part is left out":
        name = max(one.rewards, key=lambda n: abs(one.rewards[n]))
        one.rewards = {n: v for n, v in one.rewards.items() if n != name}
    elif how == "another reward":
        one.reward = before + 0.37
    elif how == "twice the reward":
        one.reward = 2 * before + 0.01
    elif how == "a penalty that no part has":
        one.reward = before - 0.5
    else:
        other = next((m for m in group if m.reward is not None and m.reward != before), None)
        if other is None:
            return []
        one.reward = other.reward
    return [one]


@planted(
    GROUPS,
    "task.collapsed",
    "two tasks",
    "three tasks",
    "two, in turn",
    "a pair of another",
    "two that differ by a number",
)
def task_collapsed(group: Members, how: str, draw: Random) -> Members:
    if len(group) < 6:
        return []
    kinds = 3 if how == "three tasks" else 2
    for n, member in enumerate(group):
        mine = wrote(member)
        if not mine or mine[0] == 0:
            return []
        kind = n % kinds if how in ("two, in turn", "three tasks") else int(n >= len(group) // 2)
        if how == "a pair of another":
            kind = int(n < 2)
        if kind:
            asked = member.messages[mine[0] - 1]
            words = text(asked)
            if how == "two that differ by a number":
                words += " 17"
            say(asked, words if how == "two that differ by a number" else f"Task {kind}: how many?")
    return list(group)


FORMS = {
    "the box": r"\\boxed\s*\{([^{}]*)\}",
    "<answer>": r"</?answer>",
    "words that announce it": r"(?im)^\W*(?:the )?(?:final )?answer(?: is)?\W*:?",
    "the block of code": r"(?m)^```\w*",
    "all marks": r"[\\*_`#<>{}$]",
}


KEPT = {
    "the box": "So it is \\boxed{17}",
    "<answer>": "<answer>17</answer>",
    "words that announce it": "Final answer: 17",
    "the block of code": "```\n17\n```",
    "all marks": "So it is \\boxed{17}",
}


@planted(GROUPS, "format.break", *FORMS)
def format_break(group: Members, how: str, draw: Random) -> Members:
    """A form that all siblings have, or are given, taken from one of them."""
    pattern = re.compile(FORMS["the box"] if how == "all marks" else FORMS[how])
    if len(group) < 4 or any(not _said(m).strip() for m in group):
        return []
    for member in group:
        if not any(pattern.search(text(member.messages[n])) for n in wrote(member)):
            last = member.messages[wrote(member)[-1]]
            say(last, f"{text(last)}\n{KEPT[how]}")
    one = draw.choice(group)
    for n in wrote(one):
        message = one.messages[n]
        say(message, re.sub(FORMS[how], r"\1" if how == "the box" else "", text(message)))
    return [one]


@planted(
    GROUPS,
    "group.dead",
    "nothing is solved",
    "all is solved",
    "all are half right",
    "all below zero",
    "one of them is not scored",
)
def group_dead(group: Members, how: str, draw: Random) -> Members:
    if len(group) < 3:
        return []
    reward = {"all is solved": 1.0, "all are half right": 0.5, "all below zero": -1.0}.get(how, 0.0)
    for member in group:
        member.reward = reward
    if how == "one of them is not scored":
        group[0].reward = None
        group[0].rewards = {}
    return list(group)


@planted(
    GROUPS,
    "length.outlier",
    "thirty times as long",
    "eight times as long",
    "cut after a few words",
    "cut to a tenth",
    "nothing but a number",
)
def length_outlier(group: Members, how: str, draw: Random) -> Members:
    sizes = sorted(sum(len(text(m.messages[n])) for n in wrote(m)) for m in group)
    if len(group) < 4 or sizes[len(sizes) // 2] < 400 or not sizes[0]:
        return []
    one = min(group, key=lambda m: abs(len(_said(m)) - sizes[len(sizes) // 2]))
    mine = wrote(one)
    last = one.messages[mine[-1]]
    if how in ("thirty times as long", "eight times as long"):
        times = 30 if how.startswith("thirty") else 8
        others = "\n".join(_said(m) for m in group if m is not one)
        whole = others * (1 + times * sizes[len(sizes) // 2] // max(1, len(others)))
        say(last, whole[: times * sizes[len(sizes) // 2]])
        return [one]
    keep = {"cut after a few words": 30, "nothing but a number": 2}.get(
        how, sizes[len(sizes) // 2] // 10
    )
    whole = "42" if how == "nothing but a number" else _said(one)[:keep]
    for n in mine:
        say(one.messages[n], "")
        one.messages[n].tool_calls = []
    say(last, whole)
    return [one]


def _said(one: Rollout) -> str:
    return "\n".join(text(one.messages[n]) for n in wrote(one))


@planted(
    GROUPS,
    "reply.copy",
    "two",
    "three",
    "all of them",
    "with another case at the end",
    "two, one with a blank more",
)
def reply_copy(group: Members, how: str, draw: Random) -> Members:
    long = [m for m in group if len(_said(m)) >= 500]
    if len(group) < 4 or not long:
        return []
    one = draw.choice(long)
    others = [m for m in group if m is not one]
    count = {"three": 2, "all of them": len(others)}.get(how, 1)
    hit = draw.sample(others, count)
    for member in hit:
        member.messages = deepcopy(one.messages)
        last = member.messages[wrote(member)[-1]]
        if how == "with another case at the end":
            say(last, text(last)[:-1] + text(last)[-1:].swapcase())
        elif how == "two, one with a blank more":
            say(last, text(last) + " ")
    return [one, *hit]


@planted(
    GROUPS,
    "rollout.duplicate",
    "logged under two names",
    "joined with another task",
    "three times",
    "with a blank more",
    "with another reward",
)
def rollout_duplicate(group: Members, how: str, draw: Random) -> Members:
    """Copies that stand in groups of their own: their group has a + at its end."""
    long = [m for m in group if len(_said(m)) >= 500 and m.sampling.get("temperature") != 0]
    if not long or any(wrote(m)[:1] == [0] for m in long):
        return []
    one = draw.choice(long)
    copies = []
    for n in range(2 if how == "three times" else 1):
        extra = deepcopy(one)
        extra.id, extra.key, extra.group = None, f"{one.key}+{n}", f"{one.group}{'+' * (n + 1)}"
        if how == "joined with another task":
            extra.task = f"{one.task}+"
            say(extra.messages[wrote(extra)[0] - 1], "How many days has a leap year?")
        elif how == "with a blank more":
            last = extra.messages[wrote(extra)[-1]]
            say(last, text(last) + " ")
        elif how == "with another reward":
            extra.reward = (extra.reward or 0.0) - 1.0
        copies.append(extra)
    group.extend(copies)
    return [one, *copies]


@planted(
    GROUPS,
    "reward.disagrees",
    "the same text, nothing and everything",
    "the same text, a little less",
    "three alike, one apart",
    "the same answer, other words",
    "the same text, one with a penalty",
)
def reward_disagrees(group: Members, how: str, draw: Random) -> Members:
    group_ = [m for m in group if m.reward is not None and _said(m).strip()]
    if len(group_) < 4:
        return []
    one, *others = draw.sample(group_, 4)
    if how == "the same answer, other words":
        if any(not re.search(r"\\boxed\{[^{}]+\}", _said(m)) for m in (one, others[0])):
            return []
        for member in (one, others[0]):
            last = member.messages[wrote(member)[-1]]
            say(last, re.sub(r"\\boxed\{[^{}]+\}", r"\\boxed{77}", text(last)))
        one.reward, others[0].reward = 1.0, 0.0
        return [one, others[0]]
    twins = others if how == "three alike, one apart" else others[:1]
    for member in twins:
        member.messages = deepcopy(one.messages)
        member.reward = one.reward
    difference = {"the same text, a little less": 0.1, "the same text, one with a penalty": 0.3}
    one.reward = (one.reward or 0.0) - difference.get(how, 1.0)
    return [one, *twins]


@planted(
    GROUPS,
    "thought.missing",
    "an empty thought",
    "blanks for a thought",
    "only the end of a thought",
    "one character",
    "of two members",
)
def thought_missing(group: Members, how: str, draw: Random) -> Members:
    """Siblings that mark their thoughts, and one or two that have none."""
    if len(group) < 6 or any(len(_said(m)) < 60 for m in group):
        return []
    hit = draw.sample(group, 2 if how == "of two members" else 1)
    for member in group:
        last = member.messages[wrote(member)[-1]]
        bare = re.sub(r"</?think>", "", text(last))
        cut = len(bare) * 2 // 3
        say(last, f"<think>{bare[:cut]}</think>{bare[cut:]}")
        if member in hit:
            empty = {
                "blanks for a thought": "<think>\n\n</think>", "one character": "<think>.</think>",
                "only the end of a thought": "</think>",
            }.get(how, "<think></think>")  # fmt: skip
            say(last, f"{empty}{bare[cut:]}")
    return hit


@planted(
    GROUPS,
    "group.unhealthy",
    "all say nothing",
    "all were lost",
    "the grader failed for all",
    "each in its own way",
    "none was scored",
)
def group_unhealthy(group: Members, how: str, draw: Random) -> Members:
    if len(group) < 3 or any(not wrote(m) or wrote(m)[0] == 0 for m in group):
        return []
    ways = ("all say nothing", "all were lost", "the grader failed for all", "none was scored")
    for n, member in enumerate(group):
        way = ways[n % 4] if how == "each in its own way" else how
        first = wrote(member)[0]
        if way == "all say nothing":
            member.messages = member.messages[: first + 1]
            say(member.messages[first], "")
            member.messages[first].tool_calls = []
        elif way == "all were lost":
            member.messages = member.messages[:first]
        elif way == "the grader failed for all":
            member.error, member.fate = Error(kind="grader", type="TimeoutError"), "scored"
            member.reward = 0.0
        else:
            member.reward, member.rewards = 0.0, {"right": float("nan")}
    return list(group)
