/** Which rollouts are siblings. */
import type { Listed } from "../api/types";

type Grouped = Pick<Listed, "group" | "task" | "dataset" | "environment">;

/** What rollouts of one group have in common: without one, task, dataset and environment. */
export const groupName = (row: Grouped): string | null => row.group ?? (row.task === null ? null : [row.task, row.dataset, row.environment].join("\n"));

/** Do two rows of a list belong together? */
export function siblings(a: Listed, b: Listed): boolean {
  const name = groupName(a);
  return name !== null && name === groupName(b) && a.step === b.step && a.run === b.run;
}
