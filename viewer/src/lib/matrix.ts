/** Tasks against the values of a key, counted over a bundle's rows: the rules of `query/matrix.py`. */
import type { Matrix, MatrixColumn, RolloutRow } from "../api/types";
import { BY_KEY } from "./columns";
import { greatest, known, least, mean, sorted } from "./counting";
import { compare, valueOf } from "./filter";
import { exactly, term } from "./query";
import { isScored, rateOf } from "./solved";

const COLUMNS = 64;
const VALUES = 24; // a number with more of them becomes ranges
const ROWS = 100; // of one answer

type Value = string | number | boolean | null;
interface Column {
  project: string | null;
  value: Value;
  rows: RolloutRow[];
}

export interface AskedMatrix {
  across: string;
  order: string;
  base: string;
  other: string;
  at: number;
}

export function matrixOf(all: RolloutRow[], { across, order, base, other, at }: AskedMatrix): Matrix {
  const rows = all.filter((row) => row.task !== null);
  const key = across || usual(rows);
  const { columns, width } = columnsOf(rows, key);
  const most = new Set(sorted(columns, ["down", (column) => column.rows.length]).slice(0, COLUMNS));
  const kept = columns.filter((column) => most.has(column));
  const several = new Set(columns.map((column) => column.project)).size > 1;
  const told = kept.map((column) => tell(key, column, width, several));
  const pair = [base, other].map((q) => (q ? told.findIndex((column) => column.q === q) : -1));
  const where = new Map(columns.flatMap((column) => column.rows.map((row) => [row.id, kept.indexOf(column)] as const)));
  const tasks = [...Map.groupBy(rows, (row) => JSON.stringify([row.dataset, row.task])).values()].map((mine) => {
    const cells = [...Map.groupBy(mine, (row) => where.get(row.id) ?? -1)].map(([column, list]) => ({ column, ...numbers(list) })).toSorted((a, b) => a.column - b.column);
    const rates = known(cells.map((cell) => cell.rate));
    const [a = null, b = null] = pair.map((place) => (place < 0 ? null : (cells.find((cell) => cell.column === place)?.rate ?? null)));
    return {
      dataset: mine[0]?.dataset ?? null,
      task: mine[0]?.task ?? "",
      rollouts: mine.length,
      rate: rateOf(mine),
      spread: rates.length > 1 ? (greatest(rates) ?? 0) - (least(rates) ?? 0) : null,
      difference: a === null || b === null ? null : (b as number) - (a as number),
      cells: cells.filter((cell) => cell.column >= 0),
    };
  });
  const name = order.replace(/^-/u, "") as "task" | "rollouts" | "rate" | "spread" | "difference";
  const chosen = sorted(tasks, [order.startsWith("-") ? "down" : "up", (task) => task[name]], ["up", (task) => task.task], ["up", (task) => task.dataset]);
  return { across: key, columns: told, left_out: columns.length - kept.length, tasks: chosen.slice(at, at + ROWS), count: tasks.length };
}

const numbers = (rows: RolloutRow[]): Pick<MatrixColumn, "rollouts" | "scored" | "rate" | "reward"> => ({
  rollouts: rows.length,
  scored: rows.filter((row) => isScored(row.reward)).length,
  rate: rateOf(rows),
  reward: mean(known(rows.map((row) => row.reward))),
});

function usual(rows: RolloutRow[]): string {
  const runs = new Set(rows.map((row) => JSON.stringify([row.project, row.run])));
  return runs.size > 1 ? "run" : new Set(rows.map((row) => row.step).filter((step) => step !== null)).size > 1 ? "step" : "split";
}

function columnsOf(rows: RolloutRow[], key: string): { columns: Column[]; width: number } {
  const of = valueOf(key) as (row: RolloutRow) => Value | undefined;
  const isNumber = (BY_KEY.get(key)?.kind ?? "number") === "number" || key.startsWith("rewards.");
  const projectOf = (row: RolloutRow): string | null => (key === "run" ? row.project : null);
  const group = (value: (row: RolloutRow) => Value): Column[] =>
    [...Map.groupBy(rows, (row) => JSON.stringify([projectOf(row), typeof value(row), String(value(row))])).values()].flatMap((mine) => (mine[0] ? [{ project: projectOf(mine[0]), value: value(mine[0]), rows: mine }] : []));
  const plain = (row: RolloutRow): Value => {
    const value = of(row) ?? null;
    return value !== null && isNumber ? Number(value) : value; // "NaN" is one, too
  };
  const values = known([...new Set(rows.map(plain))].map((value) => (typeof value === "number" ? value : null)));
  const whole = BY_KEY.get(key)?.whole && values.length > VALUES;
  const width = whole ? widthOf((greatest(values) ?? 0) - (least(values) ?? 0) + 1) : 0;
  const first = (row: RolloutRow): Value => {
    const value = plain(row);
    return typeof value === "number" ? Math.floor(value / width) * width : value;
  };
  return { columns: group(whole ? first : plain).toSorted(inOrder), width };
}

/** 1, 2 or 5, or that times a power of ten: at most twenty ranges span so many numbers. */
function widthOf(span: number): number {
  let width = 1;
  while (width < Math.ceil(span / (VALUES - 4))) width = String(width).startsWith("2") ? (width * 5) / 2 : width * 2;
  return width;
}

/** By project, then by value: numbers in texts count as numbers, and no value comes last. */
function inOrder(a: Column, b: Column): number {
  const rank = ({ value }: Column): number => (value === null ? 2 : Number.isNaN(value) ? 1 : 0);
  return compare(a.project ?? "", b.project ?? "") || rank(a) - rank(b) || (a.value === null || b.value === null ? 0 : natural(a.value, b.value));
}

function natural(a: Exclude<Value, null>, b: Exclude<Value, null>): number {
  if (typeof a !== "string" || typeof b !== "string") return compare(Number(a), Number(b));
  const [x, y] = [a.split(/([0-9]+)/u), b.split(/([0-9]+)/u)];
  for (let i = 0; i < Math.min(x.length, y.length); i++) {
    const [left = "", right = ""] = [x[i], y[i]];
    const by = i % 2 ? Number(left) - Number(right) : compare(left, right);
    if (by) return by;
  }
  return x.length - y.length;
}

function tell(key: string, { project, value, rows }: Column, width: number, several: boolean): MatrixColumn {
  const [name, q] = nameOf(key, value, width);
  return { name, project, q: several ? `${q} ${exactly("project", project)}` : q, ...numbers(rows) };
}

function nameOf(key: string, value: Value, width: number): [string | null, string] {
  if (value === null) return [null, term(key, null)];
  if (typeof value === "string") return [value, exactly(key, value)];
  const name = width ? `${String(value)}..${Number(value) + width - 1}` : String(value).replace("Infinity", "inf").toLowerCase();
  return [name, `${key}:${name}`];
}
