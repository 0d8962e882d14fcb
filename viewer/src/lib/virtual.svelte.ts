/** Windowing of rows of unequal height (TanStack Virtual), for Svelte. */
import { tick } from "svelte";
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer, type VirtualItem } from "@tanstack/virtual-core";

export class Windowed {
  items = $state.raw<VirtualItem[]>([]);
  total = $state(0);
  #virtualizer: Virtualizer<HTMLElement, HTMLElement> | undefined;
  #leave: (() => void) | undefined;
  #rows = new Set<HTMLElement>();
  // Not the virtualizer's own: that one does not listen while it scrolls, and rows came to overlap.
  #heights = new ResizeObserver((entries) => {
    for (const entry of entries) this.#tell(entry.target as HTMLElement);
  });

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
      overscan: 3,
      gap: 10,
      paddingStart: 12,
      paddingEnd: 80,
      onChange: () => this.#read(),
    });
    // A row that reaches into what is in sight grows where one reads: the browser's own anchoring
    // keeps that in place. Only rows wholly above would move it.
    virtualizer.shouldAdjustScrollPositionOnItemSizeChange = (item, _, it) => item.end <= (it.scrollOffset ?? 0);
    this.#virtualizer = virtualizer;
    this.#leave = virtualizer._didMount();
    virtualizer._willUpdate();
    this.#read();
    return () => {
      this.#leave?.();
      this.#virtualizer = undefined;
    };
  }

  /** The rows have changed: heights are forgotten, and those in sight tell theirs again. */
  update(count: number): void {
    const virtualizer = this.#virtualizer;
    if (!virtualizer) return;
    virtualizer.setOptions({ ...virtualizer.options, count });
    virtualizer.measure();
    this.#read();
    void tick().then(() => this.#rows.forEach((row) => this.#tell(row)));
  }

  /** For each drawn row: lets its height be known. */
  measure = (row: HTMLElement): (() => void) => {
    this.#rows.add(row);
    this.#heights.observe(row);
    this.#tell(row);
    return () => {
      this.#rows.delete(row);
      this.#heights.unobserve(row);
    };
  };

  #tell(row: HTMLElement): void {
    if (row.isConnected) this.#virtualizer?.resizeItem(Number(row.dataset["index"]), row.offsetHeight);
  }

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
