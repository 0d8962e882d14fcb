"""The trajectories of a group as rollouts. Pure: tokens, rewards and notes are what it knows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...model import Error, Message, Rollout, Span, prompt_task
from ...model.chat import from_chat
from ...model.conversation import text
from .._arrays import number, same_length
from .._decode import own
from .._messages import after_prompt, split

REWARD_METRICS = ("correct", "format", "rubric_score", "win_minus_loss")
"""Metrics of the built-in graders that are parts of the reward. Others are `meta.metrics`."""

_LIMITS = {"max_tokens", "max_sampled_tokens", "max_turns", "max_tool_calls", "context_overflow"}
REFERENCES = ("reference_answer", "gold_answer", "ground_truth", "answer")
_TASKS = ("example_id", "task_id", "problem_id")


@dataclass(frozen=True)
class GroupPlace:
    """Where a group stands in the run."""

    split: str = "train"
    step: int | None = None
    group: int = 0
    """Position in the dataset's batch."""
    source: int = 0
    """Which of the run's datasets: distillation draws from several."""
    roll: int = 0
    """How often this group was rolled out before: asynchronous training repeats stale ones."""
    dataset: str | None = None
    policy_version: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    drops_constant: bool = False
    """Will the trainer drop the group if all its rewards are equal?"""

    @property
    def name(self) -> str:
        name = f"{self.split}/{self.step}/{self.group}"
        name = f"{self.source}:{name}" if self.source else name
        return f"{name}#{self.roll}" if self.roll else name


@dataclass(eq=False)
class Notes:
    """What was noted about one environment while it ran; see `hook`."""

    env: Any = None
    attempt: int = 0
    prompt: list[Mapping[str, Any]] | None = None
    """The first messages of a message environment, as they were then."""
    turns: list[Any] = field(default_factory=list)
    """Observation and action of each step, for rollouts that never became a trajectory."""
    samples: list[tuple[Any, float, float]] = field(default_factory=list)
    """What the policy returned, and when."""
    steps: list[tuple[float, float]] = field(default_factory=list)
    grades: list[tuple[str, float, str]] = field(default_factory=list)
    """Criterion, score, and what the grader wrote."""
    observation: Any = None
    error: Error | None = None
    start: float | None = None
    end: float | None = None


def convert(
    trajectories: Sequence[Any],
    rewards: Sequence[tuple[float, Mapping[str, Any]]] | None = None,
    *,
    envs: Sequence[Any] = (),
    notes: Sequence[Notes | None] = (),
    builder: Any = None,
    place: GroupPlace | None = None,
    tokenizer: Any = None,
    problems: list[str] | None = None,
) -> list[Rollout]:
    """The trajectories of one group, with what `compute_group_rewards` returned for them.

    `tokenizer` is the trainer's, for environments and builders that have none. Lists of another
    length than `trajectories` cannot be matched: they are left out and told in `problems`.
    """
    problems = problems if problems is not None else []
    place = place or GroupPlace()
    n = len(trajectories)
    final = same_length("group rewards", rewards, n, problems)
    envs = same_length("envs", envs or None, n, problems) or [None] * n
    noted = same_length("notes", notes or None, n, problems) or [None] * n
    rollouts = [
        _rollout(trajectory, envs[i], noted[i] or Notes(), builder, place, problems, tokenizer)
        for i, trajectory in enumerate(trajectories)
    ]
    for i, rollout in enumerate(rollouts):
        rollout.key, rollout.group, rollout.index = f"{place.name}/{i}", place.name, i
        if rewards is not None and final is None:
            rollout.meta["unmatched"] = f"{len(rewards)} group rewards for {n} trajectories"
        elif final is not None:
            _score(rollout, trajectories[i], *final[i])
    if place.drops_constant and final is not None and len({r.reward for r in rollouts}) == 1:
        for rollout in rollouts:
            rollout.fate, rollout.fate_reason = "dropped", "constant reward"
    return rollouts


