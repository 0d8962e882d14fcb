/** Tokens over text: pieces without a tokenizer, streams, and their colours. */
import type { Num, TokenBlock } from "../api/types";
import { finite } from "./num";
import { places, stretch } from "./text";

export interface Token {
  id: number | null;
  /** What it adds to the text; empty when it only completes a character, or has no text. */
  text: string;
  /** A token of the chat template: its text stands in no message. */
  mark?: string;
}

const REST = 20_000; // characters without tokens that are shown after the last token

/** Tokens of a block that has all of a message's: in a bundle's page, as the server does it. */
export function windowOf(block: TokenBlock, text: string, chars: number, start: number, most: number): TokenBlock {
  const [first, stop] = [Math.min(start, block.size), Math.min(block.size, start + most)];
  const begin = first ? (block.ends?.[first - 1] ?? 0) : 0;
  const covered = stop ? (block.ends?.[stop - 1] ?? begin) : begin;
  const end = block.ends && stop === block.size ? chars : covered;
  const last = Math.min(end, covered + REST);
  return {
    ...block,
    start: first,
    text: stretch(text, begin, last),
    text_start: begin,
    left: end - last,
    ids: block.ids?.slice(first, stop) ?? null,
    ends: block.ends?.slice(first, stop) ?? null,
    streams: Object.fromEntries(Object.entries(block.streams).map(([name, values]) => [name, values.slice(first, stop)])),
  };
}

/** The pieces of a block's text, one per token. Text after the last end is left over. */
export function pieces(block: TokenBlock): { tokens: Token[]; rest: string } {
  const { text } = block;
  const at = places(text);
  const ends = block.ends;
  const length = ends?.length ?? block.ids?.length ?? 0;
  const tokens: Token[] = [];
  let start = 0;
  for (let i = 0; i < length; i++) {
    const end = ends ? Math.max(start, Math.min(text.length, at((ends[i] ?? 0) - block.text_start))) : start;
    const id = block.ids?.[i] ?? null;
    const mark = end === start ? block.marks[String(id)] : undefined;
    tokens.push({ id, text: text.slice(start, end), ...(mark && { mark }) });
    start = end;
  }
  return { tokens, rest: text.slice(start) };
}

/** Streams that are made of two others: what they need, and how. */
const MADE: Record<string, { of: [string, string]; make: (a: number, b: number) => number }> = {
  ratio: { of: ["train_logprob", "logprob"], make: (a, b) => Math.exp(a - b) },
  ref_gap: { of: ["logprob", "ref_logprob"], make: (a, b) => a - b },
};

/** What is looked for most often comes first. */
const FIRST = ["logprob", "train_logprob", "ratio", "ref_logprob", "ref_gap", "advantage", "entropy", "mask", "version"];

/** The streams one can look at: those that are there and those that follow from them. */
export function streamNames(present: string[]): string[] {
  const made = Object.entries(MADE).filter(([, m]) => m.of.every((name) => present.includes(name)));
  const rank = (name: string): number => (FIRST.indexOf(name) + 1 || FIRST.length + 1);
  return [...present, ...made.map(([name]) => name)].toSorted((a, b) => rank(a) - rank(b));
}

/** A block's values of a stream; null where missing. Undefined: the block has none of it. */
export function valuesOf(block: TokenBlock, stream: string): Num[] | undefined {
  const made = MADE[stream];
  if (!made) return block.streams[stream];
  const [a, b] = made.of.map((name) => block.streams[name]);
  if (!a || !b) return undefined;
  return a.map((x, i) => {
    const [p, q] = [finite(x), finite(b[i])];
    return p === null || q === null ? null : made.make(p, q);
  });
}

export type Scale = "low" | "signed" | "ratio" | "high" | "kind";

/** How a stream is coloured: which values deserve the eye. */
export function scaleOf(stream: string): Scale {
  if (stream === "ratio") return "ratio";
  if (stream.includes("logprob")) return "low";
  if (stream === "mask" || stream === "version") return "kind";
  if (stream === "advantage" || stream.endsWith("gap")) return "signed";
  return "high";
}

export interface Shade {
  /** Which of the two colours: below or above the neutral point. */
  side: "cold" | "warm" | "none" | "missing";
  /** 0 is invisible, 1 is full. */
  strength: number;
}

/** The shade of a value. `span` is the size that counts as full strength. */
export function shade(stream: string, x: Num | undefined, span: number): Shade {
  if (x === null || x === undefined) return { side: "missing", strength: 0 };
  const n = finite(x);
  if (n === null) return { side: "warm", strength: 1 };
  const full = span || 1;
  const clamp = (v: number): number => Math.max(0, Math.min(1, v));
  switch (scaleOf(stream)) {
    case "low":
      return { side: "warm", strength: Math.sqrt(clamp(-n / full)) }; // half a nat can be seen, too
    case "ratio":
      return { side: n >= 1 ? "warm" : "cold", strength: clamp(Math.abs(Math.log(Math.max(n, 1e-9))) / full) };
    case "signed":
      return { side: n >= 0 ? "cold" : "warm", strength: clamp(Math.abs(n) / full) };
    case "kind":
      if (stream === "mask") return n === 0 ? { side: "none", strength: 0 } : { side: "cold", strength: 0.45 };
      return { side: n % 2 === 0 ? "cold" : "warm", strength: 0.25 + 0.15 * (Math.abs(n) % 4) };
    case "high":
      return { side: "warm", strength: clamp(Math.abs(n) / full) };
  }
}

/** Full strength for a stream, from its extremes. Fixed where the numbers mean the same anywhere. */
export function spanOf(stream: string, low: Num, high: Num): number {
  const size = Math.max(Math.abs(finite(low) ?? 0), Math.abs(finite(high) ?? 0));
  switch (scaleOf(stream)) {
    case "low":
      return 4; // nats: a token drawn with probability under 2 %
    case "ratio":
      return 0.7; // a factor of two
    default:
      return size || 1;
  }
}

/** A token's text with what cannot be seen made visible. */
export function visible(text: string): string {
  return text.replaceAll(" ", "·").replaceAll("\t", "→\t").replaceAll("\r", "␍").replaceAll("\n", "⏎\n");
}
