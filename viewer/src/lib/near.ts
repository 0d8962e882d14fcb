/** Tells which elements are near what is in sight: only those are worth loading and drawing. */

const AROUND = 1200; // pixels above and below what is in sight

const watchers = new WeakMap<Element, IntersectionObserver>();
const told = new WeakMap<Element, (near: boolean, height: number) => void>();

function watcher(box: Element): IntersectionObserver {
  let found = watchers.get(box);
  if (!found) {
    const tell = (entries: IntersectionObserverEntry[]): void =>
      entries.forEach((entry) => told.get(entry.target)?.(entry.isIntersecting, entry.boundingClientRect.height));
    found = new IntersectionObserver(tell, { root: box, rootMargin: `${AROUND}px 0px` });
    watchers.set(box, found);
  }
  return found;
}

/** Tells whether the element is near, now and whenever that changes; returns how to stop. */
export function watch(node: HTMLElement, tell: (near: boolean, height: number) => void): () => void {
  const box = node.closest(".scroll") ?? document.documentElement;
  told.set(node, tell);
  watcher(box).observe(node);
  return () => watcher(box).unobserve(node);
}
