/** The part of the query language that a bundle's page can answer by itself, over thin rows.
 *
 * `key:value`, lists, ranges and comparisons, `none`, negation, OR and parentheses are the same
 * as everywhere. Text terms were looked for before (`searcher.ts`): here is only who has them.
 * What it cannot answer it refuses by name. */
import { Refused } from "../api/client";
import { ALIASES, type Column } from "../api/columns";
import type { Row } from "../api/types";
import { BY_KEY, isScalar } from "./columns";
import { terms } from "./query";
import { isText } from "./whole";

type Test = (row: Row) => boolean;
/** For each text term the ids of the rollouts it was found in. */
export type Hits = Map<string, Set<string>>;

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
  const value = keyed[2] ?? "";
  const isHas = keyed[1] === "has";
  const { of, kind } = asked(isHas ? value : (keyed[1] ?? ""), piece);
  if (isHas) return (row) => !missing(of(row));
  const values = /^["/]/.test(value) ? [value] : value.split(",");
  if (kind === "present" && values.some((v) => v !== "none")) throw refusal(keyed[1] ?? "", piece);
  return (row) => values.some((v) => holds(of(row), v, kind));
}

/** What a key asks for, and how its values are compared. */
interface Asked {
  of: (row: Row) => unknown;
  /** `present`: only whether there is one can be told. */
  kind: Column["kind"] | "present";
}

/** Keys that are made of several columns. */
const MADE: Record<string, Asked> = {
  error: { of: (row) => row.error_kind ?? row.error_type, kind: "present" },
  staleness: { of: (row) => (row.trained_step === null || row.step === null ? null : row.trained_step - row.step), kind: "number" },
  validate: { of: (row) => (row.split === null ? null : row.split === "eval"), kind: "bool" },
};

function asked(key: string, piece: string): Asked {
  const name = ALIASES[key] ?? key;
  const column = BY_KEY.get(name);
  if (column && (isScalar(column) || column.kind === "member")) return { of: (row) => row[column.name], kind: column.kind };
  if (name.startsWith("rewards.")) return { of: (row) => row.rewards[name.slice(8)] ?? null, kind: "number" };
  const made = MADE[name];
  if (!made) throw refusal(key, piece);
  return made;
}

const refusal = (key: string, piece: string): Refused =>
  new Refused(400, { error: `this bundle cannot ask for "${key}"`, start: 0, end: piece.length, suggestions: [] });

const missing = (x: unknown): boolean => x === null || x === undefined || (Array.isArray(x) && x.length === 0);

function holds(x: unknown, value: string, kind: Asked["kind"]): boolean {
  if (value === "none") return missing(x);
  if (missing(x)) return false;
  if (Array.isArray(x)) return x.some((entry) => same(String(entry), value));
  if (kind === "contains" && !value.startsWith("/")) {
    const text = String(x);
    return value.startsWith('"') ? text.includes(unquoted(value)) : text.toLowerCase().includes(value.toLowerCase());
  }
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
  return text === (value.startsWith('"') ? unquoted(value) : value);
}

const unquoted = (value: string): string => value.slice(1, -1).replaceAll(/\\(.)/gs, "$1");

/** Can rows be sorted so here, as the server would? */
export function sorts(order: string): boolean {
  const column = BY_KEY.get(order.replace(/^-/, ""));
  return !order || (column !== undefined && isScalar(column));
}

/** Sorts rows as the server does: missing and NaN last, whichever way; equal ones by id. */
export function sorter(order: string): (rows: Row[]) => Row[] {
  if (!order) return (rows) => rows;
  const down = order.startsWith("-");
  const { of } = asked(order.replace(/^-/, ""), order);
  return (rows) =>
    rows.toSorted((a, b) => {
      const [x, y] = [sortable(of(a)), sortable(of(b))];
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
