"""What the HTTP API answers with, as types.

The OpenAPI description, the TypeScript types of the viewer and the encoder are all derived
from these. A number that JSON cannot write (NaN, infinities) is the text "NaN", "Infinity"
or "-Infinity"; null always means "not known".
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Number = float | str | None
"""A number, one of "NaN", "Infinity", "-Infinity", or null: not known."""


class Problem(msgspec.Struct, kw_only=True):
    """Why a request was refused, for the person who made it."""

    error: str
    start: int | None = None
    """Where in the query it went wrong, in characters."""
    end: int | None = None
    suggestions: list[str] = []


class Status(msgspec.Struct, kw_only=True):
    """What this server is and may."""

    version: str
    generation: str
    """Changes whenever the store has."""
    rollouts: int
    can_label: bool
    empty_help: list[tuple[str, str]] = []
    """Nothing recorded yet: (trainer, the line to type)."""


class Run(msgspec.Struct, kw_only=True):
    project: str
    run: str
    rollouts: int
    superseded: int = 0
    first_step: int | None = None
    last_step: int | None = None
    last_time: float | None = None
    live: bool = False
    """Is a process still writing to it?"""


class Row(msgspec.Struct, kw_only=True):
    """One rollout, thin: what a list shows."""

    id: str
    project: str | None = None
    run: str | None = None
    step: int | None = None
    trained_step: int | None = None
    split: str | None = None
    dataset: str | None = None
    task: str | None = None
    group: str | None = None
    index: int | None = None
    attempt: int | None = None
    reward: Number = None
    rewards: dict[str, Number] = {}
    advantage: Number = None
    stop_reason: str | None = None
    truncated: bool | None = None
    fate: str | None = None
    fate_reason: str | None = None
    error_kind: str | None = None
    error_type: str | None = None
    time: float | None = None
    duration: Number = None
    policy_version: int | None = None
    environment: str | None = None
    open: bool | None = None
    superseded: bool | None = None
    messages: int | None = None
    turns: int | None = None
    prompt_tokens: int | None = None
    response_tokens: int | None = None
    tools: list[str] = []
    version_min: int | None = None
    version_max: int | None = None
    labels: list[str] = []
    flags: list[str] = []
    prompt_preview: str | None = None
    preview: str | None = None


class Page(msgspec.Struct, kw_only=True):
    """A window of a selection."""

    rows: list[Row]
    at: int
    """Place of the first row in the selection."""
    count: int
    """Rollouts in the selection."""
    superseded: int = 0
    """How many more it would be with those that a later launch replaced."""
    next: str | None = None
    """Cursor of the next page; null at the end."""
    generation: str = ""


class Note(msgspec.Struct, kw_only=True):
    """What a person or a check said about a rollout or one of its messages."""

    name: str
    value: Any = None
    message: int | None = None
    author: str | None = None
    time: float | None = None


class Outline(msgspec.Struct, kw_only=True):
    """Every message of a rollout in a few numbers, as columns: the skeleton of the page."""

    parent: list[int | None]
    """The message that each one follows; -1: it begins a conversation of its own."""
    role: list[str]
    name: list[str | None]
    chars: list[int]
    tokens: list[int | None]
    sampled: list[bool | None]
    tools: list[list[str]]
    preview: list[str]
    reward: list[Number]


class Detail(msgspec.Struct, kw_only=True):
    """A whole rollout but for its messages' bodies and its spans."""

    row: Row
    key: str | None = None
    launch: str | None = None
    worker: str | None = None
    start: float | None = None
    end: float | None = None
    reward_texts: dict[str, str] = {}
    error_text: str | None = None
    sampling: dict[str, Any] = {}
    reference: Any = None
    meta: dict[str, Any] = {}
    notes: list[Note] = []
    streams: list[str] = []
    """Names of the token streams that at least one message has."""
    spans: int = 0
    outline: Outline
    answer: str | None = None
    """The final answer: the text of the last message that the policy wrote, from its end."""


class Call(msgspec.Struct, kw_only=True):
    id: str | None = None
    name: str | None = None
    arguments: Any = None


class Piece(msgspec.Struct, kw_only=True):
    """One part of a message; `end` is the end of its text in the message's text."""

    type: str
    end: int | None = None
    image: str | None = None
    call: Call | None = None
    id: str | None = None
    data: Any = None


