/** The page's copy of the query language and of counting, held against what Python answers: see
 * `tests/server/vectors.py`, which writes `vectors.json`. */
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import "./groupby";
import { Refused } from "../src/api/client";
import type { Failures, ListedRun, Matrix, Task } from "../src/api/types";
import { matrixOf, type AskedMatrix } from "../src/lib/matrix";
import { facetsOf, failuresOf, funnelOf, histogramsOf, ribbonOf, tasksOf } from "../src/lib/counting";
import { matcher, sorter, sorts, type Hits, type Rowed } from "../src/lib/filter";
import { parse } from "../src/lib/syntax";
import { historyOf, neighboursOf, runsOf, startOf } from "../src/lib/walking";
import { idOf, searched, textTerms } from "../src/lib/whole";

interface Asked {
  q: string;
  answer: unknown;
}

interface Vectors {
  rows: Rowed[];
  said: [string, string | null][][];
  found: { q: string; ids: string[] }[];
  refused: string[];
  wrong: { q: string; error: string; start: number; end: number }[];
  orders: { order: string; ids: string[] }[];
  wrong_orders: string[];
  facets: (Asked & { keys: string; limit: number })[];
  histograms: (Asked & { bins: number })[];
  ribbon: Asked[];
  matrix: (Asked & AskedMatrix & { answer: Matrix })[];
  tasks: (Asked & { kind: string; order: string; answer: { tasks: Omit<Task, "preview">[]; count: number } })[];
  task_orders: { order: string; names: [string | null, string][] }[];
  history: (Asked & { task: string; dataset: string | null })[];
  funnel: Asked[];
  failures: (Asked & { answer: Failures })[];
  start: Asked[];
  values: { key: string; prefix: string; answer: { values: unknown[] } }[];
  runs: ListedRun[];
  neighbours: { id: string; siblings: string[] }[];
}

const V = JSON.parse(readFileSync("test/vectors.json", "utf8")) as Vectors;

/** Who has the words of a query: what the worker of a bundle tells. */
function hits(q: string): Hits {
  const has = (test: ReturnType<typeof searched>): Set<string> => new Set(V.rows.filter((_, i) => V.said[i]?.some(([role, text]) => test(text, role))).map((row) => row.id));
  return new Map(textTerms(parse(q)).map((term) => [idOf(term), has(searched(term))]));
}

const select = (q: string): Rowed[] => V.rows.filter(matcher(q, hits(q)));

/** Means may differ in their last digits. */
const close = (x: unknown): unknown => JSON.parse(JSON.stringify(x), (_, value: unknown) => (typeof value === "number" ? Math.round(value * 1e8) / 1e8 : value));

function refusal(ask: () => unknown): Refused {
  try {
    ask();
  } catch (error) {
    if (error instanceof Refused) return error;
    throw error;
  }
  throw new Error("it was answered");
}

test.each(V.found)("finds the same rollouts: $q", ({ q, ids }) => {
  expect(select(q).map((row) => row.id).sort()).toEqual(ids);
});

test.each(V.refused)("what rows do not have is refused by name: %s", (q) => {
  expect(refusal(() => matcher(q)).message).toMatch(/^a bundle cannot be asked for \w/u);
});

test.each(V.wrong)("a wrong query is refused at the same place: $q", ({ q, error, start, end }) => {
  const { problem } = refusal(() => matcher(q));
  expect(error).toContain(problem.error); // the server may add what was meant
  expect([problem.start, problem.end]).toEqual([start, end]);
});

test.each(V.orders.filter(({ order }) => order))("sorts in the same order: $order", ({ order, ids }) => {
  expect(sorts(order)).toBe(true);
  expect(sorter(order)(V.rows).map((row) => row.id)).toEqual(ids);
});

test.each(V.wrong_orders)("an order that rows cannot give is refused: %s", (order) => {
  expect(sorts(order)).toBe(false);
});

test.each(V.facets)("counts the same values: $q", ({ q, keys, limit, answer }) => {
  expect(facetsOf(select(q), keys.split(","), limit)).toEqual(answer);
});

test.each(V.histograms)("draws the same histograms: $q, $bins bars", ({ q, bins, answer }) => {
  expect(close(histogramsOf(select(q), bins))).toEqual(close(answer));
});

test.each(V.ribbon)("tells the same of each step: $q", ({ q, answer }) => {
  expect(close(ribbonOf(select(q)))).toEqual(close(answer));
});

test.each(V.tasks)("tells the same of each task: $q $kind", ({ q, kind, order, answer }) => {
  const { tasks, count } = tasksOf(select(q), kind, order, 0);
  expect(count).toBe(answer.count);
  expect(close(tasks.map(({ preview: _, ...task }) => task))).toEqual(close(answer.tasks));
});

test.each(V.matrix)("lays tasks against the same columns: $q $across $order", ({ q, answer, ...asked }) => {
  expect(close(matrixOf(select(q), asked))).toEqual(close(answer));
});

test.each(V.task_orders)("sorts tasks in the same order: $order", ({ order, names }) => {
  expect(tasksOf(V.rows, "", order, 0).tasks.map((task) => [task.dataset, task.task])).toEqual(names);
});

test.each(V.history)("lists the same history of a task: $q $dataset", ({ q, task, dataset, answer }) => {
  expect(historyOf(select(q), task, dataset).map((row) => row.id)).toEqual(answer);
});

test.each(V.funnel)("tells the same of what became of rollouts, by the same queries: $q", ({ q, answer }) => {
  expect(funnelOf(select(q), q)).toEqual(answer);
});

test.each(V.failures)("tells the same failures, by the same queries: $q", ({ q, answer }) => {
  const told = failuresOf(select(q), q);
  expect({ ...told, failures: told.failures.map((failure) => ({ ...failure, example: failure.example?.id })) }).toEqual(answer);
});

test.each(V.start)("begins to read at the same rollout: $q", ({ q, answer }) => {
  expect(startOf(select(q))).toEqual(answer);
});

test("lists the same runs", () => {
  expect(runsOf(V.rows)).toEqual(V.runs);
});

test.each(V.neighbours)("goes on to the same rollouts from $id", ({ id, ...near }) => {
  const me = V.rows.find((row) => row.id === id);
  const found = neighboursOf(V.rows, me as Rowed);
  expect({ ...found, siblings: found.siblings.map((row) => row.id) }).toEqual(near);
});
