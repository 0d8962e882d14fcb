/** Patterns of the query language (RE2) as the browser's regular expressions.
 *
 * What means the same is translated, what the browser has no equal for is refused: a page without
 * a server may know less than the engine, but never something else. */

/** The engine's `\s`, which is narrower than the browser's. */
const SPACES = "\\t\\n\\f\\r ";
const FLAGS = /^\(\?i\)/u;
/** Groups that the engine refuses, or that only one of the two has. */
const GROUP = /^\(\?(?!:)/u;
const ESCAPE = /^\\(?:x\{([0-9A-Fa-f]+)\}|x([0-9A-Fa-f]{2})|([\s\S]))/u;

/** Raises an `Error` where the pattern cannot be translated. */
export function pattern(written: string, fold = false, flags = ""): RegExp {
  const folded = fold || FLAGS.test(written);
  return new RegExp(translated(written.replace(FLAGS, "")), `${flags}${folded ? "i" : ""}u`);
}

function translated(written: string): string {
  let out = "";
  let inClass = false;
  for (let at = 0; at < written.length; ) {
    const rest = written.slice(at);
    const char = rest[0] ?? "";
    if (char === "\\") {
      const [taken, made] = escaped(rest, inClass);
      out += made;
      at += taken;
      continue;
    }
    if (!inClass && char === "[") {
      // The first of a class may be a ], which the browser wants escaped.
      const head = /^\[\^?\]?/u.exec(rest)?.[0] ?? "[";
      out += head.replace("]", "\\]");
      at += head.length;
      inClass = true;
      continue;
    }
    if (inClass && char === "[") {
      if (/^\[[:.=]/u.test(rest)) throw new Error("named classes");
      out += "\\[";
    } else if (!inClass && char === "(" && GROUP.test(rest)) throw new Error("this kind of group");
    else if (!inClass && char === ".") out += "[^\\n]";
    else out += char;
    if (char === "]") inClass = false;
    at += 1;
  }
  return out;
}

/** What an escape is, and how many characters it takes. */
function escaped(rest: string, inClass: boolean): [number, string] {
  const match = ESCAPE.exec(rest);
  if (!match) throw new Error("a lone backslash");
  const code = match[1] ?? match[2];
  if (code !== undefined) return [match[0].length, `\\u{${code}}`];
  const char = match[3] ?? "";
  if (char === "s") return [2, inClass ? SPACES : `[${SPACES}]`];
  if (char === "S" && !inClass) return [2, `[^${SPACES}]`];
  if (/[dDwWbBtnfrv]/u.test(char)) return [2, match[0]];
  if (/[A-Za-z0-9]/u.test(char)) throw new Error(`\\${char}`);
  return [match[0].length, /[\^$\\.*+?()[\]{}|/-]/u.test(char) && (char !== "-" || inClass) ? `\\${char}` : char];
}

/** A pattern that finds this text. */
export function literal(text: string, flags: string): RegExp {
  return new RegExp(text.replaceAll(/[.*+?^${}()|[\]\\/]/g, "\\$&"), flags);
}
