/** What a screen shows, asked from Python or from the command line. */
import type { State } from "../state/url";
import { term } from "./query";

/** `id`: the rollout in sight; `compare`: those that are compared, the base first; `dir`: where the
 * store lies, if not where it always does. */
export type Asked = Pick<State, "screen" | "q" | "order" | "id" | "compare" | "task" | "dataset" | "kind" | "across" | "sort" | "base" | "other"> & { dir?: string | null | undefined };

const text = (value: string): string => JSON.stringify(value);
const shell = (value: string): string => `'${value.replaceAll("'", `'\\''`)}'`;
const given = (...args: string[]): string => args.filter(Boolean).join(", ");

/** What a matrix is asked besides its query. */
function matrixOptions({ sort, base, other }: Asked): [string, string][] {
  const pair: [string, string][] = base && other ? [["base", base], ["other", other]] : [];
  return [...pair, ["order", sort || (pair.length ? "-difference" : "-spread")]];
}

/** The same as lines of Python. */
export function asPython(asked: Asked): string {
  const { screen, q, order, id, compare, task, dataset, kind, dir } = asked;
  const store = `rollscope.open(${dir ? text(dir) : ""})`;
  const one = (name: string, call: string): string => `import rollscope\n\n${name} = ${store}.${call}`;
  const filtered = q ? text(q) : "";
  switch (screen) {
    case "group":
      return one("siblings", `group(${text(id)})`);
    case "spans":
      return one("spans", `spans(${text(id)})`);
    case "compare":
      return `import rollscope\nfrom rollscope.checks import align\n\nstore = ${store}\nbase, *others = [store.get(id) for id in (${compare.map(text).join(", ")},)]\nalignments = [align(base, other) for other in others]`;
    case "task":
      return one("rollouts", `task_history(${given(text(task), dataset === null ? "" : text(dataset))})`);
    case "tasks":
      return one("tasks", `tasks(${given(filtered, kind && `kind=${text(kind)}`)})`);
    case "matrix":
      return one("matrix", `matrix(${given(text(q), text(asked.across), ...matrixOptions(asked).map(([name, value]) => `${name}=${text(value)}`))})`);
    case "fate":
      return `import rollscope\n\nstore = ${store}\nstages = store.funnel(${filtered})\nends = store.fates(${filtered})`;
    case "failures":
      return one("failures", `failures(${filtered})`);
    case "findings":
      return `import rollscope\nfrom rollscope.checks import counts\n\nchecks = counts(${given(store, filtered)})`;
    default:
      return one("rollouts", `rollouts(${given(text(q), order && `order=${text(order)}`)})`);
  }
}

/** The same as a command. */
export function asCommand(asked: Asked): string {
  const { screen, q, order, id, compare, task, dataset, dir } = asked;
  const line = (name: string, ...words: string[]): string => ["rollscope", name, ...words, dir ? `--dir=${shell(dir)}` : ""].filter(Boolean).join(" ");
  const filtered = q ? shell(q) : "";
  switch (screen) {
    case "group":
      return line("group", shell(id));
    case "spans":
      return line("show", shell(id), "--full");
    case "compare":
      return compare.slice(1).map((other) => line("diff", shell(compare[0] ?? ""), shell(other))).join("\n");
    case "task":
      return line("task", shell(task), dataset === null ? "" : shell(term("dataset", dataset)));
    case "tasks":
      return line("tasks", filtered);
    case "matrix": {
      const { base, other, order } = Object.fromEntries(matrixOptions(asked));
      const pair = base && other ? ["--compare", shell(base), shell(other)] : [];
      return line("tasks", filtered, asked.across && `--across=${shell(asked.across)}`, ...pair, order ? `--order=${shell(order)}` : "");
    }
    case "fate":
    case "failures":
    case "findings":
      return line(screen, filtered);
    default:
      return line("ls", shell(q), order && `--order=${shell(order)}`);
  }
}
