/** When a task is solved, flipped or regressed: what `model/solved.py` says, for bundles and charts. */
import type { Num, RolloutRow, Task } from "../api/types";

/** A rollout is solved from this reward on. */
export const SOLVED = 0.5;

/** Does a rollout have a reward that says whether it is solved? NaN says nothing. */
export const isScored = (reward: Num): boolean => reward !== null && !Number.isNaN(Number(reward));

export const isSolved = (reward: Num): boolean => reward !== null && Number(reward) >= SOLVED;

/** Is a task with this rate mostly solved? */
export const isMostly = (rate: number): boolean => rate >= 0.5;

export interface Rate {
  step: number | null;
  /** Share of the scored rollouts that are solved. */
  rate: number;
}

/** The rate of all of these rollouts; none if nothing is scored. */
export function rateOf(rows: RolloutRow[]): number | null {
  const scored = rows.filter((row) => isScored(row.reward));
  return scored.length ? scored.filter((row) => isSolved(row.reward)).length / scored.length : null;
}

/** The rates of a task in one run and split, in the order of its steps; where nothing is scored there is none. */
export function rates(rows: RolloutRow[]): Rate[] {
  const steps = [...Map.groupBy(rows.filter((row) => isScored(row.reward)), (row) => row.step)];
  return steps.map(([step, list]) => ({ step, rate: rateOf(list) ?? 0 })).toSorted((a, b) => (a.step ?? Infinity) - (b.step ?? Infinity));
}

/** Those that differ from the one before: mostly solved, or not any more. */
export const flips = (found: Rate[]): Rate[] => found.filter(({ rate }, i) => i > 0 && isMostly(rate) !== isMostly(found[i - 1]?.rate ?? 0));

/** First, last, best and worst of several runs and splits: means over them. Where one has steps, its rate without a
 * step does not count; one without any counts with its one rate, if others have steps. */
export function together(lanes: Rate[][]): Record<"first" | "last" | "best" | "worst", number | null> {
  const isStepped = ({ step }: Rate): boolean => step !== null;
  const mine = lanes.map((lane) => (lane.some(isStepped) ? lane.filter(isStepped) : lane).map(({ rate }) => rate));
  const over = (of: (rates: number[]) => number | undefined): number | null => (mine.length ? mine.reduce((sum, rates) => sum + (of(rates) ?? 0), 0) / mine.length : null);
  const any = lanes.flat().some(isStepped);
  return { first: any ? over((rates) => rates[0]) : null, last: any ? over((rates) => rates.at(-1)) : null, best: over((rates) => Math.max(...rates)), worst: over((rates) => Math.min(...rates)) };
}

export function kindOf(first: number | null, last: number | null, best: number | null, worst: number | null): Task["kind"] {
  if (best === null) return "not scored";
  if (best === 0) return "never";
  if (worst === 1) return "always";
  if (first === null || last === null) return "mixed";
  if (isMostly(best) && !isMostly(last)) return "regressed";
  return !isMostly(first) && isMostly(last) ? "flipped" : "mixed";
}
