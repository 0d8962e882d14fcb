/** What the server counts with its engine, counted over a bundle's rows: the rules of `query/facets.py`,
 * `query/overview.py` and `query/tasks.py`. */
import type { Checks, Facets, Failures, Funnel, Histogram, Histograms, Names, Num, Ribbon, RolloutRow, StepNumbers, Tally, Task, Tasks } from "../api/types";
import { HISTOGRAMS } from "../api/columns";
import { BY_KEY, FACETS } from "./columns";
import { compare, valueOf, type Rowed } from "./filter";
import { groupOf, isAlone } from "./group";
import { finite } from "./num";
import { both, exactly, literally, named } from "./query";
import { flips, kindOf, rateOf, rates, together } from "./solved";

const ENDS = ["dropped", "masked", "rejected", "failed"];
const SHOWN = 100; // failures of one answer
const TEXT = 4000; // characters of an error's text

export const mean = (list: number[]): number | null => (list.length ? list.reduce((a, b) => a + b, 0) / list.length : null);
export const least = (list: number[]): number | null => list.reduce<number | null>((a, b) => (a === null || b < a ? b : a), null);
export const greatest = (list: number[]): number | null => list.reduce<number | null>((a, b) => (a === null || b > a ? b : a), null);
export const known = (list: Num[]): number[] => list.map(finite).filter((n): n is number => n !== null);

/** Sorted by these values in turn: the greatest first, or the least; missing ones last. */
type By<A> = [way: "down" | "up", of: (a: A) => number | string | null];

export function sorted<A>(list: A[], ...by: By<A>[]): A[] {
  return list.toSorted((a, b) => {
    for (const [way, of] of by) {
      const [x, y] = [of(a), of(b)];
      const less = x === null || y === null ? Number(x === null) - Number(y === null) : compare(x, y) * (way === "down" ? -1 : 1);
      if (less) return less;
    }
    return 0;
  });
}

/** Between the values beside it, as the engine's `quantile_cont`. */
function quantile(list: number[], q: number): number | null {
  const place = (list.length - 1) * q;
  const [low, high] = [list[Math.floor(place)], list[Math.ceil(place)]];
  return low === undefined || high === undefined ? null : low + (high - low) * (place - Math.floor(place));
}

export function facetsOf(rows: RolloutRow[], keys: readonly string[] = FACETS, limit = 12): Facets {
  return {
    facets: keys.map((key) => {
      const counts = new Map<string | null, number>();
      const of = valueOf(key);
      for (const row of rows) {
        const value = of(row) as string | string[] | null;
        const entries = Array.isArray(value) ? (value.length ? value : [null]) : [value === null || value === undefined ? null : String(value)];
        for (const entry of entries) counts.set(entry, (counts.get(entry) ?? 0) + 1);
      }
      const absent = counts.get(null);
      counts.delete(null);
      const listed = sorted([...counts].map(([value, count]) => ({ value, count })), ["down", (v) => v.count], ["up", (v) => v.value]);
      const values = listed.slice(0, limit);
      if (absent && values.length) values.push({ value: null, count: absent });
      return { key, values, more: Math.max(0, listed.length - limit) };
    }),
  };
}

export function histogramsOf(rows: RolloutRow[], bins = 40, keys: readonly string[] = HISTOGRAMS): Histograms {
  const values = (key: string): Num[] => rows.map(valueOf(key)).map((x) => (x ?? null) as Num);
  return { histograms: keys.map((key) => histogram(key, values(key), bins, BY_KEY.get(key)?.whole ?? false)) };
}

/** Rows carry the parts of the reward, but not `meta`. */
export function namesOf(rows: RolloutRow[]): Names {
  const counts = new Map<string, number>();
  for (const name of rows.flatMap((row) => Object.keys(row.rewards))) counts.set(name, (counts.get(name) ?? 0) + 1);
  const listed = sorted([...counts], ["down", ([, n]) => n], ["up", ([name]) => name]);
  return { names: listed.map(([name, n]) => ({ key: `rewards.${named(name)}`, kind: "number", share: n / rows.length, countable: false })) };
}

