/** A rollout is a tree of messages. The page shows one branch of it, in cards. */
import type { Body, Outline } from "../api/types";

/** Number of the message that each one follows, or -1 at the beginning of a conversation. */
function children(outline: Outline): Map<number, number[]> {
  const map = new Map<number, number[]>();
  outline.parent.forEach((parent, n) => {
    const p = parent ?? -1;
    const list = map.get(p);
    if (list) list.push(n);
    else map.set(p, [n]);
  });
  return map;
}

/** The last message of every branch, in order. */
export function leaves(outline: Outline): number[] {
  const inner = new Set(outline.parent.filter((p): p is number => p !== null && p >= 0));
  return outline.role.map((_, n) => n).filter((n) => !inner.has(n));
}

/** The branch that ends in `leaf`, from its root; without one, the branch that says most. */
export function branch(outline: Outline, leaf: number | null): number[] {
  const ends = leaves(outline);
  if (ends.length === 0) return [];
  let end = leaf !== null && leaf < outline.role.length ? leaf : mainLeaf(outline, ends);
  const path: number[] = [];
  while (end >= 0) {
    path.push(end);
    const parent = outline.parent[end];
    end = parent === null || parent === undefined || parent >= end ? -1 : parent;
  }
  return path.reverse();
}

function mainLeaf(outline: Outline, ends: number[]): number {
  if (ends.length === 1) return ends[0] ?? 0;
  const depth = new Array<number>(outline.role.length).fill(0);
  outline.parent.forEach((p, n) => (depth[n] = p !== null && p >= 0 && p < n ? (depth[p] ?? 0) + 1 : 0));
  return ends.reduce((best, n) => ((depth[n] ?? 0) > (depth[best] ?? 0) ? n : best), ends[0] ?? 0);
}

export interface Card {
  /** The message that the card shows. */
  n: number;
  /** Tool results that follow it and are shown inside it, in order. */
  results: number[];
  /** Is it before the policy's first word? */
  prompt: boolean;
  /** Other messages that follow the same parent: branches that part here. */
  forks: number[];
}

/** A branch in cards: what tools answered stands in the card of the message that called them. */
export function cards(outline: Outline, path: number[]): Card[] {
  const out: Card[] = [];
  const following = children(outline);
  const first = path.findIndex((n) => outline.sampled[n] === true || (outline.sampled[n] === null && outline.role[n] === "assistant"));
  path.forEach((n, at) => {
    const last = out.at(-1);
    if (last && outline.role[n] === "tool" && (outline.tools[last.n]?.length ?? 0) > last.results.length) {
      last.results.push(n);
      return;
    }
    const forks = (following.get(outline.parent[n] ?? -1) ?? []).filter((other) => other !== n);
    out.push({ n, results: [], prompt: first < 0 || at < first, forks: (outline.parent[n] ?? -1) >= 0 ? forks : [] });
  });
  return out;
}

/** The leaf of the deepest branch that goes through `n`. */
export function leafThrough(outline: Outline, n: number): number {
  const following = children(outline);
  let at = n;
  for (;;) {
    const next = following.get(at);
    if (!next?.length) return at;
    at = next.at(-1) ?? at;
  }
}

/** The result that answers a call: by id where there is one, else by order. */
export function resultOf(results: Body[], callId: string | null, place: number): Body | undefined {
  return (callId !== null ? results.find((r) => r.tool_call_id === callId) : undefined) ?? (callId === null || !results.some((r) => r.tool_call_id !== null) ? results[place] : undefined);
}
