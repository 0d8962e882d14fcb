import { expect, test } from "vitest";
import "./groupby";
import type { RolloutRow } from "../src/api/types";
import { failuresOf, funnelOf, ribbonOf, tasksOf } from "../src/lib/counting";
import { matcher } from "../src/lib/filter";

const EMPTY = { rewards: {}, tools: [], labels: [], flags: [], project: "p", run: "r", split: "train", step: null, dataset: null, environment: null, group: null, task: "t", index: null, reward: null, fate: null, fate_reason: null, error_kind: null, error_type: null, truncated: null, response_tokens: null, prompt_preview: null };
const rows = (...all: Partial<RolloutRow>[]): RolloutRow[] => all.map((row, i) => ({ ...EMPTY, id: String(i), ...row }) as RolloutRow);

test("a task without steps has neither regressed nor flipped", () => {
  const [task] = tasksOf(rows({ reward: 1 }, { reward: 0 }), "", "-flips", 0).tasks;
  expect([task?.kind, task?.steps, task?.first_rate, task?.best_rate]).toEqual(["mixed", 0, null, 0.5]);
});

const history = (run: string, rewards: (number | string | null)[]): Partial<RolloutRow>[] => rewards.map((reward, step) => ({ run, step, reward }));
const kinds = (...lanes: Partial<RolloutRow>[][]): unknown[] => tasksOf(rows(...lanes.flat()), "", "-flips", 0).tasks.map((task) => [task.kind, task.first_rate, task.last_rate, task.flips]);

test("a task that was learned and lost again has regressed, and flipped twice", () => {
  expect(kinds(history("a", [0, 1, 1, 0]))).toEqual([["regressed", 0, 0, 2]]);
  expect(kinds(history("a", [0, 1, 0, 1]))).toEqual([["flipped", 0, 1, 3]]);
});

test("rates are of each run and split by itself; first and last are means over them, each by its own steps", () => {
  expect(kinds(history("a", [0, 1]), history("b", [1, 1, 0]))).toEqual([["mixed", 0.5, 0.5, 2]]);
  expect(kinds(history("a", [1, 1]), history("b", [0, 0]), history("c", [0, 0]))).toEqual([["mixed", 1 / 3, 1 / 3, 0]]);
});

test("an infinite reward is solved, and NaN says nothing", () => {
  expect(kinds(history("a", [0, "NaN", "Infinity"]))).toEqual([["flipped", 0, 1, 1]]);
});

test("a group is dead when all rewards it got are the same; a failed sibling got none", () => {
  const [run] = ribbonOf(rows({ step: 1, reward: 1 }, { step: 1, reward: 1 }, { step: 1, fate: "failed" })).runs;
  expect(run?.steps[0]?.dead).toBe(1);
});

test("the same task of two datasets is two groups", () => {
  const [run] = ribbonOf(rows({ step: 1, dataset: "a" }, { step: 1, dataset: "b" })).runs;
  expect(run?.steps[0]?.groups).toBe(2);
});

test("rollouts without a group and a task are compared with nothing, so their equal rewards make no dead group", () => {
  const [run] = ribbonOf(rows({ step: 1, task: null, reward: 1 }, { step: 1, task: null, reward: 1 })).runs;
  expect([run?.steps[0]?.groups, run?.steps[0]?.dead]).toEqual([2, 0]);
});

test("a funnel tells why rollouts were lost, and every count is a query that finds them", () => {
  const all = rows({ reward: 1, fate: "trained" }, { reward: 1, fate: "dropped", fate_reason: "same rewards" }, { fate: "failed" }, { reward: 0, fate: "scored" });
  const { stages } = funnelOf(all);
  expect(stages.map((stage) => [stage.count, stage.reasons.map((reason) => [reason.name, reason.count])])).toEqual([
    [4, []],
    [3, [["failed", 1]]],
    [2, [["same rewards", 1]]],
    [1, [["scored", 1]]],
  ]);
  for (const reason of stages.flatMap((stage) => stage.reasons)) expect(all.filter(matcher(reason.q))).toHaveLength(reason.count);
});

test("what was cut off without an error failed by a limit", () => {
  const all = rows({ truncated: true }, { error_kind: "tool", error_type: "Timeout", truncated: true }, {});
  const { kinds, failures } = failuresOf(all);
  expect(kinds.map((bar) => [bar.name, bar.count])).toEqual([["tool", 1], ["limit", 1]]);
  for (const failure of failures) expect(all.filter(matcher(failure.q))).toHaveLength(failure.count);
});
