/** Math in markdown: `$…$`, `$$…$$`, `\(…\)`, `\[…\]`, drawn by the browser itself (MathML). */
import type { MarkdownIt } from "markdown-it";

type Katex = typeof import("katex").default;
let katex: Katex | null = null;

export async function prepareMath(): Promise<void> {
  katex ??= (await import("katex")).default;
}

function draw(source: string, display: boolean): string | null {
  if (!katex || source.length > 5000) return null;
  try {
    return katex.renderToString(source, {
      output: "mathml",
      displayMode: display,
      throwOnError: true,
      trust: false,
      strict: "ignore",
      maxExpand: 200,
      maxSize: 20,
    });
  } catch {
    return null; // not math after all: it stays the text it was
  }
}

const MARKS = [
  { open: "$$", close: "$$", display: true },
  { open: "\\[", close: "\\]", display: true },
  { open: "\\(", close: "\\)", display: false },
  { open: "$", close: "$", display: false },
];

interface Found {
  source: string;
  display: boolean;
  end: number;
}

/** The math that begins at `at`, if any. A lone dollar is money. */
export function mathAt(text: string, at: number): Found | null {
  for (const { open, close, display } of MARKS) {
    if (!text.startsWith(open, at)) continue;
    const start = at + open.length;
    const end = text.indexOf(close, start);
    if (end <= start) continue;
    const source = text.slice(start, end);
    if (open === "$" && (/^\s|\s$|\n\n/.test(source) || /[\p{Lu}\d_]/u.test(text[end + 1] ?? "") || /[\w$]/.test(text[at - 1] ?? ""))) continue; // `$HOME/$USER`
    if (/\n\s*\n/.test(source)) continue;
    return { source, display, end: end + close.length };
  }
  return null;
}

export function math(md: MarkdownIt): void {
  md.inline.ruler.before("escape", "math", (state, silent) => {
    const char = state.src[state.pos];
    if (char !== "$" && char !== "\\") return false;
    const found = mathAt(state.src, state.pos);
    const html = found && draw(found.source, found.display);
    if (!found || !html) return false;
    if (!silent) state.push("math", "math", 0).content = html;
    state.pos = found.end;
    return true;
  });
  md.renderer.rules["math"] = (tokens, at) => tokens[at]?.content ?? "";
}
