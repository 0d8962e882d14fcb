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

/** The rates of a task in one run and split, in the order of its steps; where nothing is scored there is none. */
export function rates(rows: RolloutRow[]): Rate[] {
  const steps = [...Map.groupBy(rows.filter((row) => isScored(row.reward)), (row) => row.step)];
  return steps.map(([step, list]) => ({ step, rate: list.filter((row) => isSolved(row.reward)).length / list.length })).toSorted((a, b) => (a.step ?? Infinity) - (b.step ?? Infinity));
}

/** Those that differ from the one before: mostly solved, or not any more. */
export const flips = (found: Rate[]): Rate[] => found.filter(({ rate }, i) => i > 0 && isMostly(rate) !== isMostly(found[i - 1]?.rate ?? 0));

export function kindOf(first: number | null, last: number | null, best: number | null, worst: number | null): Task["kind"] {
  if (best === null) return "not scored";
  if (best === 0) return "never";
  if (worst === 1) return "always";
  if (first === null || last === null) return "mixed";
  if (isMostly(best) && !isMostly(last)) return "regressed";
  return !isMostly(first) && isMostly(last) ? "flipped" : "mixed";
}
