/** Markdown, code colours and math. Loaded when the first message needs it; sanitised always.
 *
 * Rollouts are not documents: they hold code without fences, logs, formulas, markdown that was cut off.
 * So only what is surely markup is drawn as such, and every other character and indentation stays. */
import createDOMPurify from "dompurify";
import MarkdownIt from "markdown-it";
import { math } from "./math";

const purify = createDOMPurify(window);

const md = new MarkdownIt({ html: false, linkify: false, breaks: false, typographer: false });
md.use(math);
// Indented code, underlined headings, `[a]: b`, rules, quotes, `&amp;`, `\_`, `<a@b>`, `~~`: in a rollout they
// are mostly something else, and drawing them would leave characters out.
md.disable(["code", "lheading", "reference", "hr", "blockquote", "html_block"]);
md.disable(["entity", "escape", "autolink", "html_inline", "strikethrough", "newline", "image"]);

// A paragraph is its lines as they are: the page keeps their ends and their indentation.
md.block.ruler.at("paragraph", (state, first, last) => {
  const ends = md.block.ruler.getRules("paragraph");
  const parent = state.parentType;
  state.parentType = "paragraph";
  let next = first + 1;
  for (; next < last && !state.isEmpty(next); next++) {
    const at = state.sCount[next] ?? 0;
    if (at - state.blkIndent > 3 || at < 0) continue;
    const line = next;
    if (ends.some((rule) => rule(state, line, last, true))) break;
  }
  state.parentType = parent;
  const content = state.getLines(first, next, state.blkIndent, false).replace(/\s+$/, "");
  state.line = next;
  state.push("paragraph_open", "p", 1).map = [first, next];
  const inline = state.push("inline", "", 0);
  inline.content = content;
  inline.map = [first, next];
  inline.children = [];
  state.push("paragraph_close", "p", -1);
  return true;
});

// A heading stands alone: `# x` right above or below other lines is a comment in code.
type BlockRule = Parameters<typeof md.block.ruler.at>[1];
const rulesOf = (name: string): BlockRule =>
  (md.block.ruler as unknown as { __rules__: { name: string; fn: BlockRule }[] }).__rules__.find((rule) => rule.name === name)?.fn ?? (() => false);
const heading = rulesOf("heading");
md.block.ruler.at(
  "heading",
  (state, first, last, silent) => {
    const line = (n: number): string => state.src.slice((state.bMarks[n] ?? 0) + (state.tShift[n] ?? 0), state.eMarks[n]);
    const alone = first === 0 || state.isEmpty(first - 1) || /^#{1,6} /.test(line(first - 1));
    const comment = /^# /.test(line(first)) && first + 1 < last && !state.isEmpty(first + 1) && !/^#{1,6} /.test(line(first + 1));
    return alone && !comment && !/#\s*$/.test(line(first)) && heading(state, first, last, silent);
  },
  { alt: ["paragraph"] },
);
// Lists: `+ x` and `-    x` are lines of a diff.
const list = rulesOf("list");
md.block.ruler.at(
  "list",
  (state, first, last, silent) => {
    const text = state.src.slice((state.bMarks[first] ?? 0) + (state.tShift[first] ?? 0), state.eMarks[first]);
    return /^(?:[-*]|\d{1,9}[.)])[ \t]{1,3}\S/.test(text) && list(state, first, last, silent);
  },
  { alt: ["paragraph"] },
);