def convert_failed(notes: Notes, n: int, place: GroupPlace, builder: Any = None) -> Rollout:
    """A rollout that never became a trajectory: as far as it came."""
    turns = [*notes.turns]
    if notes.observation is not None and (not turns or turns[-1].ob is not notes.observation):
        turns.append(Turn(notes.observation, Action([])))
    rollout = _rollout(_Trajectory(turns), notes.env, notes, builder, place, [])
    rollout.key, rollout.group = f"{place.name}/failed/{n}", place.name
    rollout.error = notes.error
    rollout.fate = "failed"
    return rollout


@dataclass
class Action:
    tokens: list[int]
    maybe_logprobs: list[float] | None = None
    stop_reason: str | None = None


@dataclass
class Turn:
    """A transition as far as it is known."""

    ob: Any
    ac: Any
    reward: float | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    logs: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class _Trajectory:
    transitions: Sequence[Any]
    stop_reason: str | None = None


def _rollout(
    trajectory: Any,
    env: Any,
    notes: Notes,
    builder: Any,
    place: GroupPlace,
    problems: list[str],
    tokenizer: Any = None,
) -> Rollout:
    conversation = Conversation(env, builder, notes, problems, tokenizer)
    for transition in trajectory.transitions:
        conversation.turn(transition)
    inner = getattr(env, "message_env", env)
    actions = [t.ac for t in trajectory.transitions]
    stop = getattr(trajectory, "stop_reason", None)  # since 0.5
    stop = stop or (actions[-1].stop_reason if actions else None)
    reference = _reference(env, inner, builder)
    rollout = Rollout(
        step=place.step,
        split=place.split,
        dataset=place.dataset,
        task=_task(env, builder, conversation.prompt, reference),
        attempt=notes.attempt or None,
        policy_version=place.policy_version,
        messages=conversation.messages,
        spans=conversation.spans,
        stop_reason=None if stop is None else str(stop),
        truncated=None if stop is None else str(stop) in {*_LIMITS, "length"},
        fate="generated",
        start=notes.start,
        end=notes.end,
        sampling=dict(place.sampling),
        reference=reference,
        environment=None if inner is None else type(inner).__name__,
    )
    player = getattr(env, "player_id", None)
    if player is not None:
        rollout.meta["player"] = player
        for message in rollout.messages:
            if message.sampled:
                message.name = f"player {player}"
    for i, (criterion, score, said) in enumerate(notes.grades, 1):
        rollout.rewards[f"rubric {i}"] = score
        rollout.reward_texts[f"rubric {i}"] = said
        rollout.meta.setdefault("criteria", {})[f"rubric {i}"] = criterion
    return rollout


def _score(rollout: Rollout, trajectory: Any, final: float, metrics: Mapping[str, Any]) -> None:
    steps = [t.reward for t in trajectory.transitions]
    rollout.reward = float(sum(steps) + final)
    rollout.fate = "scored"
    if final and any(steps):
        rollout.rewards |= {"steps": float(sum(steps)), "group": float(final)}
    last = trajectory.transitions[-1].metrics if trajectory.transitions else {}
    for name in REWARD_METRICS:
        value = number(metrics.get(name, last.get(name)))
        if value is not None:
            rollout.rewards[name] = value
    if metrics:
        rollout.meta["metrics"] = dict(metrics)


