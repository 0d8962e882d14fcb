/** Colours of values. The hues are in `app.css`; here is only how much of which. */
import type { Num } from "../api/types";
import { finite } from "./num";

/** Where a reward stands between the lowest and the highest in sight, 0 to 1; null: missing. */
export function place(x: Num | undefined, low: number, high: number): number | null {
  const n = finite(x);
  if (n === null) return null;
  if (high <= low) return n > 0 ? 1 : n < 0 ? 0 : 0.5;
  return Math.max(0, Math.min(1, (n - low) / (high - low)));
}

/** A CSS colour for a place between bad (0) and good (1). */
export function rewardColour(at: number | null): string {
  if (at === null) return "var(--missing)";
  const percent = Math.round(Math.abs(at - 0.5) * 200);
  return `color-mix(in oklab, var(${at < 0.5 ? "--bad" : "--good"}) ${percent}%, var(--middle))`;
}

/** The range that colours are spread over: 0 to 1 where the rewards lie in it, else their own. */
export function rewardRange(values: (Num | undefined)[]): [number, number] {
  const known = values.map(finite).filter((n): n is number => n !== null);
  const low = Math.min(0, ...known);
  const high = Math.max(...(known.length ? known : [1]), low < 0 ? -low : 0, known.some((n) => n > 0) ? 0 : 1);
  return [low < 0 ? Math.min(low, -1e-9) : 0, high <= 1 ? 1 : high];
}

export const FATES: Record<string, { mark: string; tone: string }> = {
  generated: { mark: "○", tone: "quiet" },
  scored: { mark: "◐", tone: "quiet" },
  trained: { mark: "●", tone: "good" },
  dropped: { mark: "⊘", tone: "warn" },
  masked: { mark: "◍", tone: "warn" },
  rejected: { mark: "⊗", tone: "warn" },
  failed: { mark: "✕", tone: "bad" },
};

export const fateMark = (fate: string | null): string => (fate ? (FATES[fate]?.mark ?? "◆") : " ");