function histogram(key: string, values: Num[], bins: number, isWhole: boolean): Histogram {
  const numbers = known(values);
  const [missing, nan] = [values.filter((v) => v === null).length, values.filter((v) => v === "NaN").length];
  const not_finite = values.length - missing - numbers.length;
  const [low, most] = [least(numbers), greatest(numbers)];
  const base = { key, low, most, mean: mean(numbers), missing, nan, infinite: not_finite - nan, not_finite };
  if (low === null || most === null) return { ...base, high: null, counts: [], outside: 0 };
  let [high, bars] = [most, bins];
  if (isWhole) {
    // Bars of whole width: otherwise some would hold one number and some two.
    const width = Math.ceil((most - low + 1) / bins);
    bars = Math.ceil((most - low + 1) / width);
    high = low + width * bars;
  }
  const counts = new Array<number>(bars).fill(0);
  for (const n of numbers) {
    // Halves, as the engine has them: the width of two ends of all numbers is finite, too.
    const at = high <= low ? 0 : Math.min(bars - 1, Math.floor((n / 2 - low / 2) / ((high / 2 - low / 2) / bars)));
    if (Number.isFinite(at)) counts[at] = (counts[at] ?? 0) + 1;
  }
  return { ...base, high, counts, outside: numbers.length - counts.reduce((a, b) => a + b, 0) };
}

export function ribbonOf(rows: Rowed[]): Ribbon {
  const lanes = Map.groupBy(rows.filter((row) => row.step !== null), (row) => JSON.stringify([row.project, row.run, row.split]));
  const runs = [...lanes.values()].map((mine) => ({
    project: mine[0]?.project ?? "",
    run: mine[0]?.run ?? "",
    split: mine[0]?.split ?? null,
    steps: [...Map.groupBy(mine, (row) => row.step ?? 0)].toSorted((a, b) => a[0] - b[0]).map(([step, list]) => column(step, list)),
    metrics: {},
    alarms: [],
  }));
  return { runs: sorted(runs, ["down", (lane) => lane.steps.length], ["up", (lane) => lane.project], ["up", (lane) => lane.run], ["up", (lane) => lane.split ?? ""]) };
}

const isError = (row: Rowed): boolean => (row.error_kind ?? row.error_type ?? row.error_text ?? null) !== null;

function column(step: number, rows: Rowed[]): StepNumbers {
  const rewards = known(rows.map((row) => row.reward)).sort((a, b) => a - b);
  const groups = [...Map.groupBy(rows, groupOf).values()];
  const isDead = (group: RolloutRow[]): boolean => {
    const all = group.map((row) => row.reward).filter((reward) => reward !== null);
    return all.length > 1 && all.every((reward) => reward === all[0]) && !group.some(isAlone);
  };
  return {
    step,
    rollouts: rows.length,
    scored: rewards.length,
    mean: mean(rewards),
    low: quantile(rewards, 0.1),
    high: quantile(rewards, 0.9),
    truncated: rows.filter((row) => row.truncated).length,
    errors: rows.filter(isError).length,
    length: mean(known(rows.map((row) => row.response_tokens))),
    groups: groups.length,
    dead: groups.filter(isDead).length,
  };
}

export function tasksOf(rows: RolloutRow[], kind: string, order: string, at: number): Tasks {
  const all = [...Map.groupBy(rows.filter((row) => row.task !== null), (row) => JSON.stringify([row.dataset, row.task])).values()].map(task);
  const usual = sorted(all.filter((one) => !kind || one.kind === kind), ["down", (t) => t.flips], ["down", (t) => t.regression], ["up", (t) => t.dataset], ["up", (t) => t.task]);
  const name = order.replace(/^-/u, "") as keyof Task | "change";
  const change = ({ first_rate: first, last_rate: last }: Task): number | null => (first === null || last === null ? null : last - first);
  const chosen = sorted(usual, [order.startsWith("-") ? "down" : "up", (t) => (name === "change" ? change(t) : t[name])]);
  return { tasks: chosen.slice(at, at + 200), count: chosen.length, runs: new Set(rows.filter((row) => row.task !== null).map((row) => JSON.stringify([row.project, row.run]))).size };
}