class Body(msgspec.Struct, kw_only=True):
    """One message. `text` may be a window: `start` is where it begins, `chars` the whole."""

    n: int
    role: str
    parent: int | None = None
    name: str | None = None
    text: str | None = None
    start_char: int = 0
    chars: int = 0
    parts: list[Piece] | None = None
    tool_calls: list[Call] = []
    tool_call_id: str | None = None
    sampled: bool | None = None
    stop_reason: str | None = None
    reward: Number = None
    state: Any = None
    start: float | None = None
    end: float | None = None
    meta: dict[str, Any] = {}
    tokens: int | None = None


class Bodies(msgspec.Struct, kw_only=True):
    first: int
    messages: list[Body]


class TokenBlock(msgspec.Struct, kw_only=True):
    """The tokens of one message: ids, where each ends in the text, and every stream."""

    n: int
    ids: list[int] | None = None
    ends: list[int] | None = None
    streams: dict[str, list[Number]] = {}


class TokenBlocks(msgspec.Struct, kw_only=True):
    messages: list[TokenBlock]


class Strip(msgspec.Struct, kw_only=True):
    """One stream over all tokens of a rollout, in at most some 2,000 buckets."""

    stream: str
    tokens: int
    missing: int
    """Tokens without a value."""
    per: int
    """Tokens in a bucket."""
    low: list[Number]
    high: list[Number]
    mean: list[Number]
    """Of each bucket; null: no token of it has a value."""
    messages: list[int]
    """Messages that have tokens, in order."""
    starts: list[int]
    """Place of each of these messages' first token."""
    lowest: Number = None
    highest: Number = None
    average: Number = None
    lowest_at: tuple[int, int] | None = None
    """Message, and token in it."""
    highest_at: tuple[int, int] | None = None


class SpanRow(msgspec.Struct, kw_only=True):
    name: str
    id: str | None = None
    parent: str | None = None
    start: float | None = None
    end: float | None = None
    message: int | None = None
    error_kind: str | None = None
    error_type: str | None = None
    error_text: str | None = None
    inputs: Any = None
    outputs: Any = None
    meta: dict[str, Any] = {}
    version: int | None = None
    """Policy version at work: as the span says, else that of the message it belongs to."""


class TurnRow(msgspec.Struct, kw_only=True):
    """A message that the policy wrote, as a stretch of time."""

    message: int
    name: str | None = None
    start: float
    end: float
    versions: list[int] = []
    """Policy versions that wrote it, in order: more than one where weights changed meanwhile."""


class Spans(msgspec.Struct, kw_only=True):
    spans: list[SpanRow]
    turns: list[TurnRow] = []
    cut: int = 0
    """Spans left out because there are too many for one answer."""


class Neighbours(msgspec.Struct, kw_only=True):
    """Where a rollout stands: its siblings, the groups beside it, its task at other steps."""

    siblings: list[Row]
    previous_group: str | None = None
    """Id of the first rollout of the group before it (same step and split, then steps)."""
    next_group: str | None = None
    earlier: str | None = None
    """The same task at the step before: the rollout in the same place, else the first."""
    later: str | None = None


class Group(msgspec.Struct, kw_only=True):
    """The rollouts of one task at one step, in numbers."""

    first: str
    """Id of its first rollout."""
    project: str | None = None
    run: str | None = None
    step: int | None = None
    split: str | None = None
    task: str | None = None
    group: str | None = None
    rollouts: int = 0
    mean: Number = None
    low: Number = None
    high: Number = None
    dead: bool = False
    """Every reward the same: nothing to learn from."""


class Place(msgspec.Struct, kw_only=True):
    """Where a rollout stands in a selection, from 0; null: it is not in it."""

    at: int | None = None


class Start(msgspec.Struct, kw_only=True):
    """Where to begin reading: the newest step's group with mixed rewards."""

    id: str | None = None
    best: str | None = None
    worst: str | None = None


class Value(msgspec.Struct, kw_only=True):
    value: str | None
    """Null: not known."""
    count: int


class Facet(msgspec.Struct, kw_only=True):
    key: str
    values: list[Value]
    more: int = 0
    """Distinct values beyond those listed."""


class Runs(msgspec.Struct, kw_only=True):
    runs: list[Run]


class Facets(msgspec.Struct, kw_only=True):
    facets: list[Facet]


class Histogram(msgspec.Struct, kw_only=True):
    """Equal bins over the finite values; what is outside them is counted, never hidden."""

    key: str
    low: float | None = None
    high: float | None = None
    """End of the last bin."""
    most: float | None = None
    """The greatest value, which may lie before that end."""
    counts: list[int] = []
    missing: int = 0
    not_finite: int = 0
    mean: Number = None


class Histograms(msgspec.Struct, kw_only=True):
    histograms: list[Histogram]


