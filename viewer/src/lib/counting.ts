/** What the server counts with its engine, counted over a bundle's rows. */
import { HISTOGRAMS } from "../api/columns";
import type { Tally, Facets, Failures, Funnel, Histograms, Num, Ribbon, Row, StepNumbers, Task, Tasks } from "../api/types";
import { BY_KEY, FACETS } from "./columns";
import { groupOf } from "./group";
import { finite } from "./num";
import { term } from "./query";
import { flips, kindOf, rates } from "./solved";

const ENDS = ["dropped", "masked", "rejected", "failed"];

const mean = (list: number[]): number | null => (list.length ? list.reduce((a, b) => a + b, 0) / list.length : null);
const least = (list: number[]): number | null => list.reduce<number | null>((a, b) => (a === null || b < a ? b : a), null);
const greatest = (list: number[]): number | null => list.reduce<number | null>((a, b) => (a === null || b > a ? b : a), null);
const known = (list: (number | string | null)[]): number[] => list.map(finite).filter((n): n is number => n !== null);
const quantile = (sorted: number[], q: number): number | null => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? null;

export function facetsOf(rows: Row[], keys: string[] = FACETS, limit = 12): Facets {
  return {
    facets: keys.map((key) => {
      const counts = new Map<string | null, number>();
      for (const row of rows) {
        const value = row[BY_KEY.get(key)?.name ?? (key as keyof Row)] as string | string[] | null;
        const entries = Array.isArray(value) ? (value.length ? value : [null]) : [value === null || value === undefined ? null : String(value)];
        for (const entry of entries) counts.set(entry, (counts.get(entry) ?? 0) + 1);
      }
      const absent = counts.get(null);
      counts.delete(null);
      const listed = [...counts].map(([value, count]) => ({ value, count })).toSorted((a, b) => b.count - a.count);
      const values: { value: string | null; count: number }[] = listed.slice(0, limit);
      if (absent && values.length) values.push({ value: null, count: absent });
      return { key, values, more: Math.max(0, listed.length - limit) };
    }),
  };
}

export function histogramsOf(rows: Row[], bins = 40): Histograms {
  return {
    histograms: HISTOGRAMS.map((key) => {
      const values = rows.map((row) => row[key] as Num);
      const numbers = known(values);
      const missing = values.filter((v) => v === null).length;
      const nan = values.filter((v) => v === "NaN").length;
      const not_finite = rows.length - missing - numbers.length;
      const [low, most] = [least(numbers), greatest(numbers)];
      const base = { key, missing, nan, infinite: not_finite - nan, not_finite, mean: mean(numbers), outside: 0, low, most };
      if (low === null || most === null) return { ...base, high: null, counts: [] };
      let high = most;
      let bars = bins;
      if (BY_KEY.get(key)?.whole) {
        const per = Math.ceil((high - low + 1) / bins);
        bars = Math.ceil((high - low + 1) / per);
        high = low + per * bars;
      }
      const counts = new Array<number>(bars).fill(0);
      for (const n of numbers) {
        const at = Math.min(bars - 1, Math.floor((n - low) / ((high - low || 1) / bars)));
        counts[at] = (counts[at] ?? 0) + 1;
      }
      return { ...base, high, counts };
    }),
  };
}

export function ribbonOf(rows: Row[]): Ribbon {
  const lanes = Map.groupBy(rows.filter((row) => row.step !== null), (row) => [row.project, row.run, row.split].join("\n"));
  return {
    runs: [...lanes.values()].map((mine) => ({
      project: mine[0]?.project ?? "",
      run: mine[0]?.run ?? "",
      split: mine[0]?.split ?? null,
      steps: [...Map.groupBy(mine, (row) => row.step ?? 0)].toSorted((a, b) => a[0] - b[0]).map(([step, list]) => column(step, list)),
      metrics: {},
    })),
  };
}

function column(step: number, rows: Row[]): StepNumbers {
  const rewards = known(rows.map((row) => row.reward)).sort((a, b) => a - b);
  const groups = [...Map.groupBy(rows, groupOf).values()].map((group) => known(group.map((row) => row.reward)));
  return {
    step,
    rollouts: rows.length,
    mean: mean(rewards),
    low: quantile(rewards, 0.1),
    high: quantile(rewards, 0.9),
    truncated: rows.filter((row) => row.truncated).length,
    errors: rows.filter((row) => row.error_kind ?? row.error_type).length,
    groups: groups.length,
    dead: groups.filter((group) => group.length > 1 && group.every((reward) => reward === group[0])).length,
    scored: rewards.length,
    length: mean(known(rows.map((row) => row.response_tokens))),
  };
}

export function tasksOf(rows: Row[], kind: string, order: string, at: number): Tasks {
  const all = [...Map.groupBy(rows.filter((row) => row.task !== null), (row) => `${row.dataset}\n${row.task}`).values()].map(task);
  const chosen = kind ? all.filter((row) => row.kind === kind) : all;
  const name = order.replace(/^-/, "") as keyof Task | "change";
  const value = (row: Task): number | string | null =>
    name === "change" ? (finite(row.last_rate) ?? 0) - (finite(row.first_rate) ?? 0) : ((row[name] as number | string | null) ?? null);
  const sorted = chosen.toSorted((a, b) => {
    const [x, y] = [value(a), value(b)];
    const less = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
    return order.startsWith("-") ? -less : less;
  });
  return { tasks: sorted.slice(at, at + 200), count: sorted.length };
}