function task(rows: RolloutRow[]): Task {
  const steps = [...new Set(known(rows.map((row) => row.step)))];
  const lanes = [...Map.groupBy(rows, (row) => JSON.stringify([row.project, row.run, row.split])).values()].map(rates).filter((lane) => lane.length);
  const all = lanes.flat();
  const { first, last, best, worst } = together(lanes);
  return {
    task: rows[0]?.task ?? "",
    dataset: rows[0]?.dataset ?? null,
    rollouts: rows.length,
    runs: new Set(rows.map((row) => JSON.stringify([row.project, row.run]))).size,
    steps: steps.length,
    rate: rateOf(rows),
    first_step: least(steps),
    last_step: greatest(steps),
    first_rate: first,
    last_rate: last,
    best_rate: best,
    worst_rate: worst,
    first_success: least(known(all.filter(({ rate }) => rate > 0).map(({ step }) => step))),
    flips: lanes.flatMap(flips).length,
    regression: best === null || last === null ? null : best - last,
    reward: mean(known(rows.map((row) => row.reward))),
    response_tokens: mean(known(rows.map((row) => row.response_tokens))),
    kind: kindOf(first, last, best, worst),
    preview: rows.find((row) => row.prompt_preview)?.prompt_preview?.slice(0, 300) ?? null,
  };
}

interface Ended {
  fate: string | null;
  reason: string | null;
  scored: boolean;
  count: number;
}

export function funnelOf(rows: RolloutRow[], q = ""): Funnel {
  const groups = sorted(
    [...Map.groupBy(rows, (row) => JSON.stringify([row.fate, row.fate_reason, row.reward !== null])).values()].map((mine): Ended => {
      const { fate = null, fate_reason: reason = null, reward = null } = mine[0] ?? {};
      return { fate, reason, scored: reward !== null, count: mine.length };
    }),
    ["down", (g) => g.count], ["up", (g) => g.fate], ["up", (g) => g.reason],
  );
  const reached = ({ fate, scored }: Ended): number => (!scored ? 0 : ENDS.includes(fate ?? "") ? 1 : fate === "trained" ? 3 : 2);
  const stages = [["generated", ""], ["scored", "has:reward"], ["kept", `has:reward -fate:${ENDS.join(",")}`], ["trained", "has:reward fate:trained"]];
  const told = groups.some(({ fate }) => fate !== null);
  return {
    total: rows.length,
    stages: stages.slice(0, told ? 4 : 2).map(([name = "", terms = ""], stage): Tally => {
      const lost = Map.groupBy(groups.filter((group) => reached(group) === stage - 1), ({ fate, scored }) => JSON.stringify([fate, scored]));
      const reasons = [...lost.values()].flatMap((mine) => {
        const { fate = null, scored = false } = mine[0] ?? {};
        return reasonsOf(mine, both(q, `${scored ? "" : "-"}has:reward ${exactly("fate", fate)}`), fate ?? "not known");
      });
      return { ...tally(name, sum(groups.filter((group) => reached(group) >= stage)), both(q, terms)), reasons: sorted(reasons, ["down", (reason) => reason.count]) };
    }),
    ends: endsOf(rows, q),
  };
}

const NUMBER = "[0-9]+(?:\\.[0-9]+)*";

