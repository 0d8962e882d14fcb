/** Marks matches without touching the page's elements, by the CSS Custom Highlight API. */

const MOST = 2000; // beyond this, marking costs more than it tells

/** Ranges of all matches in the text nodes under `root`. */
export function ranges(root: Node, needles: RegExp[]): Range[] {
  const found: Range[] = [];
  if (needles.length === 0) return found;
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node && found.length < MOST; node = walker.nextNode()) {
    const text = node.nodeValue ?? "";
    for (const needle of needles) {
      needle.lastIndex = 0;
      for (const match of text.matchAll(needle)) {
        if (!match[0]) continue;
        const range = document.createRange();
        range.setStart(node, match.index);
        range.setEnd(node, match.index + match[0].length);
        found.push(range);
        if (found.length >= MOST) break;
      }
    }
  }
  return found;
}

/** Shows these ranges as `::highlight(name)`. */
export function mark(name: string, list: Range[]): void {
  if (!("highlights" in CSS)) return;
  if (list.length === 0) CSS.highlights.delete(name);
  else CSS.highlights.set(name, new Highlight(...list));
}