function task(rows: Row[]): Task {
  const steps = new Set(known(rows.map((row) => row.step)));
  const lanes = [...Map.groupBy(rows, (row) => JSON.stringify([row.project, row.run, row.split])).values()].map(rates);
  const all = lanes.flat();
  const stepped = known(all.map(({ step }) => step));
  const [begin, end] = [Math.min(...stepped), Math.max(...stepped)];
  const at = (step: number): number | null => mean(all.filter((found) => found.step === step).map(({ rate }) => rate));
  const [first, last] = [at(begin), at(end)];
  const [best, worst] = [greatest(all.map(({ rate }) => rate)), least(all.map(({ rate }) => rate))];
  return {
    task: rows[0]?.task ?? "",
    dataset: rows[0]?.dataset ?? null,
    rollouts: rows.length,
    steps: steps.size,
    first_step: least([...steps]),
    last_step: greatest([...steps]),
    first_rate: first,
    last_rate: last,
    best_rate: best,
    worst_rate: worst,
    first_success: least(known(all.filter(({ rate }) => rate > 0).map(({ step }) => step))),
    regression: best === null || last === null ? null : best - last,
    reward: mean(known(rows.map((row) => row.reward))),
    response_tokens: mean(known(rows.map((row) => row.response_tokens))),
    flips: lanes.flatMap(flips).length,
    kind: kindOf(first, last, best, worst),
    preview: rows[0]?.prompt_preview ?? null,
  };
}

export function funnelOf(rows: Row[]): Funnel {
  const scored = rows.filter((row) => row.reward !== null);
  const kept = scored.filter((row) => !ENDS.includes(row.fate ?? ""));
  const stages: [string, Row[], string][] = [
    ["generated", rows, ""],
    ["scored", scored, "has:reward"],
    ["kept", kept, `has:reward -fate:${ENDS.join(",")}`],
    ["trained", kept.filter((row) => row.fate === "trained"), "has:reward fate:trained"],
  ];
  const ends = [...Map.groupBy(rows, (row) => row.fate)].map(([fate, mine]): Tally => ({
    name: fate ?? "fate not known",
    count: mine.length,
    q: term("fate", fate),
    reasons: [...Map.groupBy(mine.filter((row) => row.fate_reason !== null), (row) => row.fate_reason)].map(([reason, list]): Tally => ({ name: reason ?? "", count: list.length, q: `${term("fate", fate)} ${term("fate_reason", reason)}`, reasons: [] })),
  }));
  const lost = (before: Row[] | undefined, here: Row[]): Tally[] => {
    const reached = new Set(here);
    const gone = Map.groupBy((before ?? []).filter((row) => !reached.has(row)), (row) => [row.fate, row.fate_reason, row.reward === null].join("\n"));
    return [...gone.values()].toSorted((a, b) => b.length - a.length).map((mine): Tally => {
      const { fate = null, fate_reason = null, reward = null } = mine[0] ?? {};
      return { name: fate_reason ?? fate ?? "not known", count: mine.length, q: `${reward === null ? "-" : ""}has:reward ${term("fate", fate)} ${term("fate_reason", fate_reason)}`, reasons: [] };
    });
  };
  return { total: rows.length, stages: stages.map(([name, list, q], i) => ({ name, count: list.length, q, reasons: lost(stages[i - 1]?.[1], list) })), ends: ends.toSorted((a, b) => b.count - a.count) };
}

export function failuresOf(rows: Row[]): Failures {
  // As the server counts: what was cut off without an error failed by a limit.
  const cut = (row: Row): boolean => !!row.truncated && !(row.error_kind ?? row.error_type);
  const kindOf = (row: Row): string | null => (cut(row) ? "limit" : row.error_kind);
  const failed = rows.filter((row) => cut(row) || (row.error_kind ?? row.error_type));
  const groups = [...Map.groupBy(failed, (row) => `${kindOf(row)}\n${cut(row)}\n${row.error_type}`).values()].toSorted((a, b) => b.length - a.length);
  const kinds = [...Map.groupBy(failed, kindOf)].map(([kind, mine]): Tally => ({ name: kind ?? "not known", count: mine.length, q: kind === "limit" ? "(error_kind:limit OR (truncated:true error_kind:none error_type:none))" : term("error_kind", kind), reasons: [] }));
  return {
    total: rows.length,
    kinds,
    failures: groups.map((mine) => {
      const steps = known(mine.map((row) => row.step));
      const [one] = mine;
      const q = one && cut(one) ? "truncated:true error_kind:none error_type:none" : `${term("error_kind", one?.error_kind ?? null)} ${term("error_type", one?.error_type ?? null)}`;
      return { kind: one ? kindOf(one) : null, type: one?.error_type ?? null, count: mine.length, q, examples: one ? [one.id] : [], example: one ?? null, text: null, first_step: least(steps), last_step: greatest(steps) };
    }),
  };
}
