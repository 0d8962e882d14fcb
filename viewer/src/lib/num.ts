/** Numbers as people read them. A missing one is null and never becomes zero. */
import type { Num } from "../api/types";

/** What stands where nothing is known. */
export const MISSING = "–";

/** A rollout's place in its group: `#5`, and which try it was if there were several. */
export function placeOf(row: { index: number | null; attempt: number | null }): string {
  return `#${row.index ?? "–"}${row.attempt ? ` try ${row.attempt + 1}` : ""}`;
}

/** The finite number, or null (missing, NaN, infinities). */
export function finite(value: Num | undefined): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

/** A value such as a reward: at most three decimals, no trailing zeros, a true minus. */
export function value(x: Num | undefined, digits = 3): string {
  if (x === null || x === undefined) return MISSING;
  if (typeof x === "string") return x.replace("Infinity", "∞").replace("-", "−");
  if (Number.isInteger(x) && Math.abs(x) < 1e6) return minus(String(x));
  const size = Math.abs(x);
  if (size !== 0 && (size >= 1e6 || size < 10 ** -digits)) return minus(x.toExponential(1));
  const text = x.toFixed(digits);
  return minus(text.includes(".") ? text.replace(/\.?0+$/, "") : text);
}

/** The same with a sign before it. */
export function signed(x: Num | undefined, digits = 2): string {
  const n = finite(x);
  return n !== null && n > 0 ? `+${value(n, digits)}` : value(x, digits);
}

const COUNT = new Intl.NumberFormat("en-US");

/** 1,204 */
export function count(n: number | null | undefined): string {
  return n === null || n === undefined ? MISSING : COUNT.format(n);
}

/** 1 rollout, 2,000 rollouts. */
export function counted(n: number, what: string): string {
  return `${count(n)} ${what}${n === 1 ? "" : "s"}`;
}

/** 1.2k, 3.4M: for narrow places. */
export function short(n: number | null | undefined): string {
  if (n === null || n === undefined) return MISSING;
  if (n < 1000) return String(n);
  if (n < 1e6) return `${trim(n / 1e3)}k`;
  return `${trim(n / 1e6)}M`;
}

function trim(n: number): string {
  return (n < 100 ? n.toFixed(1) : n.toFixed(0)).replace(/\.0$/, "");
}

/** 340 ms, 2.1 s, 4 m 02 s */
export function seconds(s: Num | undefined): string {
  const n = finite(s);
  if (n === null) return MISSING;
  if (n === 0) return "0";
  if (n < 0.001) return `${Math.round(n * 1e6)} µs`;
  if (n < 1) return `${Math.round(n * 1000)} ms`;
  if (n < 60) return `${n.toFixed(n < 10 ? 2 : 1)} s`;
  if (n < 3600) return `${Math.floor(n / 60)} m ${String(Math.floor(n % 60)).padStart(2, "0")} s`;
  return `${Math.floor(n / 3600)} h ${String(Math.floor((n % 3600) / 60)).padStart(2, "0")} m`;
}

/** 2026-11-15 14:03:22, in the reader's zone. */
export function time(unix: number | null | undefined): string {
  if (unix === null || unix === undefined) return MISSING;
  const d = new Date(unix * 1000);
  const two = (n: number): string => String(n).padStart(2, "0");
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

/** just now, 5 min ago, 3 h ago, 2 d ago */
export function ago(unix: number | null | undefined, now = Date.now() / 1000): string {
  if (unix === null || unix === undefined) return MISSING;
  const s = now - unix;
  if (s < 60) return "just now";
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ago`;
  return `${Math.floor(s / 86400)} d ago`;
}

/** 37 % */
export function percent(part: number, whole: number): string {
  if (whole === 0) return MISSING;
  const p = (100 * part) / whole;
  return `${p > 0 && p < 1 ? p.toFixed(1) : Math.round(p)} %`;
}

/** A rate, 0 to 1, as a share: 37 % */
export const rate = (x: Num | undefined): string => (finite(x) === null ? MISSING : `${Math.round((finite(x) ?? 0) * 100)} %`);

/** How much one rate lies above another: +25 pp */
export const points = (x: Num | undefined, sign = true): string => {
  const n = finite(x);
  return n === null ? MISSING : `${sign && n > 0 ? "+" : ""}${value(Math.round(n * 100))} pp`;
};

function minus(text: string): string {
  return text.replace("-", "−");
}
