/** What the schema and the query language say about columns. Made by `make generated`. */
import type { Detail, RolloutRow } from "./types";

export interface Column<Name extends string = string> {
  name: Name;
  /** The key of the query language that asks for it. */
  key: string;
  /** How a term with that key matches; empty: there is no such key. */
  kind: "number" | "time" | "bool" | "equal" | "contains" | "member" | "map" | "json" | "";
  doc: string;
  /** Heading where space is short. */
  title?: string;
  /** Is it a whole number? */
  whole?: true;
}

/** The columns of a row of a list. */
export const ROW: readonly Column<keyof RolloutRow>[] = [
  {"name": "id", "key": "id", "kind": "equal", "doc": "Joins the other tables."},
  {"name": "project", "key": "project", "kind": "equal", "doc": "Project."},
  {"name": "run", "key": "run", "kind": "equal", "doc": "Run."},
  {"name": "launch", "key": "launch", "kind": "equal", "doc": "One start of the run's processes."},
  {"name": "step", "key": "step", "kind": "number", "doc": "Training step at which it was asked for.", "whole": true},
  {"name": "trained_step", "key": "trained_step", "kind": "number", "doc": "Training step that learned from it.", "title": "trained", "whole": true},
  {"name": "split", "key": "split", "kind": "equal", "doc": "train, eval, or any name."},
  {"name": "dataset", "key": "dataset", "kind": "equal", "doc": "Dataset."},
  {"name": "task", "key": "task", "kind": "equal", "doc": "The thing to be solved; stable across steps and runs."},
  {"name": "group", "key": "group", "kind": "equal", "doc": "Rollouts to be compared with each other."},
  {"name": "index", "key": "index", "kind": "number", "doc": "Place in its group.", "title": "#", "whole": true},
  {"name": "attempt", "key": "attempt", "kind": "number", "doc": "Retry of the same rollout, from 0.", "title": "try", "whole": true},
  {"name": "reward", "key": "reward", "kind": "number", "doc": "Reward."},
  {"name": "rewards", "key": "rewards", "kind": "map", "doc": "Parts of the reward by name."},
  {"name": "advantage", "key": "advantage", "kind": "number", "doc": "Advantage of the whole rollout.", "title": "adv."},
  {"name": "stop_reason", "key": "stop_reason", "kind": "equal", "doc": "In the trainer's own word.", "title": "stop"},
  {"name": "truncated", "key": "truncated", "kind": "bool", "doc": "Was it cut off?", "title": "cut"},
  {"name": "fate", "key": "fate", "kind": "equal", "doc": "What became of it."},
  {"name": "fate_reason", "key": "fate_reason", "kind": "contains", "doc": "Why.", "title": "reason"},
  {"name": "error_kind", "key": "error_kind", "kind": "equal", "doc": "Whose fault: policy, tool, environment, grader, ...", "title": "error"},
  {"name": "error_type", "key": "error_type", "kind": "equal", "doc": "Class of the exception."},
  {"name": "time", "key": "time", "kind": "time", "doc": "When it was logged, Unix seconds.", "title": "logged"},
  {"name": "policy_version", "key": "policy_version", "kind": "number", "doc": "Version of the weights at its start.", "title": "version", "whole": true},
  {"name": "environment", "key": "environment", "kind": "equal", "doc": "Environment it ran in."},
  {"name": "open", "key": "open", "kind": "bool", "doc": "True while it is still going on."},
  {"name": "messages", "key": "messages", "kind": "number", "doc": "Number of messages.", "whole": true},
  {"name": "turns", "key": "turns", "kind": "number", "doc": "Messages that the policy wrote.", "whole": true},
  {"name": "prompt_tokens", "key": "prompt_tokens", "kind": "number", "doc": "Tokens before the first that the policy wrote.", "title": "prompt", "whole": true},
  {"name": "response_tokens", "key": "response_tokens", "kind": "number", "doc": "Tokens that the policy wrote.", "title": "tokens", "whole": true},
  {"name": "tools", "key": "tool", "kind": "member", "doc": "Names of the tools called, sorted."},
  {"name": "version_min", "key": "version_min", "kind": "number", "doc": "Oldest version of the weights among its tokens.", "title": "oldest", "whole": true},
  {"name": "version_max", "key": "version_max", "kind": "number", "doc": "Newest version of the weights among its tokens.", "title": "newest", "whole": true},
  {"name": "labels", "key": "label", "kind": "member", "doc": "People's labels, sorted."},
  {"name": "flags", "key": "flag", "kind": "member", "doc": "Findings of checks, sorted."},
  {"name": "prompt_preview", "key": "prompt_preview", "kind": "", "doc": "Beginning of the last message before the first answer.", "title": "prompt"},
  {"name": "preview", "key": "preview", "kind": "", "doc": "Beginning of what the policy said last, after thinking.", "title": "last words of the policy"},
  {"name": "duration", "key": "duration", "kind": "number", "doc": "Seconds from its start to its end."},
  {"name": "superseded", "key": "superseded", "kind": "bool", "doc": "Replaced by a later launch?"},
];