/** Reasons that differ only in numbers are one. `otherwise`: what it is called where there is none. */
function reasonsOf(counted: { reason: string | null; count: number }[], found: string, otherwise: string): Tally[] {
  const alike = Map.groupBy(counted, ({ reason }) => JSON.stringify(reason?.split(new RegExp(NUMBER, "u")) ?? null));
  const made = [...alike].map(([key, same]): Tally => {
    const pieces = JSON.parse(key) as string[] | null;
    const { reason = null } = same[0] ?? {};
    const one = !pieces || same.length < 2;
    const term = one ? exactly("fate_reason", reason) : `fate_reason:/^${pieces.map(literally).join(NUMBER)}$/`;
    return tally((one ? reason : pieces.join("N")) || otherwise, sum(same), `${found} ${term}`);
  });
  return sorted(made, ["down", (reason) => reason.count]);
}

const tally = (name: string, count: number, q: string): Tally => ({ name, count, q, reasons: [] });
const sum = (list: { count: number }[]): number => list.reduce((total, { count }) => total + count, 0);

function endsOf(rows: RolloutRow[], q: string): Tally[] {
  const all = [...Map.groupBy(rows, (row) => JSON.stringify([row.fate, row.fate_reason])).values()].map((mine) => ({ fate: mine[0]?.fate ?? null, reason: mine[0]?.fate_reason ?? null, count: mine.length }));
  const fates = Map.groupBy(sorted(all, ["down", (g) => g.count], ["up", (g) => g.fate], ["up", (g) => g.reason]), (g) => g.fate);
  const ends = [...fates].map(([fate, mine]): Tally => {
    const found = both(q, exactly("fate", fate));
    return { ...tally(fate ?? "fate not known", sum(mine), found), reasons: reasonsOf(mine.filter(({ reason }) => reason !== null), found, "") };
  });
  return sorted(ends, ["down", (end) => end.count]);
}

export function failuresOf(rows: Rowed[], q = ""): Failures {
  const failed = rows.filter((row) => isError(row) || row.truncated);
  const alike = [...Map.groupBy(failed, (row) => JSON.stringify([isError(row), row.error_kind, row.error_type])).values()];
  const found = sorted(alike, ["down", (mine) => mine.length], ["up", (mine) => mine[0]?.error_kind ?? null], ["up", (mine) => mine[0]?.error_type ?? null]).flatMap((mine) => {
    // The newest one speaks for all of them. What was cut off without an error failed by a limit.
    const [one] = sorted(mine, ["down", (row) => row.time], ["up", (row) => row.id]);
    if (!one) return [];
    const { error_kind: kind, error_type: type } = one;
    const alone = kind === null && type === null ? " has:error" : "";
    const terms = isError(one) ? `${exactly("error_kind", kind)} ${exactly("error_type", type)}${alone}` : "truncated:true error:none";
    const steps = known(mine.map((row) => row.step));
    const text = sorted(mine.filter((row) => row.error_text), ["down", (row) => row.time])[0]?.error_text?.slice(0, TEXT) ?? null;
    return [{ kind: isError(one) ? kind : "limit", type, count: mine.length, text, first_step: least(steps), last_step: greatest(steps), examples: [one.id], q: both(q, terms), example: one }];
  });
  const kinds = [...Map.groupBy(found, (failure) => failure.kind)].map(([kind, mine]) => {
    const terms = kind === null ? "has:error error_kind:none" : kind === "limit" ? "(error_kind:limit OR (truncated:true error:none))" : exactly("error_kind", kind);
    return tally(kind ?? "not known", sum(mine), both(q, terms));
  });
  return { total: rows.length, kinds: sorted(kinds, ["down", (kind) => kind.count]), failures: found.slice(0, SHOWN) };
}

/** Of a bundle only what was found is known: the flags of its rows. */
export function findingsOf(rows: Rowed[]): Checks {
  const counts = new Map<string, number>();
  for (const check of rows.flatMap((row) => row.flags)) counts.set(check, (counts.get(check) ?? 0) + 1);
  const checks = [...counts].map(([check, found]) => ({ check, found }));
  return { total: rows.length, checks: sorted(checks, ["down", (one) => one.found], ["up", (one) => one.check]) };
}
