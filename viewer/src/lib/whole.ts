/** Terms that look at the texts of messages: which a query has, and what each looks for. */
import { find, roleOf } from "./keys";
import { literal, pattern } from "./pattern";
import { keyPieces, parse, type Node, type Value } from "./syntax";
import { contains, isNone } from "./values";

export interface TextTerm {
  /** Only in messages of this role; null: in all. */
  role: string | null;
  /** Null: any message of that role will do. */
  value: Value | null;
}

/** The same for terms that look for the same. */
export const idOf = ({ role, value }: TextTerm): string => JSON.stringify([role, value && [value.kind, value.text, value.fold]]);

/** Every text term of a query, however deep it stands; those under a negation only if `all`. */
export function textTerms(node: Node, all = true): TextTerm[] {
  if (node.is === "not") return all ? textTerms(node.part, all) : [];
  if (node.is !== "term") return node.parts.flatMap((part) => textTerms(part, all));
  if (node.key === null) return node.values.map((value) => ({ role: null, value }));
  const asked = find(node.key);
  if (asked?.kind === "text") return node.values.map((value) => ({ role: roleOf(asked), value: isNone(value) ? null : value }));
  if (asked?.kind !== "any") return [];
  const keys = node.values.map((value) => find(keyPieces(value.text) ?? []));
  return keys.flatMap((key) => (key?.kind === "text" ? [{ role: roleOf(key), value: null }] : []));
}

/** Tells whether a message of this role that says this has what the term looks for. */
export function searched({ role, value }: TextTerm): (said: string | null, by: string) => boolean {
  const found = value && contains(value, (what) => new Error(what));
  return (said, by) => (role === null || role === by) && (found === null || (said !== null && found(said)));
}

/** The words and patterns that a query looks for in texts, as patterns that find all of them. Of a
 * query that cannot be read there are none. */
export function needles(q: string, patterns = true): RegExp[] {
  try {
    return textTerms(parse(q), false).flatMap(({ value }) => needle(value, patterns) ?? []);
  } catch {
    return [];
  }
}

function needle(value: Value | null, patterns: boolean): RegExp | null {
  if (value === null || (value.kind === "regex" && !patterns)) return null;
  if (value.kind !== "regex") return literal(value.text, value.kind === "word" ? "giu" : "gu");
  try {
    return pattern(value.text, value.fold, "g");
  } catch {
    return null; // only the server can read it
  }
}

const MARKED = 200; // different texts that a pattern found

/** What is to be marked in what is shown: the words of a query, and what its patterns found. The
 * patterns themselves are never run here: one that backtracks would stop the page. */
export function marked(q: string, find: string, hits: { said: string | null }[]): RegExp[] {
  const said = new Set(hits.map((hit) => hit.said).filter((text) => text !== null && text.trim() !== ""));
  const literals = [...said].slice(0, MARKED).map((text) => literal(text ?? "", "gu"));
  return [...needles(q, false), ...(find ? [literal(find, "giu")] : []), ...literals];
}
