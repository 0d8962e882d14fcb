"""The tables of the open format, declared once.

Everything physical is derived from this: the columns that are written, the keys of the
query language, and the tables of `docs/format.md`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

VERSION = 1
"""Goes up when a reader of the older version would misread a newer file."""

Match = Literal["number", "equal", "contains", "member", "map", "json", "bool"]


class Column(NamedTuple):
    name: str
    type: str
    """The engine's type (DuckDB's word)."""
    doc: str
    match: Match | None = None
    """How a query term `name:value` matches; None: it is no query key."""


ROLLOUTS = (
    Column("id", "VARCHAR", "Joins the other tables.", "equal"),
    Column("key", "VARCHAR", "The trainer's own name for it.", "equal"),
    Column("project", "VARCHAR", "Project.", "equal"),
    Column("run", "VARCHAR", "Run.", "equal"),
    Column("launch", "VARCHAR", "One start of the run's processes.", "equal"),
    Column("writer", "VARCHAR", "Process that wrote it.", "equal"),
    Column("step", "BIGINT", "Training step at which it was asked for.", "number"),
    Column("trained_step", "BIGINT", "Training step that learned from it.", "number"),
    Column("split", "VARCHAR", "train, eval, or any name.", "equal"),
    Column("dataset", "VARCHAR", "Dataset.", "equal"),
    Column("task", "VARCHAR", "The thing to be solved; stable across steps and runs.", "equal"),
    Column("group", "VARCHAR", "Rollouts to be compared with each other.", "equal"),
    Column("index", "BIGINT", "Place in its group.", "number"),
    Column("attempt", "BIGINT", "Retry of the same rollout, from 0.", "number"),
    Column("worker", "VARCHAR", "Worker that made it.", "equal"),
    Column("reward", "DOUBLE", "Reward.", "number"),
    Column("rewards", "MAP(VARCHAR, DOUBLE)", "Parts of the reward by name.", "map"),
    Column("reward_texts", "MAP(VARCHAR, VARCHAR)", "What the judge wrote for a part."),
    Column("advantage", "DOUBLE", "Advantage of the whole rollout.", "number"),
    Column("stop_reason", "VARCHAR", "In the trainer's own word.", "equal"),
    Column("truncated", "BOOLEAN", "Was it cut off?", "bool"),
    Column("fate", "VARCHAR", "What became of it.", "equal"),
    Column("fate_reason", "VARCHAR", "Why.", "contains"),
    Column("error_kind", "VARCHAR", "Whose fault: policy, tool, environment, grader, ...", "equal"),
    Column("error_type", "VARCHAR", "Class of the exception.", "equal"),
    Column("error_text", "VARCHAR", "What it said.", "contains"),
    Column("time", "DOUBLE", "When it was logged, Unix seconds.", "number"),
    Column("start", "DOUBLE", "When it began.", "number"),
    Column("end", "DOUBLE", "When it ended.", "number"),
    Column("sampling", "JSON", "Temperature and its like; kind of logprobs.", "json"),
    Column("policy_version", "BIGINT", "Version of the weights at its start.", "number"),
    Column("reference", "JSON", "Ground truth."),
    Column("environment", "VARCHAR", "Environment it ran in.", "equal"),
    Column("meta", "JSON", "Anything else.", "json"),
    Column("open", "BOOLEAN", "True while it is still going on.", "bool"),
    Column("messages", "BIGINT", "Number of messages.", "number"),
    Column("turns", "BIGINT", "Messages that the policy wrote.", "number"),
    Column("prompt_tokens", "BIGINT", "Tokens before the policy's first message.", "number"),
    Column("response_tokens", "BIGINT", "Tokens of the policy's messages.", "number"),
    Column("tools", "VARCHAR[]", "Names of the tools called, sorted.", "member"),
    Column("version_min", "BIGINT", "Oldest version of the weights among its tokens.", "number"),
    Column("version_max", "BIGINT", "Newest version of the weights among its tokens.", "number"),
    Column("labels", "VARCHAR[]", "People's labels, sorted.", "member"),
    Column("flags", "VARCHAR[]", "Findings of checks, sorted.", "member"),
    Column("prompt_preview", "VARCHAR", "Beginning of the last message before the first answer."),
    Column("preview", "VARCHAR", "Beginning of what the policy said last, after thinking."),
)

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
