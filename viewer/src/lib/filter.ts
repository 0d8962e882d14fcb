/** The part of the query language that a bundle's page can answer by itself, over thin rows.
 *
 * `key:value`, lists, ranges and comparisons, `none`, negation, OR and parentheses are the same
 * as everywhere. Text terms were looked for before (`searcher.ts`): here is only who has them.
 * What it cannot answer it refuses by name. */
import { Refused } from "../api/client";
import type { Row } from "../api/types";
import { terms } from "./query";
import { isText } from "./whole";

type Test = (row: Row) => boolean;
/** For each text term the ids of the rollouts it was found in. */
export type Hits = Map<string, Set<string>>;

const LISTS: Record<string, keyof Row> = { tool: "tools", tools: "tools", label: "labels", labels: "labels", flag: "flags", flags: "flags" };
const ALIASES: Record<string, string> = { sample_index: "task", rollout_n: "index", experiment_name: "run", uid: "group", score: "reward", env: "environment", status: "fate" };

export function matcher(q: string, hits: Hits = new Map()): Test {
  const any = split(q).map((part) => {
    const tests = terms(part).filter((piece) => piece !== "AND").map((piece) => one(piece, hits));
    return (row: Row): boolean => tests.every((test) => test(row));
  });
  return (row) => any.length === 0 || any.some((test) => test(row));
}

/** The parts between ORs at the top level. */
function split(q: string): string[] {
  const parts: string[][] = [[]];
  for (const piece of terms(q)) {
    if (piece === "OR") parts.push([]);
    else parts.at(-1)?.push(piece);
  }
  return parts.map((part) => part.join(" "));
}

function one(piece: string, hits: Hits): Test {
  if (piece.startsWith("(")) return matcher(piece.slice(1, -1), hits);
  if (piece.startsWith("-") && piece.length > 1) {
    const test = one(piece.slice(1), hits);
    return (row) => !test(row);
  }
  if (isText(piece)) return (row) => hits.get(piece)?.has(row.id) ?? false;
  const keyed = /^([A-Za-z_][\w.]*):([\s\S]*)$/u.exec(piece);
  if (!keyed) return () => false;
  const name = ALIASES[keyed[1] ?? ""] ?? keyed[1] ?? "";
  const value = keyed[2] ?? "";
  if (name === "has") return (row) => !missing(valueOf(row, value));
  const values = /^["/]/.test(value) ? [value] : value.split(",");
  if (name in LISTS) {
    const listed = (row: Row): string[] => row[LISTS[name] as keyof Row] as string[];
    return (row) => values.some((v) => (v === "none" ? listed(row).length === 0 : listed(row).some((entry) => same(entry, v))));
  }
  if (!(name in FIELDS) && !name.startsWith("rewards.")) {
    throw new Refused(400, { error: `this bundle cannot ask for "${name}"`, start: 0, end: piece.length, suggestions: [] });
  }
  return (row) => values.some((v) => holds(valueOf(row, name), v));
}

const FIELDS: Record<string, true> = Object.fromEntries(
  "id project run step trained_step split dataset task group index attempt reward advantage stop_reason truncated fate fate_reason error_kind error_type time duration policy_version environment open superseded messages turns prompt_tokens response_tokens version_min version_max".split(" ").map((name) => [name, true as const]),
);

function valueOf(row: Row, name: string): unknown {
  if (name.startsWith("rewards.")) return row.rewards[name.slice(8)] ?? null;
  return row[name as keyof Row];
}

const missing = (x: unknown): boolean => x === null || x === undefined || (Array.isArray(x) && x.length === 0);

function holds(x: unknown, value: string): boolean {
  if (value === "none") return missing(x);
  if (missing(x)) return false;
  if (value === "nan") return x === "NaN";
  const range = /^(-?[\d.eE+-]*?)\.\.(-?[\d.eE+-]*)$/.exec(value);
  if (range && typeof x === "number") return (range[1] === "" || x >= Number(range[1])) && (range[2] === "" || x <= Number(range[2]));
  const compared = /^(<=|>=|<|>)(.+)$/.exec(value);
  if (compared && typeof x === "number") {
    const n = Number(compared[2]);
    return { "<": x < n, "<=": x <= n, ">": x > n, ">=": x >= n }[compared[1] as "<"];
  }
  if (typeof x === "number") return x === Number(value);
  return same(String(x), value);
}

function same(text: string, value: string): boolean {
  if (value.startsWith("/")) return new RegExp(value.slice(1, value.lastIndexOf("/")), value.endsWith("i") ? "iu" : "u").test(text);
  return text === (value.startsWith('"') ? value.slice(1, -1).replaceAll(/\\(.)/gs, "$1") : value);
}

/** Can rows be sorted so here, as the server would? */
export const sorts = (order: string): boolean => !order || order.replace(/^-/, "") in FIELDS;

/** Sorts rows as the server does: missing and NaN last, whichever way; equal ones by id. */
export function sorter(order: string): (rows: Row[]) => Row[] {
  if (!order) return (rows) => rows;
  const down = order.startsWith("-");
  const name = order.replace(/^-/, "");
  return (rows) =>
    rows.toSorted((a, b) => {
      const [x, y] = [sortable(valueOf(a, name)), sortable(valueOf(b, name))];
      if (x === null || y === null) return Number(x === null) - Number(y === null) || compare(a.id, b.id);
      return (down ? compare(y, x) : compare(x, y)) || compare(a.id, b.id);
    });
}

function sortable(x: unknown): number | string | null {
  if (missing(x) || x === "NaN") return null;
  if (x === "Infinity" || x === "-Infinity") return Number(x);
  return typeof x === "number" ? x : String(x);
}

function compare(x: number | string, y: number | string): number {
  return x < y ? -1 : x > y ? 1 : 0;
}
