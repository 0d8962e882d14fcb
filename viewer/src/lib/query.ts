/** Queries as text: adding, replacing and removing terms, as a click does. */

/** A value as it must be written after a key: `none`, for one, means that there is no value. */
export function quoted(value: string): string {
  return /^[\w.+-]+$/u.test(value) && !/^(none|nan)$|\.\./iu.test(value) ? value : `"${value.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}

/** `key:value`, or `key:none` when there is no value. */
export function term(key: string, value: string | number | null): string {
  return value === null ? `${key}:none` : `${key}:${quoted(String(value))}`;
}

/** `key:low..high`, whole numbers where both are. */
export function range(key: string, low: number, high: number): string {
  const text = (x: number): string => String(Number(x.toPrecision(6)));
  return `${key}:${text(low)}..${text(high)}`;
}

const TOKEN = /\(|\)|-?[\w.]+:(?:"(?:\\.|[^"\\])*"|\/(?:\\.|[^/\\])+\/|[^\s()]+)|-?"(?:\\.|[^"\\])*"|\/(?:\\.|[^/\\])+\/|[^\s()]+/gu;

/** The pieces of a query at its top level; what stands in parentheses is one piece. */
export function terms(q: string): string[] {
  const pieces: string[] = [];
  let depth = 0;
  let open = 0;
  for (const match of q.matchAll(TOKEN)) {
    if (match[0] === "(") {
      if (depth++ === 0) open = match.index;
    } else if (match[0] === ")") {
      if (--depth === 0) pieces.push(q.slice(open, match.index + 1));
      depth = Math.max(0, depth);
    } else if (depth === 0) {
      pieces.push(match[0]);
    }
  }
  return pieces;
}

export const has = (q: string, piece: string): boolean => terms(q).includes(piece);

/** Adds the term, or takes it away when it is there. */
export function toggle(q: string, piece: string): string {
  const pieces = terms(q);
  return (pieces.includes(piece) ? pieces.filter((p) => p !== piece) : [...pieces, piece]).join(" ");
}

/** Puts the term in the place of every other one of the same key; null only removes them. */
export function replace(q: string, key: string, piece: string | null): string {
  const kept = terms(q).filter((p) => !p.startsWith(`${key}:`));
  return (piece === null ? kept : [...kept, piece]).join(" ");
}

/** Both must hold. What already begins with the other is not said twice. */
export function both(a: string, b: string): string {
  if (!a.trim() || !b.trim()) return (a + b).trim();
  const wrap = (q: string): string => (/(^|\s)OR(\s|$)/.test(q) ? `(${q})` : q);
  const [first, second] = [wrap(a.trim()), b.trim()];
  const pieces = terms(second);
  return terms(first).every((piece, i) => pieces[i] === piece) ? second : `${first} ${wrap(second)}`;
}

/** The words and patterns that a query looks for in texts. */
export function needles(q: string, patterns = true): RegExp[] {
  const found: RegExp[] = [];
  for (const [piece] of q.matchAll(TOKEN)) {
    if (piece === "(" || piece === ")") continue;
    const keyed = /^(text|assistant|user|system|role\.[\w-]+):(.*)$/su.exec(piece);
    const value = keyed ? (keyed[2] ?? "") : piece;
    if (piece.startsWith("-") || ["OR", "AND", "NOT"].includes(piece)) continue;
    if (!keyed && /^[A-Za-z_][\w.-]*:/u.test(piece)) continue;
    const made = patterns || !value.startsWith("/") ? needle(value) : null;
    if (made) found.push(made);
  }
  return found;
}

function needle(value: string): RegExp | null {
  try {
    if (value.startsWith("/") && value.lastIndexOf("/") > 0) {
      const end = value.lastIndexOf("/");
      return new RegExp(value.slice(1, end), value.endsWith("/i") ? "giu" : "gu");
    }
    if (value.startsWith('"')) return literal(value.slice(1, -1).replaceAll(/\\(.)/gs, "$1"), "gu");
    return value ? literal(value, "giu") : null;
  } catch {
    return null; // RE2 knows patterns that the browser does not
  }
}

/** What is to be marked in what is shown: the words of a query, and what its patterns found. The
 * patterns themselves are never run here: one that backtracks would stop the page. */
export function marked(q: string, find: string, hits: { said: string | null }[]): RegExp[] {
  const said = new Set(hits.map((hit) => hit.said).filter((text) => text !== null && text.trim() !== ""));
  const literals = [...said].slice(0, MARKED).map((text) => literal(text ?? "", "gu"));
  return [...needles(q, false), ...(find ? [literal(find, "giu")] : []), ...literals];
}

const MARKED = 200; // different texts that a pattern found

/** A pattern that finds this text. */
export function literal(text: string, flags: string): RegExp {
  return new RegExp(text.replaceAll(/[.*+?^${}()|[\]\\/]/g, "\\$&"), flags);
}

/** The same selection as a line of Python. `dir`: where the store lies, if not where it always does. */
export function asPython(q: string, order: string, dir?: string | null): string {
  const args = [JSON.stringify(q), ...(order ? [`order=${JSON.stringify(order)}`] : [])];
  return `import rollscope\n\nrollouts = rollscope.open(${dir ? JSON.stringify(dir) : ""}).rollouts(${args.join(", ")})`;
}

/** The same selection as a command. */
export function asCommand(q: string, order: string, dir?: string | null): string {
  const shell = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;
  return `rollscope ls ${shell(q)}${order ? ` --order=${shell(order)}` : ""}${dir ? ` --dir=${shell(dir)}` : ""}`;
}