// Stress stands at the borders of words, with asterisks: `2*3*4` and `__init__` do not stress.
const State = md.inline.State;
md.inline.State = class extends State {
  override scanDelims(start: number, splits: boolean): ReturnType<InstanceType<typeof State>["scanDelims"]> {
    const found = super.scanDelims(start, splits);
    const [before, after] = [this.src[start - 1] ?? " ", this.src[start + found.length] ?? " "];
    const star = this.src[start] === "*" && found.length <= 3;
    return {
      ...found,
      can_open: star && found.can_open && /[\s("'“‘«[—–\-:>]/.test(before) && /[\p{L}\p{N}"'“‘«([$`\\<]/u.test(after),
      can_close: star && found.can_close && /[\s.,;:!?)"'”’»\]—–\-]/.test(after) && !/\s/.test(before),
    };
  }
};
// Code between backticks stands in one line.
const TICKS = /(?<!`)(`+)(?!`)([^\n]*?[^`\n])\1(?!`)/y;
md.inline.ruler.at("backticks", (state, silent) => {
  if (state.src[state.pos] !== "`") return false;
  TICKS.lastIndex = state.pos;
  const found = TICKS.exec(state.src);
  if (!found) {
    const run = /`+/y;
    run.lastIndex = state.pos;
    const ticks = run.exec(state.src)?.[0] ?? "`";
    if (!silent) state.pending += ticks;
    state.pos += ticks.length;
    return true;
  }
  if (!silent) {
    const token = state.push("code_inline", "code", 0);
    token.markup = found[1] ?? "`";
    token.content = found[2] ?? "";
  }
  state.pos += found[0].length;
  return true;
});
// Links name a page of the web: `f[0](x)` calls a function.
const LINK = /\[([^[\]\n]+)\]\((https?:\/\/(?:[^\s()]|\([^\s()]*\))+)\)/iy;
md.inline.ruler.at("link", (state, silent) => {
  if (state.src[state.pos] !== "[" || state.src[state.pos - 1] === "!") return false;
  LINK.lastIndex = state.pos;
  const found = LINK.exec(state.src);
  if (!found) return false;
  if (!silent) {
    state.push("link_open", "a", 1).attrs = [["href", found[2] ?? ""]];
    state.push("text", "", 0).content = found[1] ?? "";
    state.push("link_close", "a", -1);
  }
  state.pos += found[0].length;
  return true;
});

// Tables: a row with more cells than the head would lose them.
const table = rulesOf("table");
md.block.ruler.at(
  "table",
  (state, first, last, silent) => {
    const cells = (n: number): number => state.src.slice(state.bMarks[n], state.eMarks[n]).trim().replace(/^\|/, "").replace(/\|$/, "").split(/(?<!\\)\|/).length;
    for (let n = first + 2; n < last && !state.isEmpty(n); n++) if (cells(n) > cells(first)) return false;
    return table(state, first, last, silent);
  },
  { alt: ["paragraph"] },
);

// What stands behind the fence is said, too.
const fence = md.renderer.rules.fence;
md.renderer.rules["fence"] = (tokens, at, ...rest) => {
  const info = tokens[at]?.info.trim();
  const drawn = fence?.(tokens, at, ...rest) ?? "";
  return info ? drawn.replace("<pre>", () => `<pre><span class="info">${md.utils.escapeHtml(info)}</span>`) : drawn;
};
// Marks of a list are text, as they were written: numbers are not counted anew.
md.renderer.rules["list_item_open"] = (tokens, at) => {
  const token = tokens[at];
  return `<li><span class="marker">${md.utils.escapeHtml(`${token?.info ?? ""}${token?.markup ?? ""}`)} </span>`;
};

purify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    const link = node.getAttribute("href") ?? "";
    if (!/^https?:\/\//i.test(link)) node.removeAttribute("href");
    else {
      node.setAttribute("target", "_blank");
      node.setAttribute("rel", "noopener noreferrer nofollow");
      node.setAttribute("title", link);
    }
  }
});

const ALLOWED = {
  ALLOWED_TAGS: [
    ..."a b blockquote br code del em h1 h2 h3 h4 h5 h6 hr i li ol p pre s span strong sub sup table tbody td th thead tr ul".split(" "),
    ..."math semantics annotation mrow mi mo mn ms mtext mspace msup msub msubsup mfrac msqrt mroot mover munder munderover mtable mtr mtd mstyle mpadded mphantom menclose".split(" "),
  ],
  ALLOWED_ATTR: [
    ..."href title class start align".split(" "),
    ..."display mathvariant stretchy fence separator lspace rspace accent accentunder rowspacing columnspacing columnalign scriptlevel displaystyle linethickness notation width height depth voffset minsize maxsize movablelimits encoding".split(" "),
  ],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
};

/** Sanitised nodes for a text; the only way by which rollout text becomes elements. */
export function nodes(text: string): DocumentFragment {
  const drawn = clean(md.render(text));
  for (const item of drawn.querySelectorAll("li")) {
    for (const node of [...item.childNodes]) if (node.nodeValue === "\n") node.remove(); // between elements: nobody wrote it
  }
  return drawn;
}

export function clean(html: string): DocumentFragment {
  return purify.sanitize(html, { ...ALLOWED, RETURN_DOM_FRAGMENT: true });
}

/** Does the text need math? Then `prepareMath` must have been awaited before `nodes`. */
export const hasMath = (text: string): boolean => /\$[^$\n]+\$|\$\$|\\\(|\\\[/.test(text);
export { prepareMath } from "./math";
