/** Marks matches without touching the page's elements, by the CSS Custom Highlight API. */

const MOST = 2000; // beyond this, marking costs more than it tells
const BLOCKS = "p,li,td,th,pre,h1,h2,h3,h4,h5,h6,div,header,button,summary";

/** Texts that are read as one, though elements divide them: bold words, tokens, coloured code. */
interface Block {
  text: string;
  nodes: { node: Text; start: number }[];
}

function blocks(root: Node): Block[] {
  const found: Block[] = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  let [owner, last]: [Element | null, Block | undefined] = [null, undefined];
  for (let node = walker.nextNode() as Text | null; node; node = walker.nextNode() as Text | null) {
    const mine = node.parentElement?.closest(BLOCKS) ?? null;
    if (!last || mine !== owner) found.push((last = { text: "", nodes: [] }));
    owner = mine;
    last.nodes.push({ node, start: last.text.length });
    last.text += node.data;
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

/** Shows these ranges as `::highlight(name)`. */
export function mark(name: string, list: Range[]): void {
  if (!("highlights" in CSS)) return;
  if (list.length === 0) CSS.highlights.delete(name);
  else CSS.highlights.set(name, new Highlight(...list));
}
