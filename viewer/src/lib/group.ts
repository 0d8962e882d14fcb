/** Which rollouts are siblings: what `model/grouping.py` says. */
import type { ListedRow, RolloutRow } from "../api/types";

type Grouped = Pick<RolloutRow, "id" | "project" | "run" | "split" | "step" | "group" | "task" | "dataset" | "environment" | "launch">;

/** Is a rollout compared with no other? */
export const isAlone = (row: Grouped): boolean => row.group === null && row.task === null;

/** The same for all rollouts of a group, and for no others. */
export function groupOf(row: Grouped): string {
  const name = row.group !== null ? [row.group] : row.task !== null ? [null, row.task, row.dataset, row.environment] : [null, row.id];
  return JSON.stringify([row.project, row.run, row.split, row.step, row.launch, ...name]);
}

/** Do two rows of a list belong together? */
export const siblings = (a: ListedRow, b: ListedRow): boolean => groupOf(a) === groupOf(b);
