/** Markdown, code colours and math. Loaded when the first message needs it; sanitised always. */
import createDOMPurify from "dompurify";
import MarkdownIt from "markdown-it";
import { math } from "./math";

const purify = createDOMPurify(window);

// A line that ends in a text ends on the page: commands and listings are often not fenced.
const md = new MarkdownIt({ html: false, linkify: false, breaks: true, typographer: false });
md.use(math);
// Underscores are part of names: `__init__` is not a bold "init". Policies stress with asterisks.
md.inline.ruler.before("emphasis", "underscores", (state, silent) => {
  if (state.src[state.pos] !== "_") return false;
  if (!silent) state.pending += "_";
  state.pos += 1;
  return true;
});
md.renderer.rules["image"] = (tokens, at) => {
  // Never loaded: an image in a rollout would tell its owner that somebody reads it.
  const token = tokens[at];
  const link = String(token?.attrGet("src") ?? "");
  return `<span class="remote-image">image: ${md.utils.escapeHtml(token?.content || link)}</span>`;
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
  return clean(md.render(text));
}

export function clean(html: string): DocumentFragment {
  return purify.sanitize(html, { ...ALLOWED, RETURN_DOM_FRAGMENT: true });
}

/** Does the text need math? Then `prepareMath` must have been awaited before `nodes`. */
export const hasMath = (text: string): boolean => /\$[^$\n]+\$|\$\$|\\\(|\\\[/.test(text);
export { prepareMath } from "./math";
