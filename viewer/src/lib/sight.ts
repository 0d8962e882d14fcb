/** Brings a child of a box that scrolls into sight. Not with `scrollIntoView`: Chromium would let the
 * Tab key begin there instead of at the top. */
export const inSight = (on: boolean) => (child: HTMLElement): void => {
  const box = child.parentElement;
  if (!on || !box) return;
  const [left, top] = [child.offsetLeft - box.offsetLeft, child.offsetTop - box.offsetTop];
  const [right, bottom] = [left + child.offsetWidth, top + child.offsetHeight];
  if (left < box.scrollLeft) box.scrollLeft = left;
  else if (right > box.scrollLeft + box.clientWidth) box.scrollLeft = right - box.clientWidth;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
};
