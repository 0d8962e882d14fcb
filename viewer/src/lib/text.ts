/** Rollout text is hostile: nothing in it may act, hide or turn around what is read. */

export interface Run {
  text: string;
  /** Classes of a terminal's colours. */
  classes?: string;
  /** A character that would not be seen; `text` is its name. */
  hidden?: boolean;
}

// C0 but tab and newline, C1, zero-width and bidirectional controls, line separators, tags.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

/** The name of an unseen character: `U+202E`. */
export function nameOf(char: string): string {
  return `U+${(char.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** The text with every unseen character written out, for places that take only text. */
export function shown(text: string): string {
  return text.replaceAll("\r\n", "\n").replaceAll(HIDDEN, (c) => `⟦${nameOf(c)}⟧`);
}

/** The text in runs, unseen characters apart. */
export function runs(text: string): Run[] {
  const out: Run[] = [];
  let at = 0;
  const clean = text.replaceAll("\r\n", "\n");
  for (const match of clean.matchAll(HIDDEN)) {
    if (match.index > at) out.push({ text: clean.slice(at, match.index) });
    out.push({ text: nameOf(match[0]), hidden: true });
    at = match.index + match[0].length;
  }
  if (at < clean.length) out.push({ text: clean.slice(at) });
  return out;
}

export const hasAnsi = (text: string): boolean => text.includes("\u001b[");

// Colour codes act; every other control sequence (cursor, title, links) is dropped and marked.
// eslint-disable-next-line no-control-regex
const ANSI = /\u001b\[([\d;]*)m|\u001b\[[\d;?]*[A-Za-ln-z]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)|\u001b[@-_]/g;

/** Terminal output in runs: colours as classes, the rest of the escapes made harmless. */
export function ansi(text: string): Run[] {
  const out: Run[] = [];
  let style = new Set<string>();
  let at = 0;
  const push = (piece: string): void => {
    const classes = [...style].join(" ");
    for (const run of runs(piece)) out.push(run.hidden || !classes ? run : { ...run, classes });
  };
  for (const match of text.matchAll(ANSI)) {
    push(text.slice(at, match.index));
    at = match.index + match[0].length;
    if (match[1] !== undefined) style = restyle(style, match[1]);
    else out.push({ text: "ESC", hidden: true });
  }
  push(text.slice(at));
  return out;
}

const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

function restyle(old: Set<string>, codes: string): Set<string> {
  const style = new Set(old);
  const drop = (kind: string): void => [...style].filter((c) => c.startsWith(kind)).forEach((c) => style.delete(c));
  const numbers = (codes || "0").split(";").map(Number);
  for (let i = 0; i < numbers.length; i++) {
    const n = numbers[i] ?? 0;
    if (n === 0) style.clear();
    else if (n === 1) style.add("ansi-bold");
    else if (n === 2) style.add("ansi-dim");
    else if (n === 3) style.add("ansi-italic");
    else if (n === 4) style.add("ansi-underline");
    else if (n === 22) ["ansi-bold", "ansi-dim"].forEach((c) => style.delete(c));
    else if ((n >= 30 && n <= 37) || (n >= 90 && n <= 97)) {
      drop("ansi-fg-");
      style.add(`ansi-fg-${COLOURS[n % 10]}`);
    } else if ((n >= 40 && n <= 47) || (n >= 100 && n <= 107)) {
      drop("ansi-bg-");
      style.add(`ansi-bg-${COLOURS[n % 10]}`);
    } else if (n === 39) drop("ansi-fg-");
    else if (n === 49) drop("ansi-bg-");
    else if (n === 38 || n === 48) i += numbers[i + 1] === 5 ? 2 : 4; // palettes: kept plain
  }
  return style;
}

const ASTRAL = /[\u{10000}-\u{10ffff}]/u;

/** Turns places counted in characters (as the API counts) into places in a JavaScript string. */
export function places(text: string): (characters: number) => number {
  if (!ASTRAL.test(text)) return (n) => n;
  const at: number[] = [];
  let units = 0;
  for (const char of text) {
    at.push(units);
    units += char.length;
  }
  at.push(units);
  return (n) => at[Math.max(0, Math.min(n, at.length - 1))] ?? units;
}

/** The other way round: characters before a place in a JavaScript string. Places only go up. */
export function characters(text: string): (place: number) => number {
  if (!ASTRAL.test(text)) return (place) => place;
  let [at, count] = [0, 0];
  return (place) => {
    if (place < at) [at, count] = [0, 0];
    for (; at < place; count++) at += (text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1;
    return count;
  };
}

let latest: { text: string; at: (characters: number) => number } | undefined;

/** Characters `start` to `end` of a text, counted as the API counts. Of the latest text it is kept
 * where they stand, because a long one is asked for piece by piece. */
export function stretch(text: string, start: number, end: number): string {
  if (latest?.text !== text) latest = { text, at: places(text) };
  return text.slice(latest.at(start), latest.at(end));
}

/** A JSON value as text to read: strings as they are, the rest indented. */
export function json(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

/** If the text is a JSON object or list, the same indented; else null. */
export function prettyJson(text: string): string | null {
  const trimmed = text.trim();
  if (!/^[[{]/.test(trimmed) || trimmed.length > 200_000) return null;
  try {
    return JSON.stringify(JSON.parse(trimmed), null, 2);
  } catch {
    return null;
  }
}

/** What was said after thinking, where that is known. */
export function afterThinking(text: string): string {
  const said = text.replace(/^[\s\S]*<\/(think|thinking|reasoning)>/, "").trim();
  return said || text;
}

const PREVIEW = 160; // characters that the store keeps of a text

/** What a preview says after thinking, with a sign where the store has cut it. */
export function previewed(text: string | null): string {
  const whole = text ?? "";
  return isCut(whole) ? `${afterThinking(whole)}…` : afterThinking(whole);
}

/** Is this preview only the beginning? */
export const isCut = (text: string | null): boolean => (text ?? "").length >= PREVIEW;

/** The first words of a text on one line. */
export function firstLine(text: string, length = 120): string {
  const flat = shown(text.slice(0, length * 4)).replaceAll(/\s+/g, " ").trim();
  return flat.length > length ? `${flat.slice(0, length)}…` : flat;
}
