/** The query language over the rows of a bundle, which has no server: the rules of
 * `query/compile.py` and `query/order.py`.
 *
 * Text terms were looked for before (`searcher.ts`); here it is only known who has them. What rows
 * cannot tell is refused by name. */
import { type Column } from "../api/columns";
import type { RolloutRow } from "../api/types";
import { BY_KEY } from "./columns";
import { find, roleOf, unknown, type Asked } from "./keys";
import { keyPieces, parse, refuse, type Node, type Term, type Value } from "./syntax";
import { interval, isNone, meaning, contains, number } from "./values";
import { idOf, type TextTerm } from "./whole";

/** A row of a bundle. Rows that a server sends lack the error's text. */
export type Rowed = RolloutRow & { error_text?: string | null };
type Test = (row: Rowed) => boolean;

/** For each text term, by `idOf`, the ids of the rollouts it was found in. */
export type Hits = Map<string, Set<string>>;

/** Tells which rows a query finds. Throws `Refused` if it is wrong, or asks what rows cannot tell. */
export function matcher(q: string, hits: Hits = new Map()): Test {
  const check = (pieces: string[], no: (what: string) => Error): void => {
    if (!find(pieces)) throw no(unknown(pieces.join(".")));
  };
  return compiled(parse(q, check), q, hits);
}

function compiled(node: Node, q: string, hits: Hits): Test {
  if (node.is === "not") {
    const part = compiled(node.part, q, hits);
    return (row) => !part(row);
  }
  if (node.is === "term") return term(node, q, hits);
  const parts = node.parts.map((part) => compiled(part, q, hits));
  return node.is === "and" ? (row) => parts.every((part) => part(row)) : (row) => parts.some((part) => part(row));
}

function term({ key, values }: Term, q: string, hits: Hits): Test {
  const asked = key && find(key);
  const any = values.map((value) => {
    const no = (what: string): Error => refuse(what, q, value.start, value.end);
    if (!asked) return said({ role: null, value }, hits, no);
    if (asked.kind !== "any") return isNone(value) ? not(present(asked, hits, no)) : test(asked, value, hits, no);
    const named = find(keyPieces(value.text) ?? []);
    if (value.text === "rewards") return (row: Rowed) => Object.keys(row.rewards).length > 0;
    if (["meta", "sampling", "reference", "reward_texts"].includes(value.text)) throw no(cannot(value.text));
    if (!named || named.kind === "any") throw no(unknown(value.text));
    return present(named, hits, no);
  });
  return (row) => any.some((one) => one(row));
}

const not = (test: Test): Test => (row) => !test(row);
const cannot = (name: string): string => `a bundle cannot be asked for ${name}`;

function said(term: TextTerm, hits: Hits, no: (what: string) => Error): Test {
  if (term.value) contains(term.value, no); // refuses a pattern that cannot be read
  const id = idOf(term);
  return (row) => hits.get(id)?.has(row.id) ?? false;
}

function present(asked: Asked, hits: Hits, no: (what: string) => Error): Test {
  if (asked.kind === "text") return said({ role: roleOf(asked), value: null }, hits, no);
  const of = getter(asked, no);
  return (row) => isKnown(of(row));
}

function test(asked: Asked, value: Value, hits: Hits, no: (what: string) => Error): Test {
  if (asked.kind === "text") return said({ role: roleOf(asked), value }, hits, no);
  if (asked.key === "version") return versions(asked, value, no);
  if (asked.key === "error") {
    const found = contains(value, no);
    return (row) => errors(row).some(found);
  }
  const [of, holds] = [getter(asked, no), meaning(asked, value, no)];
  return (row) => {
    const x = of(row);
    return isKnown(x) && holds(x);
  };
}

const isKnown = (x: unknown): boolean => x !== null && x !== undefined && !(Array.isArray(x) && x.length === 0);
const errors = (row: Rowed): string[] => [row.error_kind, row.error_type, row.error_text].filter((text) => typeof text === "string");

