/** The lines of an outline: what a message is about, and runs of the same as one. */
import type { Outline } from "../api/types";
import { value } from "./num";
import type { Card } from "./tree";

export interface Line {
  /** The first of its cards, by place. */
  at: number;
  /** How many alike follow one another, this one included. */
  count: number;
}

const FEW = 3; // fewer of the same are not folded

/** Runs of the same text are one line each, unless they are open (by the place of their first card). */
export function linesOf(texts: readonly string[], open: ReadonlySet<number>): Line[] {
  const lines: Line[] = [];
  for (let at = 0; at < texts.length; ) {
    let end = at + 1;
    while (end < texts.length && texts[end] === texts[at]) end++;
    const fold = end - at >= FEW && !open.has(at);
    if (fold) lines.push({ at, count: end - at });
    else for (let n = at; n < end; n++) lines.push({ at: n, count: 1 });
    at = end;
  }
  return lines;
}

/** What a card is about: calls with their first argument, or how its text begins. */
export function titleOf(outline: Outline, { n }: Card): string {
  const tools = outline.tools[n] ?? [];
  const calls = tools.map((tool, i) => `ƒ ${tool} ${outline.calls[n]?.[i] ?? ""}`.trimEnd());
  return calls.join(", ") || outline.preview[n] || (outline.role[n] ?? "");
}

export interface Marks {
  failed: boolean;
  thinks: boolean;
  reward: string | null;
}

export function marksOf(outline: Outline, { n, results }: Card): Marks {
  const reward = outline.reward[n] ?? null;
  return { failed: [n, ...results].some((m) => outline.failed[m]), thinks: outline.thinks[n] ?? false, reward: reward === null ? null : value(reward) };
}
