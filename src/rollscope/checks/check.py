"""What a check is: one short file with a pure function, and everything one must know about it.

    @check(
        "reply.empty",
        kind="behaviour",
        means="The policy said nothing. It is rewarded for a text that is not there.",
        source="NeMo Gym's health-check: agent_turn_hollow",
        needs=[TURNS],
    )
    def empty(one: OneRollout, *, least: Annotated[int, "characters"] = 1) -> Iterator[Spot]:
        for turn in one.turns:
            if len(turn.text.strip()) < least:
                yield Spot("the policy wrote nothing here", message=turn.n)

There are three answers. If the evidence that the check `needs` is not there, the answer is
**unobserved**, and the function is not asked. If it yields nothing, the answer is **clear**. What
it yields is **found**. Its parameters are the function's keyword arguments; `checks.toml` sets
them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from ..model import Finding
from ..store.derived import CheckStamp

Kind = Literal["record", "behaviour", "run"]
"""What a check is about: is the record right, what did the policy do, how does the run go?"""

Subject = Literal["rollout", "group", "step"]
"""What a check looks at."""

Value = int | float | str | bool | tuple[str, ...]
"""What a parameter may be."""

T = TypeVar("T")


class Spot(NamedTuple):
    """Where something was found, and what, in one sentence with the evidence."""

    text: str
    message: int | None = None
    chars: tuple[int, int] | None = None
    """From which character of the message's text up to which."""
    tokens: tuple[int, int] | None = None
    """From which token of the message up to which."""
    value: float | None = None
    """The number that was judged."""
    rollout: str | None = None
    """Of checks of groups: the member that it is about."""
    step: int | None = None
    """Of checks of steps: the step that it is about."""
    query: str = ""
    """Of checks of steps: finds the rollouts that it is made of, among those of the run."""


class Evidence(NamedTuple):
    """Something that must be known before a check can say anything."""

    says: str
    """What must be there, in words that follow "needs"."""
    is_there: Callable[[Any], bool]


class Parameter(NamedTuple):
    """A setting of a check."""

    name: str
    default: Value
    doc: str
    """What it is and where its default comes from."""


class Check(NamedTuple):
    """A check. See `check`."""

    id: str
    """`subject.condition`."""
    version: int
    """Goes up when the same rollout may get another answer."""
    subject: Subject
    kind: Kind
    means: str
    """What a finding means and why it matters."""
    source: str
    """Where the definition comes from."""
    needs: tuple[Evidence, ...]
    look: Callable[..., Iterable[Spot]]
    parameters: tuple[Parameter, ...]
    off: str
    """Why it is off unless somebody turns it on; empty: it is on."""

    def stamp(self, settings: Mapping[str, Value]) -> CheckStamp:
        """What is remembered of it beside its answers."""
        changed = sorted(
            f"{p.name}={settings[p.name]!r}"
            for p in self.parameters
            if settings.get(p.name, p.default) != p.default
        )
        return CheckStamp(self.version, self.subject, self.kind, self.means, ", ".join(changed))

    def finding(self, spot: Spot, **about: Any) -> Finding:
        """The finding that a spot stands for."""
        start, end = spot.chars or (None, None)
        first, stop = spot.tokens or (None, None)
        return Finding(
            check=self.id, version=self.version, subject=self.subject, text=spot.text,
            message=spot.message, start=start, end=end, first_token=first, end_token=stop,
            value=spot.value, **about,
        )  # fmt: skip


class Bound(NamedTuple, Generic[T]):
    """A check with the settings of a project."""

    check: Check
    settings: Mapping[str, Value]

    def answer(self, seen: T) -> list[Spot] | None:
        """What it finds; None: unobserved."""
        for evidence in self.check.needs:
            if not evidence.is_there(seen):
                return None
        return list(self.check.look(seen, **self.settings))


def check(
    id: str,
    *,
    kind: Kind,
    means: str,
    source: str,
    version: int = 1,
    subject: Subject = "rollout",
    needs: Sequence[Evidence] = (),
    off: str = "",
) -> Callable[[Callable[..., Iterable[Spot]]], Check]:
    """Makes a function a check."""

    def made(look: Callable[..., Iterable[Spot]]) -> Check:
        return Check(
            id, version, subject, kind, means, source, tuple(needs), look, _parameters(look), off
        )

    return made


def _parameters(look: Callable[..., Any]) -> tuple[Parameter, ...]:
    hints = inspect.get_annotations(look, eval_str=True)
    found = []
    for name, parameter in inspect.signature(look).parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            doc = getattr(hints.get(name), "__metadata__", ("",))[0]
            found.append(Parameter(name, parameter.default, str(doc)))
    return tuple(found)
