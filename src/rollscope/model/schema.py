"""The tables of the open format, declared once.

A field of a rollout is its type in `records.Rollout` and one `Column` here. Everything else is
derived from these two: what is written and read back, late facts, the keys of the query language,
facets, the API's rows, the page's columns, exports, what sinks are told, and the documents.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from .records import Rollout

VERSION = 1
"""Goes up when a reader of the older version would misread a newer file."""

Match = Literal["number", "time", "equal", "contains", "member", "map", "json", "bool"]

Source = Literal["field", "error", "log", "messages", "facts"]


class Column(NamedTuple):
    """One column of a table. From `match` on, the attributes are about rollouts only."""

    name: str
    type: str
    """The engine's type (DuckDB's word)."""
    doc: str
    match: Match | None = None
    """How a query term `name:value` matches; None: it is no query key."""
    source: Source = "field"
    """Where the value comes from: a field of `Rollout` with the same name, its `error`, the log
    around it, its messages, or its facts."""
    late: bool = False
    """May a fact that comes after the rollout set it?"""
    listed: bool = False
    """Do lists carry it? If not, only the answer about the whole rollout does."""
    facet: int = 0
    """Its place among the columns that are counted by value beside a list; 0: it is not."""
    histogram: int = 0
    """Its place among the numbers that are drawn as histograms; 0: it is not."""
    title: str = ""
    """Heading of its column where space is short; empty: its name."""
    one: str = ""
    """For lists: what one entry is called. This is the query key."""
    aliases: tuple[str, ...] = ()
    """Words of the trainers that mean the same in a query."""

    @property
    def key(self) -> str:
        """The key of the query language that asks for it."""
        return self.one or self.name

    @property
    def is_dict(self) -> bool:
        """Does it hold entries by name?"""
        return self.type.startswith("MAP") or self.match == "json"

    @property
    def is_scalar(self) -> bool:
        """Is it one word, number or yes/no that a rollout is logged with?"""
        return self.source == "field" and self.type in ("VARCHAR", "BIGINT", "DOUBLE", "BOOLEAN")


ROLLOUTS = (
    Column("id", "VARCHAR", "Joins the other tables.", "equal", listed=True),
    Column("key", "VARCHAR", "The trainer's own name for it.", "equal"),
    Column(
        "project", "VARCHAR", "Project.", "equal",
        listed=True, facet=11, aliases=("project_name",),
    ),
    Column(
        "run", "VARCHAR", "Run.", "equal",
        listed=True, facet=12, aliases=("experiment", "experiment_name", "trial"),
    ),
    Column(
        "launch", "VARCHAR", "One start of the run's processes.", "equal",
        listed=True, aliases=("restart",),
    ),
    Column("writer", "VARCHAR", "Process that wrote it.", "equal", source="log"),
    Column(
        "step", "BIGINT", "Training step at which it was asked for.", "number",
        listed=True, histogram=5, aliases=("global_step", "global_steps", "iteration"),
    ),
    Column(
        "trained_step", "BIGINT", "Training step that learned from it.", "number",
        late=True, listed=True, title="trained",
    ),
    Column(
        "split", "VARCHAR", "train, eval, or any name.", "equal",
        listed=True, facet=1, aliases=("phase",),
    ),
    Column(
        "dataset", "VARCHAR", "Dataset.", "equal",
        listed=True, facet=7, aliases=("data_source",),
    ),
    Column(
        "task", "VARCHAR", "The thing to be solved; stable across steps and runs.", "equal",
        late=True, listed=True, aliases=("example", "example_id", "instance_id", "sample_index"),
    ),
    Column(
        "group", "VARCHAR", "Rollouts to be compared with each other.", "equal",
        late=True, listed=True, aliases=("uid",),
    ),
    Column(
        "index", "BIGINT", "Place in its group.", "number",
        late=True, listed=True, title="#", aliases=("repetition_id", "rollout_n"),
    ),
    Column(
        "attempt", "BIGINT", "Retry of the same rollout, from 0.", "number",
        listed=True, title="try",
    ),
    Column("worker", "VARCHAR", "Worker that made it.", "equal"),
    Column(
        "reward", "DOUBLE", "Reward.", "number",
        late=True, listed=True, histogram=1, aliases=("score",),
    ),
    Column(
        "rewards", "MAP(VARCHAR, DOUBLE)", "Parts of the reward by name.", "map",
        late=True, listed=True,
    ),
    Column("reward_texts", "MAP(VARCHAR, VARCHAR)", "What the judge wrote for a part.", late=True),
    Column(
        "advantage", "DOUBLE", "Advantage of the whole rollout.", "number",
        late=True, listed=True, histogram=2, title="adv.",
    ),
    Column(
        "stop_reason", "VARCHAR", "In the trainer's own word.", "equal",
        late=True, listed=True, facet=3, title="stop", aliases=("finish_reason",),
    ),
    Column(
        "truncated", "BOOLEAN", "Was it cut off?", "bool",
        late=True, listed=True, facet=4, title="cut",
    ),
    Column(
        "fate", "VARCHAR", "What became of it.", "equal",
        late=True, listed=True, facet=2, aliases=("status",),
    ),
    Column("fate_reason", "VARCHAR", "Why.", "contains", late=True, listed=True, title="reason"),
    Column(
        "error_kind", "VARCHAR", "Whose fault: policy, tool, environment, grader, ...", "equal",
        source="error", late=True, listed=True, facet=5, title="error",
    ),
    Column(
        "error_type", "VARCHAR", "Class of the exception.", "equal",
        source="error", late=True, listed=True,
    ),
    Column("error_text", "VARCHAR", "What it said.", "contains", source="error", late=True),
    Column(
        "time", "DOUBLE", "When it was logged, Unix seconds.", "time",
        listed=True, title="logged",
    ),
    Column("start", "DOUBLE", "When it began.", "time"),
    Column("end", "DOUBLE", "When it ended.", "time", late=True),
    Column("sampling", "JSON", "Temperature and its like; kind of logprobs.", "json"),
    Column(
        "policy_version", "BIGINT", "Version of the weights at its start.", "number",
        late=True, listed=True, title="version",
    ),
    Column("reference", "JSON", "Ground truth.", late=True),
    Column(
        "environment", "VARCHAR", "Environment it ran in.", "equal",
        listed=True, facet=6, aliases=("env",),
    ),
    Column("meta", "JSON", "Anything else.", "json", late=True),
    Column(
        "open", "BOOLEAN", "True while it is still going on.", "bool", source="log", listed=True
    ),
    Column(
        "messages", "BIGINT", "Number of messages.", "number", source="messages", listed=True
    ),
    Column(
        "turns", "BIGINT", "Messages that the policy wrote.", "number",
        source="messages", listed=True, histogram=4, aliases=("num_turns",),
    ),
    Column(
        "prompt_tokens", "BIGINT", "Tokens before the first that the policy wrote.", "number",
        source="messages", listed=True, title="prompt", aliases=("prompt_length",),
    ),
    Column(
        "response_tokens", "BIGINT", "Tokens that the policy wrote.", "number",
        source="messages", listed=True, histogram=3, title="tokens",
        aliases=("response_length",),
    ),
    Column(
        "tools", "VARCHAR[]", "Names of the tools called, sorted.", "member",
        source="messages", listed=True, facet=8, one="tool",
    ),
    Column(
        "version_min", "BIGINT", "Oldest version of the weights among its tokens.", "number",
        source="messages", listed=True, title="oldest",
    ),
    Column(
        "version_max", "BIGINT", "Newest version of the weights among its tokens.", "number",
        source="messages", listed=True, title="newest",
    ),
    Column(
        "labels", "VARCHAR[]", "People's labels, sorted.", "member",
        source="facts", listed=True, facet=10, one="label", aliases=("annotation",),
    ),
    Column(
        "flags", "VARCHAR[]", "Findings of checks, sorted.", "member",
        source="facts", listed=True, facet=9, one="flag",
    ),
    Column(
        "prompt_preview", "VARCHAR", "Beginning of the last message before the first answer.",
        source="messages", listed=True, title="prompt",
    ),
    Column(
        "preview", "VARCHAR", "Beginning of what the policy said last, after thinking.",
        source="messages", listed=True, title="last words of the policy",
    ),
)  # fmt: skip

FIELDS = tuple(column for column in ROLLOUTS if column.source == "field")
"""The columns that are fields of `Rollout`. Beside them it has messages, spans and an error."""

SCALARS = tuple(column.name for column in FIELDS if column.is_scalar and column.match != "time")
"""Words and numbers that tell of a rollout what other systems can filter by."""

HAS_ERROR = "({})".format(
    " OR ".join(f'r."{c.name}" IS NOT NULL' for c in ROLLOUTS if c.source == "error")
)
"""In SQL: did the rollout `r` fail with an error?"""

PROSE = tuple(column.name for column in FIELDS if column.match == "contains")
"""Those that are sentences, and may repeat what somebody wrote."""


def scalars(rollout: Rollout, without: Iterable[str] = ()) -> dict[str, Any]:
    """The known scalars of a rollout by name, leaving some out."""
    left_out = set(without)
    found = {name: getattr(rollout, name) for name in SCALARS if name not in left_out}
    return {name: value for name, value in found.items() if value is not None}


MESSAGES = (
    Column("rollout", "VARCHAR", "Id of the rollout."),
    Column("n", "INTEGER", "Number of the message, from 0."),
    Column("parent", "INTEGER", "Number of the message it follows; null: it is a root."),
    Column("role", "VARCHAR", "Role."),
    Column("name", "VARCHAR", "Agent, player or tool."),
    Column("text", "VARCHAR", "Its text; of parts, all texts together."),
    Column("parts", "JSON", "The parts, `end` marking the end of each one's text; else null."),
    Column("tool_calls", "JSON", "List of {id, name, arguments}."),
    Column("tool_call_id", "VARCHAR", "The call that it answers."),
    Column("sampled", "BOOLEAN", "Did the policy write it?"),
    Column("stop_reason", "VARCHAR", "Why it ended."),
    Column("reward", "DOUBLE", "Reward for this message alone."),
    Column("state", "JSON", "State of the environment after it."),
    Column("start", "DOUBLE", "When it began."),
    Column("end", "DOUBLE", "When it ended."),
    Column("meta", "JSON", "Anything else."),
    Column("token_ids", "INTEGER[]", "Tokens that it adds."),
    Column("token_ends", "INTEGER[]", "End of each token in the text, in characters."),
    Column("logprob", "FLOAT[]", "Log probability when sampled."),
    Column("train_logprob", "FLOAT[]", "Log probability by the trainer."),
    Column("ref_logprob", "FLOAT[]", "Log probability by the reference model."),
    Column("advantage", "FLOAT[]", "Advantage of each token."),
    Column("entropy", "FLOAT[]", "Entropy of the distribution it was drawn from."),
    Column("mask", "INTEGER[]", "1: it counts in the loss."),
    Column("version", "INTEGER[]", "Version of the weights that drew it."),
    Column("streams", "MAP(VARCHAR, FLOAT[])", "Any other streams by name."),
)

SPANS = (
    Column("rollout", "VARCHAR", "Id of the rollout."),
    Column("n", "BIGINT", "Counts the spans of one log, in the order they were recorded."),
    Column("id", "VARCHAR", "Id of the span."),
    Column("parent", "VARCHAR", "Span that called it."),
    Column("name", "VARCHAR", "Name of the function."),
    Column("inputs", "JSON", "Its arguments."),
    Column("outputs", "JSON", "What it returned."),
    Column("error_kind", "VARCHAR", "Whose fault."),
    Column("error_type", "VARCHAR", "Class of the exception."),
    Column("error_text", "VARCHAR", "What it said."),
    Column("start", "DOUBLE", "When it began."),
    Column("end", "DOUBLE", "When it ended."),
    Column("message", "INTEGER", "Number of the message it made."),
    Column("meta", "JSON", "Anything else."),
)

FACTS = (
    Column("rollout", "VARCHAR", "Id of the rollout."),
    Column("name", "VARCHAR", "What it is about: `reward`, `label.good`, `tokens.advantage`, ..."),
    Column("value", "JSON", "Its value."),
    Column("stream", "DOUBLE[]", "One value per token."),
    Column("message", "INTEGER", "Number of the message it is about; null: the rollout."),
    Column("author", "VARCHAR", "Who said so."),
    Column("time", "DOUBLE", "When."),
    Column("writer", "VARCHAR", "Process that wrote it."),
    Column("n", "BIGINT", "Counts the facts of one writer."),
    Column("folded", "BOOLEAN", "True once it is contained in the rollouts table beside it."),
)

METRICS = (
    Column("project", "VARCHAR", "Project."),
    Column("run", "VARCHAR", "Run."),
    Column("launch", "VARCHAR", "Launch."),
    Column("writer", "VARCHAR", "Process that wrote it."),
    Column("step", "BIGINT", "Training step."),
    Column("time", "DOUBLE", "When it was logged."),
    Column("name", "VARCHAR", "Name of the metric."),
    Column("value", "DOUBLE", "Its value."),
)

TABLES = {
    "rollouts": ROLLOUTS,
    "messages": MESSAGES,
    "spans": SPANS,
    "facts": FACTS,
    "metrics": METRICS,
}

CHECKED = (
    Column("project", "VARCHAR", "Project."),
    Column("run", "VARCHAR", "Run."),
    Column("split", "VARCHAR", "Split."),
    Column("step", "BIGINT", "Training step at which it was asked for."),
    Column("rollout", "VARCHAR", "Id of the rollout; null: a step as a whole."),
    Column(
        "subject", "VARCHAR",
        "Which checks looked: those of a `rollout`, of its `group`, or of its `step`.",
    ),
    Column("found", "VARCHAR[]", "Ids of the checks that found something, sorted."),
    Column("unobserved", "VARCHAR[]", "Ids of the checks that had no evidence to look at, sorted."),
    Column("signature", "VARCHAR", "What was looked at: while it is the same, nobody looks again."),
    Column("digest", "MAP(VARCHAR, DOUBLE)", "Numbers that checks of groups and steps go on with."),
)  # fmt: skip

FINDINGS = (
    Column("project", "VARCHAR", "Project."),
    Column("run", "VARCHAR", "Run."),
    Column("split", "VARCHAR", "Split."),
    Column("step", "BIGINT", "Training step."),
    Column("rollout", "VARCHAR", "Id of the rollout; null: it is about the step."),
    Column("subject", "VARCHAR", "What the check looked at: `rollout`, `group` or `step`."),
    Column("check", "VARCHAR", "Id of the check."),
    Column("version", "INTEGER", "Version of the check."),
    Column("message", "INTEGER", "Number of the message; null: the whole rollout."),
    Column("start", "INTEGER", "First character in the message's text; null: the whole message."),
    Column("end", "INTEGER", "The character after the last."),
    Column("first_token", "INTEGER", "First token of the message."),
    Column("end_token", "INTEGER", "The token after the last."),
    Column("value", "DOUBLE", "The number that was judged."),
    Column("text", "VARCHAR", "What was found, in one sentence."),
    Column("query", "VARCHAR", "Of a step: finds the rollouts that it is made of."),
)

DERIVED = {"checked": CHECKED, "findings": FINDINGS}
"""The tables of what checks found. They can be thrown away and made again."""