class StepColumn(msgspec.Struct, kw_only=True):
    """One step of a run in numbers."""

    step: int | None
    rollouts: int
    mean: Number = None
    low: Number = None
    """10th percentile of the reward."""
    high: Number = None
    """90th percentile of the reward."""
    truncated: int = 0
    errors: int = 0
    groups: int = 0
    dead: int = 0
    scored: int = 0
    length: Number = None


class RibbonRun(msgspec.Struct, kw_only=True):
    project: str
    run: str
    split: str | None = None
    steps: list[StepColumn] = []
    metrics: dict[str, list[tuple[int, Number]]] = {}
    """All that were logged, by name; (step, value) only of those asked for."""


class Ribbon(msgspec.Struct, kw_only=True):
    runs: list[RibbonRun]


class TaskRow(msgspec.Struct, kw_only=True):
    """One task over all its steps."""

    task: str
    dataset: str | None = None
    rollouts: int = 0
    steps: int = 0
    first_step: int | None = None
    last_step: int | None = None
    solved: int = 0
    scored: int = 0
    first_rate: Number = None
    last_rate: Number = None
    best_rate: Number = None
    flips: int = 0
    """How often the task went from solved by none to solved by some, or back."""
    kind: str = ""
    """`never`, `always`, `flipped`, `regressed`, `mixed`."""
    preview: str | None = None


class Tasks(msgspec.Struct, kw_only=True):
    tasks: list[TaskRow]
    count: int


class History(msgspec.Struct, kw_only=True):
    """One task: every rollout of it, by run, step and place."""

    task: str
    dataset: str | None = None
    rows: list[Row]
    count: int
    preview: str | None = None
    reference: Any = None


class Bar(msgspec.Struct, kw_only=True):
    """One stage of the funnel, or one reason under it; `q` selects exactly its rollouts."""

    name: str
    count: int
    q: str
    reasons: list[Bar] = []


class Funnel(msgspec.Struct, kw_only=True):
    total: int
    stages: list[Bar]
    ends: list[Bar]


class Failure(msgspec.Struct, kw_only=True):
    kind: str | None
    type: str | None
    count: int
    q: str
    example: Row | None = None
    text: str | None = None
    first_step: int | None = None
    last_step: int | None = None


class Failures(msgspec.Struct, kw_only=True):
    total: int
    kinds: list[Bar]
    failures: list[Failure]


class Difference(msgspec.Struct, kw_only=True):
    """A field in which the compared rollouts are not alike; values in their order."""

    key: str
    values: list[Any]


class Words(msgspec.Struct, kw_only=True):
    """A run of text: `same` as in the rollouts beside it, or only its own."""

    same: bool
    text: str


class Side(msgspec.Struct, kw_only=True):
    """One rollout's message in an aligned row; `n` null: it has none there."""

    n: int | None = None
    role: str | None = None
    name: str | None = None
    words: list[Words] = []


class Aligned(msgspec.Struct, kw_only=True):
    """Messages that stand beside each other, one side per rollout."""

    same: bool
    sides: list[Side]


class Divergence(msgspec.Struct, kw_only=True):
    """The first place where the texts part: in aligned row `row`, `char` characters in."""

    row: int
    char: int = 0


class Compared(msgspec.Struct, kw_only=True):
    rows: list[Row]
    aligned: list[Aligned]
    first: Divergence | None = None
    differences: list[Difference] = []


class Hit(msgspec.Struct, kw_only=True):
    """One match of the query's text terms, in characters of the message's text."""

    message: int
    start: int
    end: int
    where: str = "text"
    """`text`, or `tool_calls`: then the numbers count in the arguments as text."""


class Hits(msgspec.Struct, kw_only=True):
    hits: list[Hit]


class Key(msgspec.Struct, kw_only=True):
    """A key of the query language."""

    name: str
    match: str
    doc: str


class Keys(msgspec.Struct, kw_only=True):
    keys: list[Key]


class Label(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A label to set or take back, or a note to write."""

    rollout: str
    label: str | None = None
    value: bool = True
    note: str | None = None
    message: int | None = None
    author: str | None = None


class News(msgspec.Struct, kw_only=True):
    """Told on `/api/events` whenever the store has changed."""

    generation: str
    rollouts: int


class Found(msgspec.Struct, kw_only=True):
    """Told on `/api/search` while a text search goes on."""

    rows: list[Row]
    scanned: int
    total: int
    done: bool


class Done(msgspec.Struct, kw_only=True):
    ok: Literal[True] = True


class Login(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    token: str
