/** Terms that look at texts: which a query has, and what each looks for. */
import { needles, terms } from "./query";

const KEYED = /^(text|assistant|user|system|role\.[\w-]+):/u;

export interface Term {
  /** Only in messages of this role; null: in all. */
  role: string | null;
  pattern: RegExp;
}

/** Does this piece of a query look at texts, not at a field? */
export function isText(piece: string): boolean {
  return KEYED.test(piece) || !/^[A-Za-z_][\w.-]*:/u.test(piece);
}

/** Every text term of a query, however deep it stands, without its negation. */
export function textTerms(q: string): string[] {
  const found = new Set<string>();
  for (const piece of terms(q)) {
    const bare = piece.replace(/^-/, "");
    if (bare.startsWith("(")) textTerms(bare.slice(1, -1)).forEach((term) => found.add(term));
    else if (!["OR", "AND", "NOT"].includes(bare) && bare && isText(bare)) found.add(bare);
  }
  return [...found];
}

/** What a text term looks for. A pattern that the browser cannot read finds nothing. */
export function searched(piece: string): Term {
  const key = KEYED.exec(piece)?.[1] ?? "text";
  const role = key === "text" ? null : key.replace(/^role\./, "");
  const pattern = needles(piece)[0] ?? /(?!)/u;
  return { role, pattern: new RegExp(pattern.source, pattern.flags.replace("g", "")) };
}
