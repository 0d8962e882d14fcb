/** The shape of a query, for a page without a server: the grammar of `query/syntax.py`. */
import { Refused } from "../api/client";

export interface Value {
  kind: "word" | "quoted" | "regex";
  /** As it was written, without its quotes or slashes. */
  text: string;
  /** A pattern that ends in `/i`. */
  fold: boolean;
  start: number;
  end: number;
}

export interface Term {
  is: "term";
  /** The pieces between dots; null: a text term. */
  key: string[] | null;
  values: Value[];
  start: number;
  end: number;
}

export type Node = Term | { is: "not"; part: Node } | { is: "and" | "or"; parts: Node[] };

/** Refuses a key that does not exist. */
type CheckKey = (pieces: string[], refuse: (what: string) => Refused) => void;

const MAX_DEPTH = 100;
const MAX_TERMS = 100;
const SPACE = /[\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/u;
const NAME = /[A-Za-z_][\p{L}\p{N}_-]*/uy;
const PIECE = /[^\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000:.,()"]+/uy;
const KEYWORD = /(OR|AND|NOT)(?=[\s()]|$)/uy;

/** The tree of a query; of an empty one no parts. Throws `Refused` with the place of an error. */
export const parse = (q: string, check: CheckKey = () => undefined): Node => new Parser(q, check).query();

/** The pieces between dots of a key that stands as a value, as in `has:meta.lang`. */
export function keyPieces(text: string): string[] | null {
  const parser = new Parser(`${text}:`, () => undefined);
  try {
    const pieces = parser.key();
    return parser.at === text.length + 1 ? pieces : null;
  } catch {
    return null;
  }
}

/** What stands at the top level of a query, as it was written: terms, groups in parentheses and
 * the words between them. Of a query that cannot be read, its words. */
export function topLevel(q: string): string[] {
  const parser = new Parser(q, () => undefined);
  try {
    parser.query();
    return parser.top;
  } catch {
    return q.split(/\s+/u).filter(Boolean);
  }
}

/** The refusal of a part of a query. Its place is told in characters, not in UTF-16 units. */
export function refuse(error: string, q: string, start: number, end: number): Refused {
  const [first, last] = [start, end].map((at) => [...q.slice(0, at)].length) as [number, number];
  return new Refused(400, { error, start: first, end: Math.max(last, first + 1), suggestions: [] });
}

class Parser {
  at = 0;
  /** The pieces of the top level, as far as they were read. */
  readonly top: string[] = [];
  private depth = 0;
  private terms = 0;

  constructor(
    private readonly text: string,
    private readonly check: CheckKey,
  ) {}

  query(): Node {
    this.space();
    if (this.at === this.text.length) return { is: "and", parts: [] };
    const node = this.any();
    if (this.at < this.text.length) throw this.error("this ) closes nothing", this.at, this.at + 1);
    return node;
  }

  private any(): Node {
    const parts = [this.all()];
    while (this.keyword("OR")) parts.push(this.all());
    return joined("or", parts);
  }

  private all(): Node {
    const parts = [this.one()];
    while (this.at < this.text.length && this.here() !== ")" && this.peek() !== "OR") {
      this.keyword("AND");
      parts.push(this.one());
    }
    return joined("and", parts);
  }

  private one(): Node {
    const start = this.at;
    if (this.depth >= MAX_DEPTH) throw this.error(`nested deeper than ${MAX_DEPTH}`, start, start + 1);
    this.depth++;
    const node = this.nested();
    this.depth--;
    if (this.depth === 0) this.top.push(this.text.slice(start, this.at).trimEnd());
    this.space();
    return node;
  }

  private nested(): Node {
    const [start, char, word] = [this.at, this.here(), this.peek()];
    const shown = word || char;
    if (!char || char === ")" || word === "OR" || word === "AND") {
      throw this.error(`a term is missing${shown ? ` before ${shown}` : " at the end"}`, start, start + shown.length);
    }
    if (word === "NOT" || char === "-") {
      this.at += shown.length;
      this.space();
      if (this.at === this.text.length) throw this.error(`nothing follows ${shown}`, start, this.at);
      return { is: "not", part: this.one() };
    }
    if (char !== "(") return this.term();
    this.at++;
    this.space();
    const node = this.any();
    if (this.here() !== ")") throw this.error("this ( is never closed", start, start + 1);
    this.at++;
    return node;
  }

  private term(): Term {
    const start = this.at;
    if (++this.terms > MAX_TERMS) throw this.error(`more than ${MAX_TERMS} terms; values of one key can be listed: task:a,b,c`, start, this.text.length);
    const key = this.key();
    const values = [this.value(key !== null)];
    while (key !== null && this.here() === ",") {
      this.at++;
      values.push(this.value(true));
    }
    return { is: "term", key, values, start, end: this.at };
  }

  /** The key and its colon, or null (and nothing is taken) if this is no key. */
  key(): string[] | null {
    const name = this.match(NAME, this.at);
    if (!name) return null;
    const pieces = [name];
    let at = this.at + name.length;
    while (this.text[at] === ".") {
      if (this.text[at + 1] === '"') {
        const [piece, end] = this.enclosed(at + 1, '"', '"\\', "quote is never closed");
        pieces.push(piece);
        at = end;
      } else {
        const piece = this.match(PIECE, at + 1);
        if (!piece) return null;
        pieces.push(piece);
        at += 1 + piece.length;
      }
    }
    if (this.text[at] !== ":") return null;
    const start = this.at;
    this.check(pieces, (what) => this.error(what, start, at));
    this.at = at + 1;
    return pieces;
  }

  private value(inList: boolean): Value {
    const start = this.at;
    if (this.here() === '"') {
      const [text, end] = this.enclosed(start, '"', '"\\', "quote is never closed");
      this.at = end;
      this.ends("quote", start, inList);
      return { kind: "quoted", text, fold: false, start, end };
    }
    if (this.here() === "/") {
      const what = 'pattern is never closed by a / (put text that begins with / into "...")';
      const [text, end] = this.enclosed(start, "/", "/", what);
      const fold = this.text[end] === "i";
      this.at = end + Number(fold);
      this.ends("slash", start, inList);
      return { kind: "regex", text, fold, start, end: this.at };
    }
    return this.word(inList);
  }

  private word(inList: boolean): Value {
    const start = this.at;
    let opened = 0;
    for (; this.at < this.text.length; this.at++) {
      const char = this.here();
      if (SPACE.test(char) || (char === "," && inList) || (char === ")" && !opened)) break;
      opened += Number(char === "(") - Number(char === ")");
    }
    if (this.at === start) throw this.error(inList ? "a value is missing" : "a term is missing", start, start + 1);
    return { kind: "word", text: this.text.slice(start, this.at), fold: false, start, end: this.at };
  }

  /** The text between two marks and where it ends; a backslash before one of `escaped` goes. */
  private enclosed(start: number, mark: string, escaped: string, what: string): [string, number] {
    let out = "";
    for (let at = start + 1; at < this.text.length; at++) {
      const char = this.text[at] ?? "";
      if (char === mark) return [out, at + 1];
      const next = this.text[at + 1];
      if (char === "\\" && next !== undefined) {
        at++;
        out += escaped.includes(next) ? next : char + next;
      } else out += char;
    }
    throw this.error(`this ${what}`, start, this.text.length);
  }

  /** After a closing mark the value must be over. */
  private ends(mark: string, start: number, inList: boolean): void {
    const char = this.here();
    if (!char || SPACE.test(char) || char === ")" || (inList && char === ",")) return;
    const hint = mark === "slash" ? ' (put text that begins with / into "...")' : "";
    throw this.error(`a space is missing after the closing ${mark}${hint}`, start, this.at + 1);
  }

  private here(): string {
    return this.text[this.at] ?? "";
  }

  private match(pattern: RegExp, at: number): string {
    pattern.lastIndex = at;
    return pattern.exec(this.text)?.[0] ?? "";
  }

  private peek(): string {
    return this.match(KEYWORD, this.at);
  }

  private keyword(word: string): boolean {
    if (this.peek() !== word) return false;
    this.at += word.length;
    if (this.depth === 0) this.top.push(word);
    this.space();
    return true;
  }

  private space(): void {
    while (SPACE.test(this.here())) this.at++;
  }

  private error(what: string, start: number, end: number): Refused {
    return refuse(what, this.text, start, end);
  }
}

const joined = (is: "and" | "or", parts: Node[]): Node => (parts.length === 1 && parts[0] ? parts[0] : { is, parts });
