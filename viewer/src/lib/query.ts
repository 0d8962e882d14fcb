/** Queries as text: adding, replacing and removing terms, as a click does. */
import { KEYS } from "../api/columns";
import { topLevel } from "./syntax";

/** A value as it must be written after a key: `none`, for one, means that there is no value. */
export function quoted(value: string): string {
  return /^[\w.+-]+$/u.test(value) && !/^(none|nan)$|\.\./iu.test(value) ? value : `"${value.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}

/** One piece of a key's name, in quotes where it needs them. */
export const piece = (name: string): string => (/^[^\s:.,()"]+$/u.test(name) ? name : `"${name.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`);

/** A name after the dot of a key: pieces between dots. */
export const named = (name: string): string => name.split(".").map(piece).join(".");

/** `key:value`, or `key:none` when there is no value. */
export function term(key: string, value: string | number | null): string {
  return value === null ? `${key}:none` : `${key}:${quoted(String(value))}`;
}

/** A term that holds for exactly this text, whatever stands in it; `none` where there is none. */
export function exactly(key: string, value: string | null): string {
  if (value === null) return `${key}:none`;
  if (KEYS[key]?.kind === "contains") return `${key}:/^${literally(value)}$/`;
  return /^[A-Za-z_]\w*$/.test(value) && value !== "none" && value !== "nan" ? `${key}:${value}` : `${key}:"${value.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}

/** The pattern that finds this text. */
export const literally = (text: string): string => text.replaceAll(/[^A-Za-z0-9_\x80-\u{10ffff}]/gu, escaped);
const escaped = (char: string): string => (/[ -~]/.test(char) ? `\\${char}` : `\\x{${(char.codePointAt(0) ?? 0).toString(16)}}`);

/** `key:low..high`, whole numbers where both are. */
export function range(key: string, low: number, high: number): string {
  const text = (x: number): string => String(Number(x.toPrecision(6)));
  return `${key}:${text(low)}..${text(high)}`;
}

/** The pieces of a query at its top level; what stands in parentheses is one piece. */
export const terms = topLevel;

/** Of a query, the terms that say which runs it is about. */
export const scopeOf = (q: string): string => terms(q).filter((piece) => /^(run|project|split|dataset|environment|launch):/.test(piece)).join(" ");

/** Which of these runs a query is about, as far as its terms of project and run name them. */
export function runsOf<R extends { project: string; run: string }>(q: string, runs: R[]): R[] {
  const pieces = terms(q).filter((piece) => /^(run|project):[^<>/]+$/u.test(piece));
  if (terms(q).includes("OR")) return runs;
  const tests = pieces.map((piece) => {
    const [key, list] = [piece.startsWith("run:") ? "run" : "project", piece.slice(piece.indexOf(":") + 1)] as const;
    const names = new Set([...list.matchAll(/"((?:\\.|[^"\\])*)"|[^,]+/gu)].map(([bare, inside]) => inside?.replaceAll(/\\(.)/gu, "$1") ?? bare));
    return (run: R): boolean => names.has(run[key]);
  });
  return runs.filter((run) => tests.every((test) => test(run)));
}

/** What names of runs do not share: all of them begin alike more often than not. */
export function ownPart(name: string, names: string[]): string {
  const others = names.filter((other) => other !== name);
  let same = others.length ? name.length : 0;
  for (const other of others) while (!other.startsWith(name.slice(0, same))) same--;
  const cut = name.slice(0, same).search(/[^-_./\s]*$/u);
  return cut > 6 ? `…${name.slice(cut)}` : name;
}

export const has = (q: string, piece: string): boolean => terms(q).includes(piece);

/** Adds the term, or takes it away when it is there. */
export function toggle(q: string, piece: string): string {
  const pieces = terms(q);
  return (pieces.includes(piece) ? pieces.filter((p) => p !== piece) : [...pieces, piece]).join(" ");
}

/** Puts the term in the place of every other one of the same key; null only removes them. */
export function replace(q: string, key: string, piece: string | null): string {
  const kept = terms(q).filter((p) => !p.startsWith(`${key}:`));
  return (piece === null ? kept : [...kept, piece]).join(" ");
}

/** The query, but only of one task. Tasks of several datasets may have the same name. */
export const ofTask = (q: string, { task, dataset }: { task: string; dataset: string | null }): string => both(q, [exactly("task", task), ...(dataset === null ? [] : [exactly("dataset", dataset)])].join(" "));

/** Both must hold. What already begins with the other is not said twice. */
export function both(a: string, b: string): string {
  if (!a.trim() || !b.trim()) return (a + b).trim();
  const wrap = (q: string): string => (terms(q).includes("OR") ? `(${q})` : q);
  const [first, second] = [wrap(a.trim()), b.trim()];
  const pieces = terms(second);
  return terms(first).every((piece, i) => pieces[i] === piece) ? second : `${first} ${wrap(second)}`;
}
