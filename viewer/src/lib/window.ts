/** Which rows of a very long list of equal rows are in sight.
 *
 * Browsers cannot scroll past some 17 to 33 million pixels, so beyond `TALLEST` the scroll bar
 * stands for more pixels than it has: its ends are exact, and near places move row by row. */

const TALLEST = 8_000_000;

export interface Window {
  /** Height of what scrolls. */
  height: number;
  first: number;
  last: number;
  /** Where the first row is drawn, from the top of what scrolls. */
  offset: number;
}

export function windowOf(count: number, rowHeight: number, scrollTop: number, viewport: number, extra = 6): Window {
  const full = count * rowHeight;
  const height = Math.min(full, TALLEST);
  const most = Math.max(1, height - viewport);
  const top = full > height ? (Math.min(scrollTop, most) / most) * (full - viewport) : scrollTop;
  const first = Math.max(0, Math.floor(top / rowHeight) - extra);
  const last = Math.min(count, Math.ceil((top + viewport) / rowHeight) + extra);
  return { height, first, last, offset: scrollTop - (top - first * rowHeight) };
}

/** The scroll position that brings a row into sight, or null when it is already. */
export function scrollFor(at: number, count: number, rowHeight: number, scrollTop: number, viewport: number): number | null {
  const full = count * rowHeight;
  const height = Math.min(full, TALLEST);
  const scale = full > height ? (full - viewport) / Math.max(1, height - viewport) : 1;
  const top = scrollTop * scale;
  if (at * rowHeight >= top && (at + 1) * rowHeight <= top + viewport) return null;
  const near = Math.abs(at * rowHeight - top) < viewport + 2 * rowHeight;
  const edge = at * rowHeight < top ? at * rowHeight : (at + 1) * rowHeight - viewport;
  const wanted = near && scrollTop > 0 ? edge : at * rowHeight - viewport / 3;
  return Math.max(0, wanted / scale);
}
