/** Everything the page shows is in its address: this is the one place that reads and writes it. */
import { ROW } from "../api/columns";
import type { RolloutRow, ShownFinding } from "../api/types";
import { keyPieces } from "../lib/syntax";

export const SCREENS = ["read", "table", "group", "compare", "tasks", "matrix", "task", "fate", "failures", "findings", "spans"] as const;
export type Screen = (typeof SCREENS)[number];

export const VIEWS = ["text", "raw", "tokens"] as const;
export type View = (typeof VIEWS)[number];

export const RIBBONS = ["", "tall", "folded"] as const;
export type Ribbon = (typeof RIBBONS)[number];

export interface State {
  screen: Screen;
  q: string;
  order: string;
  /** The rollout in sight. */
  id: string;
  /** The message in sight. */
  m: number | null;
  /** What is marked in that message: characters (`120-180`) or tokens (`t4-9`), or the place alone (`0`). */
  mark: string;
  view: View;
  stream: string;
  /** Last message of the branch in sight. */
  leaf: number | null;
  compare: string[];
  task: string;
  dataset: string | null;
  kind: string;
  tasksOrder: string;
  /** The key whose values are the columns of the matrix; "": runs if there are several, else steps. */
  across: string;
  /** What the matrix is sorted by; "": the difference of two columns if they are chosen, else the spread of all. */
  sort: string;
  /** Two columns of the matrix that are held against each other, by the terms that find them. */
  base: string;
  other: string;
  find: string;
  cols: Choice[];
  metric: string;
  /** How tall the ribbon is. */
  ribbon: Ribbon;
  /** Steps that its lines are means of; null: by how many there are. */
  smooth: number | null;
  /** What is folded and what is not, by place (`think:4`), where it is not as always. */
  folds: Record<string, boolean>;
  /** Is the outline shown? */
  outline: boolean;
  /** Are the list and the facets shown? */
  list: boolean;
  /** Are the facts shown? */
  facts: boolean;
  /** The span in sight: its place among those of the rollout, "" for the first, or "none". */
  span: string;
  /** Comparing: equal messages, too. */
  all: boolean;
  /** Comparing: the row in sight; null: where they part. */
  at: number | null;
}

/** A column of rows, or a key of the user's own. */
export type Choice = Field | NamedColumn;
export type Field = Exclude<keyof RolloutRow, "id" | "flags">;
export type NamedColumn = `rewards.${string}` | `meta.${string}`;
export const isNamed = (name: string): name is NamedColumn => /^(rewards|meta)\../.test(name) && keyPieces(name) !== null;

/** Columns that the table can show: all that rows have. The id is the link; flags stand with labels. */
export const CHOICES = ROW.map((column) => column.name).filter((name): name is Field => name !== "id" && name !== "flags");
const isColumn = (name: string): name is Choice => isNamed(name) || CHOICES.some((choice) => choice === name);

export const COLUMNS: Choice[] = ["reward", "advantage", "step", "index", "task", "fate", "stop_reason", "response_tokens", "turns", "preview"];

export const EMPTY: State = {
  screen: "read",
  q: "",
  order: "",
  id: "",
  m: null,
  mark: "",
  view: "text",
  stream: "",
  leaf: null,
  compare: [],
  task: "",
  dataset: null,
  kind: "",
  tasksOrder: "-flips",
  across: "",
  sort: "",
  base: "",
  other: "",
  find: "",
  cols: COLUMNS,
  metric: "",
  ribbon: "",
  smooth: null,
  folds: {},
  outline: false,
  list: true,
  facts: true,
  span: "",
  all: false,
  at: null,
};

const whole = (text: string | null): number | null => (text !== null && /^\d+$/.test(text) ? Number(text) : null);
const among = <T extends string>(known: readonly T[], text: string | null, other: T): T =>
  known.find((k) => k === text) ?? other;
const list = (text: string | null): string[] => (text ? text.split(",").filter(Boolean) : []);