class Conversation:
    """The messages of one trajectory, each with only the tokens that it adds."""

    def __init__(
        self, env: Any, builder: Any, notes: Notes, problems: list[str], tokenizer: Any = None
    ) -> None:
        self.messages: list[Message] = []
        self.spans: list[Span] = []
        self.prompt = ""
        self._notes = notes
        self._problems = problems
        self._renderer, found = renderer_of(env, builder)
        self._tokenizer = own(tokenizer) if found is None and tokenizer is not None else found
        self._headers = _Headers(self._renderer, self._tokenizer)
        self._path: list[tuple[int, list[int]]] = []  # the branch: message number, its tokens
        self._times = {id(action): (start, end) for action, start, end in notes.samples}
        self._turns = 0

    def turn(self, transition: Any) -> None:
        """Add what this transition's observation adds to the last one, and its action."""
        shown, chunks, images = _flat(transition.ob)
        action = transition.ac
        if not shown and not action.tokens:
            self._never_shown(transition)
            return
        begin, parent = self._continue(shown)
        tokens = list(action.tokens)
        new = shown[begin:]
        learned = 0 if float(transition.metrics.get("parse_error_masked", 0.0)) >= 1.0 else 1
        added = split(
            new + tokens,
            tokenizer=self._tokenizer,
            sampled=[0] * len(new) + [1] * len(tokens),
            streams={
                "logprob": after_prompt(len(new), action.maybe_logprobs),
                "mask": [0] * len(new) + [learned] * len(tokens),
            },
            chat=self._notes.prompt if not self.messages else None,
            headers=self._headers.after(chunks, begin),
            problems=self._problems,
        )
        if not self.messages:
            self.prompt = "".join(text(m) for m in added if not m.sampled)
        first = len(self.messages)
        for number_, message in enumerate(added, first):
            self._path.append((number_, list(message.tokens.ids if message.tokens else [])))
        if added:
            added[0].parent = parent
        if images and added:
            added[0].meta["images"] = images
        self.messages += added
        if added and added[-1].sampled:
            self._wrote(added[-1], len(self.messages) - 1, transition)
        self._turns += 1

    def _continue(self, shown: list[int]) -> tuple[int, int | None]:
        """How many tokens of the branch are repeated, and the message that it goes on from."""
        at = kept = 0
        for _, ids in self._path:
            if shown[at : at + len(ids)] != ids:
                break
            at, kept = at + len(ids), kept + 1
        del self._path[kept:]
        if not self.messages:
            return at, None
        last = self._path[-1][0] if self._path else -1
        return at, (None if last == len(self.messages) - 1 else last)

    def _wrote(self, message: Message, place: int, transition: Any) -> None:
        message.stop_reason = transition.ac.stop_reason
        message.reward = transition.reward
        message.state = dict(transition.logs) or None
        if transition.metrics:
            message.meta["metrics"] = dict(transition.metrics)
        message.tool_calls = _tool_calls(self._renderer, transition.ac.tokens)
        times = self._times.get(id(transition.ac))
        if times is not None:
            message.start, message.end = times
            self.spans.append(Span(name="sample", start=times[0], end=times[1], message=place))
        if self._turns < len(self._notes.steps):
            start, end = self._notes.steps[self._turns]
            self.spans.append(Span(name="env.step", start=start, end=end))

    def _never_shown(self, transition: Any) -> None:
        """The prompt was too long: the model never saw it, and wrote nothing."""
        for given in self._notes.prompt or ():
            message = from_chat(given)
            message.sampled = False
            self.messages.append(message)
        self.prompt = "".join(text(m) for m in self.messages)
        if self.messages:
            self.messages[-1].reward = transition.reward
            self.messages[-1].state = dict(transition.logs) or None
            self.messages[-1].meta["shown"] = False


