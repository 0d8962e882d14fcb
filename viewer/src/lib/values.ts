/** What a value means for its key, for a page without a server: the rules of `query/values.py`. */
import type { Asked } from "./keys";
import { literal, pattern } from "./pattern";
import type { Value } from "./syntax";

/** Does it hold for a value that is known? */
export type Test = (x: unknown) => boolean;

/** Refuses a value, and says why. */
type Refuse = (what: string) => Error;

/** From `low` to `high`; null: open on that side. NaN lies in no interval. */
export interface Interval {
  low: number | null;
  high: number | null;
  lowIn: boolean;
  highIn: boolean;
}

const NUMBER = "[+-]?(?:\\d+(?:\\.\\d+)?(?:[eE][+-]?\\d+)?|inf)";
const DATE = "\\d{4}-\\d\\d-\\d\\d(?:T\\d\\d:\\d\\d(?::\\d\\d)?Z?)?";

/** `key:none`. */
export const isNone = (value: Value): boolean => value.kind === "word" && value.text === "none";

/** What a value other than `none` means for a key that has one value, or a list of texts. */
export function meaning({ key, kind, name }: Asked, value: Value, refuse: Refuse): Test {
  if (kind === "number" || kind === "time") return numbers(key, kind === "time", value, refuse);
  if (kind === "bool") {
    const text = value.text.toLowerCase();
    const is = ["true", "yes", "1"].includes(text);
    if (!is && !["false", "no", "0"].includes(text)) throw refuse(`${name} is true, false or none, not "${value.text}"`);
    return (x) => x === is;
  }
  if (kind !== "contains" && value.kind === "word" && /^[<>]/u.test(value.text)) throw refuse(`${name} is a text and takes no ${value.text[0]} (quote it: "${value.text}")`);
  const inside = contains(value, refuse);
  const same: Test = kind === "contains" || value.kind === "regex" ? (x) => inside(x as string) : (x) => x === value.text;
  return kind === "member" ? (x) => (x as string[]).some(same) : same;
}

/** Is the text found inside another? A bare word is found in any case. */
export function contains(value: Value, refuse: Refuse): (text: string) => boolean {
  if (value.kind === "quoted") return (text) => text.includes(value.text);
  if (value.kind === "word") {
    const word = literal(value.text, "iu");
    return (text) => word.test(text);
  }
  try {
    const made = pattern(value.text, value.fold);
    return (text) => made.test(text);
  } catch {
    throw refuse("this page cannot read the pattern; a server can");
  }
}

function numbers(key: string, isTime: boolean, value: Value, refuse: Refuse): Test {
  const found = value.kind === "word" ? interval(value.text, isTime) : null;
  if (found) return (x) => lies(number(x), found);
  if (value.kind === "word" && value.text === "nan") return (x) => x === "NaN";
  throw refuse(`${key} takes a number, not "${value.text}" (like ${isTime ? "2026-11-15 or 2026-11-15T10:30.." : "5, >=0.5, 1..9 or none"})`);
}

/** A number of an answer: those that JSON cannot write are words. */
export const number = (x: unknown): number => Number(x);

function lies(x: number, { low, high, lowIn, highIn }: Interval): boolean {
  if (Number.isNaN(x)) return false;
  if (low !== null && low === high) return x === low;
  return (low === null || x > low || (lowIn && x === low)) && (high === null || x < high || (highIn && x === high));
}

/** The interval that a comparison, a range or a number stands for; null if it is none. */
export function interval(text: string, isTime: boolean): Interval | null {
  const point = isTime ? `${DATE}|${NUMBER}` : NUMBER;
  const compared = new RegExp(`^(<=|>=|<|>)?(${point})$`, "u").exec(text);
  if (compared) {
    const at = pointOf(compared[2] ?? "");
    if (compared[1] === "<") return { low: null, high: at.low, lowIn: true, highIn: false };
    if (compared[1] === "<=") return { low: null, high: at.high, lowIn: true, highIn: at.highIn };
    if (compared[1] === ">") return { low: at.high, high: null, lowIn: !at.highIn, highIn: true };
    return compared[1] === ">=" ? { low: at.low, high: null, lowIn: true, highIn: true } : at;
  }
  const range = new RegExp(`^(${point})?\\.\\.(${point})?$`, "u").exec(text);
  if (!range || (range[1] === undefined && range[2] === undefined)) return null;
  const [low, high] = [range[1], range[2]].map((end) => (end === undefined ? null : pointOf(end)));
  return { low: low?.low ?? null, high: high?.high ?? null, lowIn: true, highIn: high?.highIn ?? true };
}

/** A number, or the day, minute or second that a date names (UTC). */
function pointOf(text: string): Interval {
  if (!text.slice(1).includes("-") || /e/iu.test(text)) {
    const n = Number(text.replace("inf", "Infinity"));
    return { low: n, high: n, lowIn: true, highIn: true };
  }
  const plain = text.replace(/Z$/u, "");
  const start = timestamp(plain);
  return { low: start, high: start + ({ 10: 86400, 16: 60 }[plain.length] ?? 1), lowIn: true, highIn: false };
}

/** Of a day that does not exist: where nothing lies. */
function timestamp(text: string): number {
  const iso = `${text}${{ 10: "T00:00:00", 16: ":00" }[text.length] ?? ""}`;
  const time = Date.parse(`${iso}Z`);
  return Number.isNaN(time) || !new Date(time).toISOString().startsWith(iso) ? Infinity : time / 1000;
}