/** Do the versions that wrote it overlap the interval? They are whole numbers. */
function versions(asked: Asked, value: Value, no: (what: string) => Error): Test {
  meaning(asked, value, no);
  const found = interval(value.text, false);
  if (!found) return () => false;
  const { low, high, lowIn, highIn } = found;
  const least = low === null ? -Infinity : Math.ceil(low) + Number(Number.isInteger(low) && !lowIn);
  const most = high === null ? Infinity : Math.floor(high) - Number(Number.isInteger(high) && !highIn);
  if (least > most || least === Infinity || most === -Infinity) return () => false;
  return (row) => {
    const [first, last] = [row.version_min ?? row.policy_version, row.version_max ?? row.policy_version];
    return (low === null || (last !== null && last >= least)) && (high === null || (first !== null && first <= most));
  };
}

/** Keys that are made of several columns. */
const MADE: Record<string, (row: Rowed) => unknown> = {
  staleness: (row) => (row.trained_step === null || row.step === null ? null : row.trained_step - row.step),
  validate: (row) => (row.split === null ? null : row.split === "eval"),
  version: (row) => row.version_min ?? row.policy_version,
  error: errors,
  error_text: (row) => row.error_text,
};

/** What tells the value of a key. */
function getter({ key, path, name }: Asked, no: (what: string) => Error): (row: Rowed) => unknown {
  const column: Column<keyof RolloutRow> | undefined = BY_KEY.get(key);
  if (column) return (row) => row[column.name];
  if (key === "rewards.*") return ({ rewards }) => (Object.hasOwn(rewards, path[0] ?? "") ? rewards[path[0] ?? ""] : null);
  const made = Object.hasOwn(MADE, key) ? MADE[key] : undefined;
  if (!made) throw no(cannot(name));
  return made;
}

/** What tells the value of a key such as `reward` or `rewards.correct`; none if rows do not have it. */
export function valueOf(key: string): (row: Rowed) => unknown {
  const asked = find(keyPieces(key) ?? []);
  return asked ? getter(asked, (what) => new Error(what)) : () => null;
}

/** Can rows be sorted so here, as the server would? */
export function sorts(order: string): boolean {
  try {
    sorter(order);
    return true;
  } catch {
    return false;
  }
}

/** Sorts rows as the server does: missing and NaN last, whichever way; equal ones by id. */
export function sorter(order: string): (rows: Rowed[]) => Rowed[] {
  const names = order.split(",").map((name) => name.trim()).filter(Boolean);
  if (!names.length) return (rows) => rows;
  const columns = names.map((name) => {
    const bare = name.replace(/^-/u, "");
    const at = order.indexOf(bare);
    const no = (what: string): Error => refuse(what, order, at, at + bare.length);
    const asked = find(keyPieces(bare) ?? []);
    if (!asked) throw no(unknown(bare));
    if (["text", "any", "member"].includes(asked.kind) || asked.key === "version" || asked.key === "error") throw no(`rollouts cannot be sorted by ${bare}`);
    return { of: getter(asked, no), isNumber: asked.kind === "number" || asked.kind === "time", down: bare !== name };
  });
  return (rows) =>
    rows.toSorted((a, b) => {
      for (const { of, isNumber, down } of columns) {
        const [x, y] = [of(a), of(b)].map((value) => sortable(value, isNumber));
        const less = x === null || y === null ? Number(x === null) - Number(y === null) : compare(x ?? "", y ?? "") * (down ? -1 : 1);
        if (less) return less;
      }
      return compare(a.id, b.id);
    });
}

function sortable(x: unknown, isNumber: boolean): number | string | null {
  if (!isKnown(x)) return null;
  if (typeof x === "string" && !isNumber) return x;
  const n = number(x);
  return Number.isNaN(n) ? null : n;
}

/** As the engine sorts: numbers by size, texts by their code points. */
export function compare(x: number | string, y: number | string): number {
  if (typeof x === "number" || typeof y === "number") return x < y ? -1 : x > y ? 1 : 0;
  let at = 0;
  while (at < x.length && x[at] === y[at]) at++;
  return rank(x, at) - rank(y, at);
}

/** Of UTF-16's units, those that make up the higher code points stand before the last of the others. */
function rank(text: string, at: number): number {
  if (at >= text.length) return -1;
  const unit = text.charCodeAt(at);
  return unit < 0xd800 ? unit : unit < 0xe000 ? unit + 0x2000 : unit - 0x800;
}
