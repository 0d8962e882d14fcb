/** Marks matches without touching the page's elements, by the CSS Custom Highlight API. */

const MOST = 2000; // beyond this, marking costs more than it tells
const BLOCKS = "p,li,td,th,pre,h1,h2,h3,h4,h5,h6,div,header,button,summary";

/** Texts that are read as one, though elements divide them: bold words, tokens, coloured code. */
interface Block {
  text: string;
  nodes: { node: Text; start: number }[];
}

function* texts(root: Node): Generator<Text> {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) yield node as Text;
}

function add(block: Block, node: Text): void {
  block.nodes.push({ node, start: block.text.length });
  block.text += node.data;
}

function blocks(root: Node): Block[] {
  const found: Block[] = [];
  let [owner, last]: [Element | null, Block | undefined] = [null, undefined];
  for (const node of texts(root)) {
    const mine = node.parentElement?.closest(BLOCKS) ?? null;
    if (!last || mine !== owner) found.push((last = { text: "", nodes: [] }));
    owner = mine;
    add(last, node);
  }
  return found;
}

/** Ranges of all matches in the texts under `root`, in their order. */
export function ranges(root: Node, needles: RegExp[]): Range[] {
  const found: Range[] = [];
  if (needles.length === 0) return found;
  for (const block of blocks(root)) {
    const places = needles.flatMap((needle) => {
      needle.lastIndex = 0;
      return [...block.text.matchAll(needle)].flatMap((m) => (m[0] ? [[m.index, m.index + m[0].length] as const] : []));
    });
    const once = new Map(places.map((place) => [place.join(), place])); // two needles may find the same
    for (const [start, end] of [...once.values()].sort((a, b) => a[0] - b[0] || a[1] - b[1])) {
      if (found.length >= MOST) return found;
      found.push(rangeOf(block, start, end));
    }
  }
  return found;
}

function rangeOf({ nodes }: Block, start: number, end: number): Range {
  const at = (place: number, last: boolean): { node: Text; start: number } => {
    let [low, high] = [0, nodes.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((nodes[middle]?.start ?? 0) < place + (last ? 0 : 1)) low = middle;
      else high = middle - 1;
    }
    return nodes[low] as { node: Text; start: number };
  };
  const [first, last] = [at(start, false), at(end, true)];
  const range = document.createRange();
  range.setStart(first.node, start - first.start);
  range.setEnd(last.node, end - last.start);
  return range;
}

/** A text without white space, and where each of its characters stands. */
function dense(text: string): { text: string; at: number[] } {
  const at: number[] = [];
  let out = "";
  for (const word of text.matchAll(/\S+/gu)) {
    out += word[0];
    for (let i = 0; i < word[0].length; i++) at.push(word.index + i);
  }
  return { text: out, at };
}

const GRAM = 8; // characters by which what is drawn is found again in its source
const FAR = 2000; // characters of the source that are left out of what is drawn, at most: a long address

/** What under `root` shows the places `start` to `end` of `source`; null: nothing does. Both are read side
 * by side, because they differ: signs of markdown are not drawn, white space is drawn in other ways, and
 * names stand for characters that cannot be seen. */
export function showing(root: Node, source: string, start: number, end: number): Range | null {
  const block: Block = { text: "", nodes: [] };
  for (const node of texts(root)) if (!node.parentElement?.closest("button, annotation")) add(block, node);
  const [said, drawn] = [dense(source), dense(block.text)];
  let [first, last, next] = [-1, -1, 0];
  for (let i = 0; i < drawn.text.length; i++) {
    if (drawn.text[i] !== said.text[next]) {
      const skipped = said.text.slice(next, next + FAR).indexOf(drawn.text.slice(i, i + GRAM));
      if (skipped < 0) continue;
      next += skipped;
    }
    const place = said.at[next++] ?? end;
    if (place >= end) break;
    if (place < start) continue;
    last = drawn.at[i] ?? 0;
    if (first < 0) first = last;
  }
  return first < 0 ? null : rangeOf(block, first, last + 1);
}

/** Shows these ranges as `::highlight(name)`. */
export function mark(name: string, list: Range[]): void {
  if (!("highlights" in CSS)) return;
  if (list.length === 0) CSS.highlights.delete(name);
  else CSS.highlights.set(name, new Highlight(...list));
}