class _Headers:
    """The headers of messages among the chunks of an observation, checked with the renderer."""

    def __init__(self, renderer: Any, tokenizer: Any) -> None:
        self._renderer, self._tokenizer = renderer, tokenizer
        self._roles: dict[tuple[int, ...], str | None] = {}

    def after(self, chunks: list[tuple[int, list[int]]], begin: int) -> list[tuple[int, int, str]]:
        """Headers from token `begin` on, which becomes token 0: (token, length, role).

        If an earlier header's message goes on after `begin` (it stood in what the policy
        wrote, as with a stop sequence that is the next header), it opens the first message.
        """
        found = [
            (at, len(ids), role) for at, ids in chunks if (role := self._role(ids)) is not None
        ]
        headers = [(at - begin, length, role) for at, length, role in found if at >= begin]
        open_ = [role for at, length, role in found if at < begin]
        if begin and open_ and open_[-1] != "assistant" and not any(h[0] == 0 for h in headers):
            headers.insert(0, (0, 0, open_[-1]))
        return headers

    def _role(self, ids: list[int]) -> str | None:
        if self._renderer is None or self._tokenizer is None or not 0 < len(ids) <= _LONGEST_HEADER:
            return None
        key = tuple(ids)
        if key not in self._roles:
            words = re.findall(r"\w+", str(self._tokenizer.decode(ids)))
            roles = dict.fromkeys(w.lower() for w in words)
            self._roles[key] = next((r for r in roles if key in self._made(r)), None)
        return self._roles[key]

    def _made(self, role: str) -> set[tuple[int, ...]]:
        """The headers that the renderer makes for this role, at the beginning and later."""
        from tinker_cookbook.renderers.base import RenderContext

        made = set()
        for idx in (0, 1):
            try:
                context = RenderContext(idx=idx, is_last=False, prev_message=None)
                message = {"role": role, "content": ""}
                header = self._renderer.render_message(message, context).header
            except Exception:  # a role that this renderer does not know
                continue
            made.add(tuple(getattr(header, "tokens", ())))
        return made


_LONGEST_HEADER = 24
"""Tokens. Byte-level test tokenizers need 22 for `<|start_header_id|>user...`; real ones 4."""


def _flat(ob: Any) -> tuple[list[int], list[tuple[int, list[int]]], int]:
    """The ids of an observation, its text chunks with their places, and how many images it has."""
    ids: list[int] = []
    chunks: list[tuple[int, list[int]]] = []
    images = 0
    for chunk in ob.chunks:
        tokens = getattr(chunk, "tokens", None)
        if tokens is None:
            images += 1
            continue
        chunks.append((len(ids), list(tokens)))
        ids += tokens
    return ids, chunks, images


def renderer_of(*owners: Any) -> tuple[Any, Any]:
    """Copies of the renderer and tokenizer that an environment or its builder works with.

    Theirs may be at work in another thread at this moment; see `_decode`.
    """
    for owner in owners:
        for name in ("renderer", "policy_renderer"):
            renderer: Any = getattr(owner, name, None)
            if getattr(renderer, "tokenizer", None) is not None:
                mine = object.__new__(type(renderer))
                mine.__dict__.update(renderer.__dict__)
                mine.tokenizer = own(renderer.tokenizer)
                return mine, mine.tokenizer
    tokenizers = (getattr(owner, "tokenizer", None) for owner in owners)
    return None, next((own(t) for t in tokenizers if t is not None), None)


def _tool_calls(renderer: Any, tokens: Sequence[int]) -> list[Any]:
    if renderer is None:
        return []
    try:
        parsed, _ = renderer.parse_response(list(tokens))
        return from_chat(parsed).tool_calls if parsed.get("tool_calls") else []
    except Exception:  # what the model wrote is not what the renderer expects
        return []


def _reference(*owners: Any) -> Any:
    for owner in owners:
        ask = getattr(owner, "get_reference_answer", None)
        found = [ask()] if callable(ask) else [getattr(owner, n, None) for n in REFERENCES]
        for value in found:
            if isinstance(value, (str, int, float)) and value != "":
                return value
    return None


def _task(env: Any, builder: Any, prompt: str, reference: Any) -> str | None:
    """The environment's own id; else the prompt, with the answer: a game's prompt has no task."""
    for owner in (env, getattr(env, "message_env", None), builder):
        for name in _TASKS:
            value = getattr(owner, name, None)
            if isinstance(value, (str, int)):
                return str(value)
    if not prompt:
        return None
    return prompt_task(prompt if reference is None else f"{prompt}\0{reference}")