/** Names with commas between; one in quotes belongs to a name. */
export const columns = (text: string): Choice[] => [...text.matchAll(/(?:[^,"]|"(?:\\.|[^"\\])*")+/gu)].map(([name]) => name).filter((name) => isColumn(name));

/** `prompt,-think:4`: the prompt is folded, that thinking is not. */
const folds = (text: string | null): Record<string, boolean> =>
  Object.fromEntries(
    list(text)
      .filter((word) => /^-?[a-z]+(:[\w.]+)?$/.test(word))
      .map((word) => (word.startsWith("-") ? [word.slice(1), false] : [word, true])),
  );
const foldWords = (folded: Record<string, boolean>): string =>
  Object.entries(folded)
    .map(([key, is]) => (is ? key : `-${key}`))
    .join(",");

/** What an address says. Unknown words are left out, never an error: links live long. */
export function read(search: string): State {
  const p = new URLSearchParams(search);
  const cols = columns(p.get("cols") ?? "");
  return {
    screen: among(SCREENS, p.get("s"), "read"),
    q: p.get("q") ?? "",
    order: p.get("order") ?? "",
    id: p.get("id") ?? "",
    m: whole(p.get("m")),
    mark: /^t?\d+(-\d+)?$/.exec(p.get("mark") ?? "")?.[0] ?? "",
    view: among(VIEWS, p.get("view"), "text"),
    stream: p.get("stream") ?? "",
    leaf: whole(p.get("leaf")),
    compare: [...new Set(list(p.get("ids")))], // nothing is compared with itself
    task: p.get("task") ?? "",
    dataset: p.get("dataset"),
    kind: p.get("kind") ?? "",
    tasksOrder: p.get("by") ?? EMPTY.tasksOrder,
    across: p.get("across") ?? "",
    sort: /^-?(task|rollouts|rate|spread|difference)$/.exec(p.get("sort") ?? "")?.[0] ?? "",
    base: p.get("base") ?? "",
    other: p.get("other") ?? "",
    find: p.get("find") ?? "",
    cols: cols.length ? cols : COLUMNS,
    metric: p.get("metric") ?? "",
    ribbon: among(RIBBONS, p.get("ribbon"), ""),
    smooth: whole(p.get("smooth")),
    folds: folds(p.get("fold")),
    outline: p.get("outline") === "yes",
    list: p.get("list") !== "no",
    facts: p.get("facts") !== "no",
    span: /^(\d+|none)$/.exec(p.get("span") ?? "")?.[0] ?? "",
    all: p.get("all") === "yes",
    at: whole(p.get("at")),
  };
}

/** The address that says it; what is as always is left out. */
export function write(state: State): string {
  const p = new URLSearchParams();
  const put = (name: string, value: string | number | null, usual: string | number | null): void => {
    if (value !== usual && value !== null) p.set(name, String(value));
  };
  put("s", state.screen, "read");
  put("q", state.q, "");
  put("order", state.order, "");
  put("id", state.id, "");
  put("m", state.m, null);
  put("mark", state.mark, "");
  put("view", state.view, "text");
  put("stream", state.stream, "");
  put("leaf", state.leaf, null);
  put("ids", state.compare.join(","), "");
  put("task", state.task, "");
  put("dataset", state.dataset, null);
  put("kind", state.kind, "");
  put("by", state.tasksOrder, EMPTY.tasksOrder);
  put("across", state.across, "");
  put("sort", state.sort, "");
  put("base", state.base, "");
  put("other", state.other, "");
  put("find", state.find, "");
  put("cols", state.cols.join(","), COLUMNS.join(","));
  put("metric", state.metric, "");
  put("ribbon", state.ribbon, "");
  put("smooth", state.smooth, null);
  put("fold", foldWords(state.folds), "");
  put("outline", state.outline ? "yes" : "", "");
  put("list", state.list ? "" : "no", "");
  put("facts", state.facts ? "" : "no", "");
  put("span", state.span, "");
  put("all", state.all ? "yes" : "", "");
  put("at", state.at, null);
  const text = p.toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
  return text ? `?${text}` : "";
}

/** Where a finding leads to. */
export function whereOf(found: ShownFinding): Partial<State> {
  const { message, start, end, first_token: first, end_token: stop } = found;
  if (message === null) return { screen: "findings" };
  const mark = start !== null ? `${start}-${end ?? start}` : first !== null ? `t${first}-${stop ?? first + 1}` : "0";
  return { screen: "read", m: message, mark };
}
