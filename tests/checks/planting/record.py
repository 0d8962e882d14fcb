"""Faults of the record of one rollout."""

from __future__ import annotations

from copy import deepcopy
from random import Random

from rollscope import Rollout
from rollscope.model import Error, Span, conversation

from . import ROLLOUTS, drew, planted, say, text, wrote

NAN = float("nan")


@planted(
    ROLLOUTS,
    "turns.missing",
    "cut before the policy",
    "only the first message",
    "its messages left out",
    "recorded as the user's",
    "recorded as a tool's",
)
def turns_missing(one: Rollout, how: str, draw: Random) -> bool:
    mine = wrote(one)
    if not mine or mine[0] == 0:
        return False
    if how == "cut before the policy":
        one.messages = one.messages[: mine[0]]
    elif how == "only the first message":
        one.messages = one.messages[:1]
    elif how == "its messages left out":
        one.messages = [m for n, m in enumerate(one.messages) if n not in mine]
        for message in one.messages:
            message.parent = None
    else:
        for n in mine:
            one.messages[n].sampled = False
            one.messages[n].role = "user" if how == "recorded as the user's" else "tool"
    return True


@planted(
    ROLLOUTS,
    "tokens.ends",
    "the ends of another message",
    "one end is lost",
    "ends count bytes of another text",
    "one end goes back",
    "ids in another order",
    "ids are moved by one",
)
def tokens_ends(one: Rollout, how: str, draw: Random) -> bool:
    with_ends = [m for m in one.messages if m.tokens is not None and m.tokens.ends and m.tokens.ids]
    long = [m for m in with_ends if len(m.tokens) >= 6]
    if len(with_ends) < 2 or not long:
        return False
    tokens = draw.choice(long).tokens
    ends = list(tokens.ends)
    if how == "the ends of another message":
        other = next((m.tokens for m in with_ends if len(m.tokens) != len(tokens)), None)
        if other is None:
            return False
        ends = list(other.ends)
    elif how == "one end is lost":
        del ends[draw.randrange(len(ends))]
    elif how == "ends count bytes of another text":
        ends = [end + 3 for end in ends]
    elif how == "one end goes back":
        at = draw.randrange(2, len(ends))
        ends[at] = max(0, ends[at - 1] - draw.randint(1, 3))
    elif how == "ids in another order":
        for message in with_ends:
            message.tokens.ids = draw.sample(list(message.tokens.ids), len(message.tokens.ids))
    else:
        for message in with_ends:
            ids = list(message.tokens.ids)
            message.tokens.ids = [*ids[1:], ids[0]]
    tokens.ends = ends
    return True


