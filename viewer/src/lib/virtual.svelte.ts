/** Windowing of rows of unequal height (TanStack Virtual), for Svelte. */
import { elementScroll, measureElement, observeElementOffset, observeElementRect, Virtualizer, type VirtualItem } from "@tanstack/virtual-core";

export class Windowed {
  items = $state.raw<VirtualItem[]>([]);
  total = $state(0);
  #virtualizer: Virtualizer<HTMLElement, HTMLElement> | undefined;
  #leave: (() => void) | undefined;

  /** Watches a scrolling element; returns how to stop. */
  attach(box: HTMLElement, count: () => number, estimate: (at: number) => number, key: (at: number) => string | number): () => void {
    const virtualizer = new Virtualizer<HTMLElement, HTMLElement>({
      count: count(),
      getScrollElement: () => box,
      estimateSize: estimate,
      getItemKey: key,
      scrollToFn: elementScroll,
      observeElementRect,
      observeElementOffset,
      measureElement,
      overscan: 3,
      gap: 10,
      paddingStart: 12,
      paddingEnd: 80,
      onChange: () => this.#read(),
    });
    this.#virtualizer = virtualizer;
    this.#leave = virtualizer._didMount();
    virtualizer._willUpdate();
    this.#read();
    return () => {
      this.#leave?.();
      this.#virtualizer = undefined;
    };
  }

  /** The rows have changed. */
  update(count: number): void {
    const virtualizer = this.#virtualizer;
    if (!virtualizer) return;
    virtualizer.setOptions({ ...virtualizer.options, count });
    virtualizer.measure();
    this.#read();
  }

  /** For each drawn row: lets its height be known. */
  measure = (row: HTMLElement): (() => void) => {
    this.#virtualizer?.measureElement(row);
    return () => this.#virtualizer?.measureElement(null);
  };

  show(at: number, align: "start" | "center" | "auto" = "start"): void {
    if (at === 0) this.#virtualizer?.scrollToOffset(0);
    else this.#virtualizer?.scrollToIndex(at, { align });
  }

  #read(): void {
    const virtualizer = this.#virtualizer;
    if (!virtualizer) return;
    this.items = virtualizer.getVirtualItems();
    this.total = virtualizer.getTotalSize();
  }
}
