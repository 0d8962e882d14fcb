/** Where to go in a bundle: its runs, where reading begins, what lies beside a rollout. The rules are those
 * of `query/runs.py` and `query/groups.py`. */
import type { RolloutRow, ListedRun } from "../api/types";
import { sorted } from "./counting";
import { sorter } from "./filter";
import { groupOf, isAlone } from "./group";
import { finite } from "./num";

/** The run that was last written to comes first. */
export function runsOf(rows: RolloutRow[]): ListedRun[] {
  const runs = [...Map.groupBy(rows, (row) => JSON.stringify([row.project, row.run])).values()].map((mine): ListedRun => {
    const [steps, times] = [mine.map((row) => row.step), mine.map((row) => row.time)].map((list) => list.filter((n) => n !== null).sort((a, b) => a - b));
    return { project: mine[0]?.project ?? "", run: mine[0]?.run ?? "", rollouts: mine.length, superseded: 0, first_step: steps?.[0] ?? null, last_step: steps?.at(-1) ?? null, last_time: times?.at(-1) ?? null, live: false };
  });
  return sorted(runs, ["down", (run) => run.last_time ?? 0], ["down", (run) => run.project], ["down", (run) => run.run]);
}

/** The best rollout of the newest group whose rewards differ, else the first rollout. */
export function startOf(rows: RolloutRow[]): { id: string | null } {
  const groups = [...Map.groupBy(rows.filter((row) => !isAlone(row) && finite(row.reward) !== null), groupOf).values()];
  const mixed = groups.filter((mine) => mine.some((row) => row.reward !== mine[0]?.reward));
  const time = (mine: RolloutRow[]): number | null => sorted(mine, ["down", (row) => row.time])[0]?.time ?? null;
  const first = (mine: RolloutRow[]): string => sorted(mine, ["up", (row) => row.id])[0]?.id ?? "";
  const [newest = []] = sorted(mixed, ["down", (mine) => mine[0]?.step ?? null], ["down", time], ["up", first]);
  const [best] = sorted(newest, ["down", (row) => finite(row.reward)], ["up", (row) => row.index], ["up", (row) => row.id]);
  return { id: (best ?? rows[0])?.id ?? null };
}

export interface Near {
  siblings: RolloutRow[];
  previous_group: string | null;
  next_group: string | null;
  earlier: string | null;
  later: string | null;
}

export function neighboursOf(rows: RolloutRow[], me: RolloutRow): Near {
  const siblings = sorter("index,attempt")(rows.filter((row) => groupOf(row) === groupOf(me)));
  const nothing = { siblings, previous_group: null, next_group: null, earlier: null, later: null };
  if (me.step === null || isAlone(me)) return nothing;
  const mine = rows.filter((row) => row.project === me.project && row.run === me.run && row.split === me.split && row.step !== null);
  const groups = [...Map.groupBy(mine.filter((row) => !isAlone(row)), groupOf).values()].map((group) => sorted(group, ["up", (row) => row.id])[0] ?? me);
  const unnamed = (row: RolloutRow, name: "dataset" | "environment"): string | null => (row.group === null ? row[name] : null);
  const way = sorted(groups, ["up", (row) => row.step], ["up", (row) => row.group ?? row.task], ["up", (row) => unnamed(row, "dataset")], ["up", (row) => unnamed(row, "environment")], ["up", (row) => row.launch], ["up", (row) => Number(row.group === null)]);
  const at = way.findIndex((row) => groupOf(row) === groupOf(me));
  const there = mine.filter((row) => me.task !== null && row.task === me.task && row.dataset === me.dataset && row.step !== me.step);
  const nearest = (side: RolloutRow[], far: "up" | "down"): string | null =>
    sorted(side, [far, (row) => row.step], ["up", (row) => Number(row.index !== me.index)], ["up", (row) => row.index], ["up", (row) => row.attempt], ["up", (row) => row.id])[0]?.id ?? null;
  return {
    siblings,
    previous_group: way[at - 1]?.id ?? null,
    next_group: way[at + 1]?.id ?? null,
    earlier: nearest(there.filter((row) => (row.step ?? 0) < (me.step ?? 0)), "down"),
    later: nearest(there.filter((row) => (row.step ?? 0) > (me.step ?? 0)), "up"),
  };
}

/** Every rollout of a task, by run, split, step and index; of any dataset, if it is not told which. */
export const historyOf = (rows: RolloutRow[], task: string, dataset: string | null): RolloutRow[] =>
  sorter("run,split,step,index")(rows.filter((row) => row.task === task && (dataset === null || row.dataset === dataset)));