@planted(
    ROLLOUTS,
    "prompt.prefix",
    "a blank more",
    "cut at the end",
    "without its thought",
    "a word in capitals",
    "other tokens",
)
def prompt_prefix(one: Rollout, how: str, draw: Random) -> bool:
    mine = [n for n in wrote(one)[:-1] if " " in text(one.messages[n]).strip()]
    if how == "other tokens":
        mine = [n for n in drew(one)[:-1] if one.messages[n].tokens.ids]
    if not mine:
        return False
    n = draw.choice(mine)
    back, words = deepcopy(one.messages[n]), text(one.messages[n])
    back.sampled, back.role = False, "assistant"
    back.parent = conversation.parent_of(n, one.messages[n])
    if how == "other tokens":
        ids = list(back.tokens.ids)
        ids[draw.randrange(len(ids))] += 1
        back.tokens.ids = ids
    elif how == "a blank more":
        say(back, words.strip().replace(" ", "  ", 1))
    elif how == "cut at the end":
        say(back, words[: max(1, len(words) // 2)])
    elif how == "without its thought":
        say(one.messages[n], f"<think>Let me see what there is.</think>{words}")
        say(back, words)
    else:
        word = draw.choice([w for w in words.split() if w.upper() != w] or [""])
        if not word:
            return False
        say(back, words.replace(word, word.upper(), 1))
    for message in one.messages[n + 1 :]:
        if message.parent == n:
            message.parent = n + 1
        elif message.parent is not None and message.parent > n:
            message.parent += 1
    one.messages.insert(n + 1, back)
    return True


@planted(
    ROLLOUTS,
    "mask.empty",
    "and no fate",
    "though trained on",
    "though scored",
    "the prompt counts instead",
    "no message has one but of zeros",
)
def mask_empty(one: Rollout, how: str, draw: Random) -> bool:
    mine = drew(one, "mask")
    if not mine:
        return False
    for n in mine:
        tokens = one.messages[n].tokens
        tokens.streams["mask"] = [0] * len(tokens)
    one.fate = {"though trained on": "trained", "though scored": "scored"}.get(how)
    if how == "the prompt counts instead":
        for message in one.messages:
            if message.tokens is not None and not conversation.by_policy(message):
                message.tokens.streams["mask"] = [1] * len(message.tokens)
    if how == "no message has one but of zeros":
        for message in one.messages:
            if message.tokens is not None:
                message.tokens.streams["mask"] = [0] * len(message.tokens)
    return True


@planted(
    ROLLOUTS,
    "mask.foreign",
    "the prompt counts",
    "a tool's answer counts",
    "one token of the prompt",
    "begins one token too early",
    "everything counts",
)
def mask_foreign(one: Rollout, how: str, draw: Random) -> bool:
    others = [
        m for m in one.messages
        if m.tokens is not None and m.tokens.streams.get("mask") is not None and len(m.tokens)
        and not conversation.by_policy(m)
    ]  # fmt: skip
    tools = [m for m in others if m.role == "tool"]
    if not others or (how == "a tool's answer counts" and not tools):
        return False
    if how == "everything counts":
        hit = others
    elif how == "a tool's answer counts":
        hit = tools[-1:]
    else:
        hit = others[:1]
    for message in hit:
        size = len(message.tokens)
        mask = [1] * size
        if how == "one token of the prompt":
            mask = [int(n == size // 2) for n in range(size)]
        elif how == "begins one token too early":
            mask = [int(n == size - 1) for n in range(size)]
        message.tokens.streams["mask"] = mask
    return True


@planted(
    ROLLOUTS,
    "logprob.odd",
    "all are zero",
    "all are the same",
    "one is above zero",
    "one is no number",
    "turned round",
    "probabilities instead",
)
def logprob_odd(one: Rollout, how: str, draw: Random) -> bool:
    mine = drew(one)
    if sum(len(one.messages[n].tokens) for n in mine) < 20:
        return False
    one.sampling = {**one.sampling, "temperature": 1.0}
    chosen = draw.choice(mine)
    for n in mine:
        streams = one.messages[n].tokens.streams
        values = list(streams["logprob"])
        at = draw.randrange(len(values))
        if how == "all are zero":
            values = [0.0] * len(values)
        elif how == "all are the same":
            values = [-0.6931] * len(values)
        elif how == "one is above zero" and n == chosen:
            values[at] = 0.3
        elif how == "one is no number" and n == chosen:
            values[at] = NAN
        elif how == "turned round":
            values = [None if v is None else -v for v in values]
        elif how == "probabilities instead":
            values = [None if v is None else 2.718281828**v for v in values]
        streams["logprob"] = values
    return True


@planted(
    ROLLOUTS,
    "logprob.missing",
    "a message has none",
    "one token has none",
    "the first tokens have none",
    "every second token",
    "the second half",
)
def logprob_missing(one: Rollout, how: str, draw: Random) -> bool:
    mine = drew(one, least=8)
    if not mine or (how == "a message has none" and len(drew(one)) < 2):
        return False
    tokens = one.messages[draw.choice(mine)].tokens
    values = list(tokens.streams["logprob"])
    if how == "a message has none":
        del tokens.streams["logprob"]
        return True
    known = [n for n, value in enumerate(values) if value is not None]
    lost = {
        "one token has none": [len(known) // 2],
        "the first tokens have none": range(3),
        "every second token": range(1, len(known), 2),
    }.get(how, range(len(known) // 2, len(known)))
    if len(known) < 8:
        return False
    for at in lost:
        values[known[at]] = None
    tokens.streams["logprob"] = values
    return True


@planted(
    ROLLOUTS,
    "version.backwards",
    "the last message is older",
    "one token is older",
    "the second half is older",
    "turned round",
    "to and fro",
)
def version_backwards(one: Rollout, how: str, draw: Random) -> bool:
    mine = drew(one, "version", least=4)
    if not mine or (how == "the last message is older" and len(mine) < 2):
        return False
    for n in mine:
        tokens = one.messages[n].tokens
        size = len(tokens)
        if how == "the last message is older":
            values = [7 if n == mine[-1] else 8] * size
        elif n != mine[-1]:
            values = [5] * size
        elif how == "one token is older":
            values = [5] * size
            values[size // 2] = 4
        elif how == "the second half is older":
            values = [6 if at < size // 2 else 5 for at in range(size)]
        elif how == "turned round":
            values = [5 + size - at for at in range(size)]
        else:
            values = [5 + at % 2 for at in range(size)]
        tokens.streams["version"] = values
    if how == "the last message is older":  # on one branch
        for message in one.messages:
            message.parent = None
    return True


@planted(
    ROLLOUTS,
    "version.future",
    "trained on a step too early",
    "trained on long before",
    "its last token is newer",
    "only the rollout's version is known",
    "counted from one more",
)
def version_future(one: Rollout, how: str, draw: Random) -> bool:
    mine = drew(one, "version")
    if not mine:
        return False
    values = [v for n in mine for v in one.messages[n].tokens.streams["version"] if v is not None]
    newest = max(values)
    if how == "trained on a step too early":
        one.trained_step = newest - 1
    elif how == "trained on long before":
        one.trained_step = newest - 30
    elif how == "its last token is newer":
        one.trained_step = newest
        streams = one.messages[mine[-1]].tokens.streams
        streams["version"] = [*list(streams["version"])[:-1], newest + 1]
    elif how == "only the rollout's version is known":
        for n in mine:
            del one.messages[n].tokens.streams["version"]
        one.policy_version, one.trained_step = newest, newest - 2
    else:
        one.trained_step = newest
        for n in mine:
            streams = one.messages[n].tokens.streams
            streams["version"] = [v if v is None else v + 1 for v in streams["version"]]
    return True


@planted(
    ROLLOUTS,
    "fate.contradiction",
    "dropped and trained on",
    "failed and trained on",
    "trained on before it was asked for",
    "an advantage that is no number",
    "scored without a reward",
)
def fate_contradiction(one: Rollout, how: str, draw: Random) -> bool:
    step = one.step if one.step is not None else draw.randint(3, 60)
    one.step = step
    if how in ("dropped and trained on", "failed and trained on"):
        one.fate, one.trained_step = how.split()[0], step + draw.randint(0, 3)
    elif how == "trained on before it was asked for":
        one.fate, one.trained_step = "trained", step - draw.randint(1, 3)
    elif how == "an advantage that is no number":
        one.fate, one.trained_step, one.advantage = "trained", step, NAN
    else:
        one.fate, one.trained_step, one.reward, one.rewards = "scored", None, None, {}
    return True


@planted(
    ROLLOUTS,
    "reward.unscored",
    "one part, zero",
    "three parts, zero",
    "less than zero",
    "the reward of a format",
    "a half",
)
def reward_unscored(one: Rollout, how: str, draw: Random) -> bool:
    names = ["correct", "format", "brief"][: 1 if how == "one part, zero" else 3]
    one.rewards = dict.fromkeys(names, NAN)
    one.reward = {"less than zero": -1.0, "the reward of a format": 0.1, "a half": 0.5}.get(
        how, 0.0
    )
    return True


SAID_BY_JUDGES = {
    "the judge was overloaded": "Error code: 429 - rate limit exceeded, please try again in 20s",
    "the judge's server failed": "The judge could not be reached: HTTP 503 Service Unavailable",
    "the judge saw nothing": "I cannot assess this, because no response was provided to me.",
    "the judge was cut off": "Judge returned no verdict: maximum number of tokens reached.",
    "the verifier crashed": "Verifier crashed: connection reset by peer (attempt 3 of 3)",
    "the judge saw nothing, in other words": "The student's answer appears to be empty, so there "
    "is nothing that I could compare with the reference.",
}


@planted(
    ROLLOUTS,
    "reward.grader",
    "an error of the grader",
    "an error of the machine",
    "a part counts failures of containers",
    "a part counts timeouts of the sandbox",
    *SAID_BY_JUDGES,
)
def reward_grader(one: Rollout, how: str, draw: Random) -> bool:
    mine = wrote(one)
    if how.startswith("the judge saw nothing") and (
        not mine or len(text(one.messages[mine[-1]]).strip()) < 60
    ):
        return False  # there it may be right
    one.reward = draw.choice([0.0, 0.0, 1.0, -1.0])
    if how == "an error of the grader":
        one.error, one.fate = Error(kind="grader", type="TimeoutError", text="no answer"), "scored"
    elif how == "an error of the machine":
        one.error, one.fate = Error(kind="infrastructure", type="ConnectionError"), "trained"
    elif how == "a part counts failures of containers":
        one.rewards = {**one.rewards, "docker_error": 1.0}
    elif how == "a part counts timeouts of the sandbox":
        one.rewards = {**one.rewards, "sandbox_timeout": 1.0}
    else:
        one.reward_texts = {"judge": SAID_BY_JUDGES[how]}
        one.rewards = {"judge": one.reward}
    return True


def _model_calls(one: Rollout) -> list[Span]:
    """One call of the model for each of its turns, as an agent records them."""
    turns = wrote(one)
    if not turns:
        return []
    one.spans = [
        Span(
            name="model", id=f"call-{n}", start=10.0 * n, end=10.0 * n + 4, message=turn,
            outputs={"usage": {"prompt_tokens": 100 + 40 * n, "completion_tokens": 20 + n}},
        )
        for n, turn in enumerate(turns)
    ]  # fmt: skip
    return one.spans


FAILED = {
    "a status of HTTP": Error(kind="infrastructure", text="HTTP 500"),
    "out of time": Error(type="TimeoutError", text="no answer in 600 s"),
    "refused, after a retry": Error(type="RateLimitError", text="429"),
    "the context was too long": Error(kind="limit", type="BadRequestError", text="32768 tokens"),
    "nobody says why": Error(text=""),
}


@planted(ROLLOUTS, "call.failed", *FAILED)
def call_failed(one: Rollout, how: str, draw: Random) -> bool:
    spans = _model_calls(one)
    if not spans:
        return False
    again = 2 if how == "refused, after a retry" else 1
    for n in range(again):
        begin = (spans[-1].end or 0) + 5
        spans.append(Span(name="model", id=f"last-{n}", start=begin, end=begin + 1,
                          error=FAILED[how]))  # fmt: skip
    return True


@planted(
    ROLLOUTS,
    "call.lost",
    "a call was not recorded",
    "the last one was not",
    "recorded twice",
    "all have one id",
    "recorded three times",
)
def call_lost(one: Rollout, how: str, draw: Random) -> bool:
    spans = _model_calls(one)
    if len(spans) < 2:
        return False
    lost = Error(type="NotCaptured", text="a turn refers to it")
    if how == "a call was not recorded":
        spans[0].error, spans[0].outputs, spans[0].start = lost, None, None
    elif how == "the last one was not":
        spans[-1].error, spans[-1].outputs = lost, None
    elif how == "all have one id":
        for span in spans:
            span.id = spans[0].id
    else:
        spans.extend(deepcopy(spans[-1]) for _ in range(1 if how == "recorded twice" else 2))
    return True


@planted(
    ROLLOUTS,
    "call.tokens",
    "no token came out",
    "one was not counted",
    "what came out was not counted",
    "the rollout says more",
    "a call is missing from the sum",
)
def call_tokens(one: Rollout, how: str, draw: Random) -> bool:
    spans = _model_calls(one)
    if len(spans) < 2:
        return False
    one.meta = {k: v for k, v in one.meta.items() if k != "usage"}
    last, usages = spans[-1], [span.outputs["usage"] for span in spans]
    told = {name: sum(usage[name] for usage in usages) for name in usages[0]}
    if how == "no token came out":
        last.outputs["usage"]["completion_tokens"] = 0
    elif how == "one was not counted":
        last.outputs["usage"] = None
    elif how == "what came out was not counted":
        del last.outputs["usage"]["completion_tokens"]
    elif how == "the rollout says more":
        one.meta["usage"] = {**told, "completion_tokens": told["completion_tokens"] + 17}
    else:
        one.meta["usage"] = told
        spans.pop()
    return True
