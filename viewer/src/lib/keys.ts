/** Keys of the query language, found by the words that a query has for them. */
import { ALIASES, KEYS } from "../api/columns";

type Kind = (typeof KEYS)[string]["kind"];

export interface Asked {
  /** Its name in `KEYS`. */
  key: string;
  kind: Kind;
  /** The names after its dot. */
  path: string[];
  /** The key as it is written. */
  name: string;
}

/** The key that these pieces between dots name. */
export function find(pieces: string[]): Asked | null {
  const [first = "", ...path] = pieces;
  const head = Object.hasOwn(ALIASES, first) ? (ALIASES[first] ?? first) : first;
  const key = path.length ? `${head}.*` : head;
  const known = Object.hasOwn(KEYS, key) ? KEYS[key] : undefined;
  if (!known) return null;
  return { key, kind: known.kind, path: known.kind === "json" ? path : path.length ? [path.join(".")] : [], name: [head, ...path].join(".") };
}

/** Why a word is no key. */
export const unknown = (written: string): string => (Object.hasOwn(KEYS, `${written}.*`) ? `${written} needs a name after it: ${written}.NAME` : `unknown key "${written}"`);

/** The role whose messages a text key looks at; null: all. */
export const roleOf = ({ key, path }: Asked): string | null => (key === "text" ? null : (path[0] ?? key));
