/** Rollout text is hostile: nothing in it may act, hide or turn around what is read. */

export interface Run {
  text: string;
  /** Classes of a terminal's colours. */
  classes?: string;
  /** Colours of its larger palettes. */
  colour?: string;
  background?: string;
  /** A character that would not be seen; `text` is its name. */
  hidden?: boolean;
}

// C0 but tab and newline, C1, zero-width and bidirectional controls, line separators, tags. Joiners
// belong to the writing of Persian, Hindi and others, and to emoji; behind a Latin letter they hide.
const HIDDEN =
  /(?<!(?!\p{sc=Latin}|\p{sc=Greek}|\p{sc=Cyrillic}|\p{sc=Han})[\p{L}\p{M}]|[\p{Extended_Pictographic}\p{Emoji_Modifier}\ufe0f])[\u200c\u200d]|[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

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
const ANSI = /\u001b\[([\d;:]*)m|\u001b\[[\d;?]*[A-Za-ln-z]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)|\u001b[@-_]/g;

type Look = { marks: Set<string>; fg: string; bg: string };

/** Terminal output in runs: colours as they were asked for, the rest of the escapes made harmless. */
export function ansi(text: string): Run[] {
  const out: Run[] = [];
  const look: Look = { marks: new Set(), fg: "", bg: "" };
  let at = 0;
  const push = (piece: string): void => {
    const drawn = drawnAs(look);
    for (const run of runs(piece)) out.push(run.hidden ? run : { ...run, ...drawn });
  };
  for (const match of text.matchAll(ANSI)) {
    push(text.slice(at, match.index));
    at = match.index + match[0].length;
    if (match[1] !== undefined) restyle(look, match[1]);
    else out.push({ text: "ESC", hidden: true });
  }
  push(text.slice(at));
  return out;
}

/** Named colours are classes, because they look different in the dark; others are as they are. */
function drawnAs({ marks, fg, bg }: Look): Partial<Run> {
  const inverse = marks.has("inverse");
  const [front, back] = inverse ? [bg || "paper", fg || "ink"] : [fg, bg];
  const classes = [...marks].filter((mark) => mark !== "inverse").map((mark) => `ansi-${mark}`);
  const named = (colour: string): boolean => /^[a-z]+$/.test(colour);
  if (named(front)) classes.push(`ansi-fg-${front}`);
  if (named(back)) classes.push(`ansi-bg-${back}`);
  return {
    ...(classes.length && { classes: classes.join(" ") }),
    ...(front && !named(front) && { colour: front }),
    ...(back && !named(back) && { background: back }),
  };
}

const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
const MARKS: Record<number, string> = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse" };
const ENDS: Record<number, string[]> = { 22: ["bold", "dim"], 23: ["italic"], 24: ["underline"], 27: ["inverse"] };

function restyle(look: Look, codes: string): void {
  const numbers = (codes.replaceAll("::", ":").replaceAll(":", ";") || "0").split(";").map(Number);
  for (let i = 0; i < numbers.length; i++) {
    const n = numbers[i] ?? 0;
    const side = (n >= 40 && n < 50) || n >= 100 ? "bg" : "fg";
    if (n === 0) {
      look.marks.clear();
      look.fg = look.bg = "";
    } else if (MARKS[n]) look.marks.add(MARKS[n]);
    else if (ENDS[n]) ENDS[n].forEach((mark) => look.marks.delete(mark));
    else if (n === 39 || n === 49) look[side] = "";
    else if (n === 38 || n === 48) {
      const wide = numbers[i + 1] === 2;
      look[side] = wide ? rgb(numbers.slice(i + 2, i + 5)) : indexed(numbers[i + 2] ?? 0);
      i += wide ? 4 : 2;
    } else if ((n >= 30 && n < 38) || (n >= 40 && n < 48) || (n >= 90 && n < 98) || (n >= 100 && n < 108)) look[side] = COLOURS[n % 10] ?? "";
  }
}

const rgb = (parts: number[]): string => `rgb(${[0, 1, 2].map((i) => Math.min(255, parts[i] || 0)).join(" ")})`;

/** A colour of the palette of 256: the eight names twice, a cube, and greys. */
function indexed(n: number): string {
  if (n < 16) return COLOURS[n % 8] ?? "";
  if (n >= 232) return rgb(Array<number>(3).fill(8 + (n - 232) * 10));
  const step = (k: number): number => (k ? 55 + k * 40 : 0);
  const at = n - 16;
  return rgb([step(Math.floor(at / 36)), step(Math.floor(at / 6) % 6), step(at % 6)]);
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
