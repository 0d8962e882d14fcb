"""What a check found: derived data, never a fact.

A finding says where something is odd, in one sentence that carries its evidence. It is no verdict.
"""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One thing that a check found, about a rollout or about a step of a run."""

    check: str
    """Id of the check: `reply.loop`, `group.dead`, `run.entropy_collapse`."""
    version: int
    """Of the check."""
    subject: str
    """What the check looked at: `rollout`, `group` or `step`."""
    text: str
    """What was found, in one sentence, with the evidence."""
    rollout: str | None = None
    """None: it is about a step."""
    step: int | None = None
    """The step that it is about; None: it is about a rollout."""
    split: str | None = None
    """Of that step."""
    message: int | None = None
    """Number of the message that it is about; None: the whole rollout."""
    start: int | None = None
    """First character of the message's text that it is about; None: the whole message."""
    end: int | None = None
    """The character after the last."""
    first_token: int | None = None
    """First token of the message that it is about."""
    end_token: int | None = None
    """The token after the last."""
    value: float | None = None
    """The number that was judged: a ratio, a count."""
    query: str | None = None
    """Of a step: finds the rollouts that it is made of."""