/** The columns that only the answer about a whole rollout has. */
export const BESIDE: readonly Column<keyof Detail>[] = [
  {"name": "key", "key": "key", "kind": "equal", "doc": "The trainer's own name for it."},
  {"name": "worker", "key": "worker", "kind": "equal", "doc": "Worker that made it."},
  {"name": "reward_texts", "key": "reward_texts", "kind": "", "doc": "What the judge wrote for a part."},
  {"name": "error_text", "key": "error_text", "kind": "contains", "doc": "What it said."},
  {"name": "start", "key": "start", "kind": "time", "doc": "When it began."},
  {"name": "end", "key": "end", "kind": "time", "doc": "When it ended."},
  {"name": "sampling", "key": "sampling", "kind": "json", "doc": "Temperature and its like; kind of logprobs."},
  {"name": "reference", "key": "reference", "kind": "", "doc": "Ground truth."},
  {"name": "meta", "key": "meta", "kind": "json", "doc": "Anything else."},
];

/** Keys whose values are counted, to narrow a selection. */
export const FACETS: readonly string[] = ["split", "fate", "stop_reason", "truncated", "error_kind", "environment", "dataset", "tool", "flag", "label", "project", "run"];

/** Numbers that are drawn as histograms. */
export const HISTOGRAMS: readonly (keyof RolloutRow)[] = ["reward", "advantage", "response_tokens", "turns", "step"];

/** Every key of the query language. After `.*` stands a name of the user's own. */
export const KEYS: Readonly<Record<string, { kind: Column["kind"] | "text" | "any"; whole?: true }>> = {
  "id": {"kind": "equal"},
  "key": {"kind": "equal"},
  "project": {"kind": "equal"},
  "run": {"kind": "equal"},
  "launch": {"kind": "equal"},
  "writer": {"kind": "equal"},
  "step": {"kind": "number", "whole": true},
  "trained_step": {"kind": "number", "whole": true},
  "split": {"kind": "equal"},
  "dataset": {"kind": "equal"},
  "task": {"kind": "equal"},
  "group": {"kind": "equal"},
  "index": {"kind": "number", "whole": true},
  "attempt": {"kind": "number", "whole": true},
  "worker": {"kind": "equal"},
  "reward": {"kind": "number"},
  "rewards.*": {"kind": "number"},
  "advantage": {"kind": "number"},
  "stop_reason": {"kind": "equal"},
  "truncated": {"kind": "bool"},
  "fate": {"kind": "equal"},
  "fate_reason": {"kind": "contains"},
  "error_kind": {"kind": "equal"},
  "error_type": {"kind": "equal"},
  "error_text": {"kind": "contains"},
  "time": {"kind": "time"},
  "start": {"kind": "time"},
  "end": {"kind": "time"},
  "sampling.*": {"kind": "json"},
  "policy_version": {"kind": "number", "whole": true},
  "environment": {"kind": "equal"},
  "meta.*": {"kind": "json"},
  "open": {"kind": "bool"},
  "messages": {"kind": "number", "whole": true},
  "turns": {"kind": "number", "whole": true},
  "prompt_tokens": {"kind": "number", "whole": true},
  "response_tokens": {"kind": "number", "whole": true},
  "tool": {"kind": "member"},
  "version_min": {"kind": "number", "whole": true},
  "version_max": {"kind": "number", "whole": true},
  "label": {"kind": "member"},
  "flag": {"kind": "member"},
  "duration": {"kind": "number"},
  "staleness": {"kind": "number", "whole": true},
  "version": {"kind": "number", "whole": true},
  "error": {"kind": "contains"},
  "unobserved": {"kind": "member"},
  "clear": {"kind": "member"},
  "superseded": {"kind": "bool"},
  "validate": {"kind": "bool"},
  "text": {"kind": "text"},
  "assistant": {"kind": "text"},
  "user": {"kind": "text"},
  "system": {"kind": "text"},
  "role.*": {"kind": "text"},
  "has": {"kind": "any"},
};

/** Words of the trainers, and the keys they mean. */
export const ALIASES: Readonly<Record<string, string>> = {
  annotation: "label",
  data_source: "dataset",
  env: "environment",
  example: "task",
  example_id: "task",
  experiment: "run",
  experiment_name: "run",
  finish_reason: "stop_reason",
  flags: "flag",
  global_step: "step",
  global_steps: "step",
  instance_id: "task",
  iteration: "step",
  labels: "label",
  num_turns: "turns",
  phase: "split",
  project_name: "project",
  prompt_length: "prompt_tokens",
  repetition_id: "index",
  response_length: "response_tokens",
  restart: "launch",
  rollout_n: "index",
  sample_index: "task",
  score: "reward",
  status: "fate",
  tools: "tool",
  trial: "run",
  uid: "group",
};
