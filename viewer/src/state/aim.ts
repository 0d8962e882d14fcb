/** Brings a place in the transcript into sight: a hit, a token, an end. What it stands in is unfolded,
 * loaded and drawn first, and heights above it become known only then: so after each drawing the place
 * is looked for again, until the person scrolls. */
import type { Hit } from "../api/types";
import { mark, ranges } from "../lib/marks";
import type { Card } from "../lib/tree";
import type { Windowed } from "../lib/virtual.svelte";
import type { App } from "./app.svelte";
import { TOKENS, type Bodies } from "./bodies.svelte";

export type Target = { hit: Hit } | { message: number; token: number } | { message: number } | { end: -1 | 1 };

interface Around {
  app: App;
  bodies: Bodies;
  windowed: Windowed;
  box: () => HTMLElement | undefined;
  cards: () => Card[];
  hits: () => Hit[];
  needles: () => RegExp[];
}

const MARGIN = 48; // pixels between a place in sight and the edge
const MOVES = ["wheel", "touchmove", "pointerdown"];

export class Aim {
  #target: Target | null = null;
  #follows = false;

  constructor(readonly around: Around) {}

  /** Goes there, and stays there until the person moves on. */
  go(target: Target): void {
    this.#target = target;
    this.#follows = true;
    if ("message" in target || "hit" in target) {
      const at = this.#card("hit" in target ? target.hit.message : target.message);
      if (at >= 0) this.around.windowed.show(at);
    }
    this.settle();
  }

  forget(): void {
    this.#target = null;
    mark("hit-now", []);
  }

  /** Lets go when the person scrolls by themselves; returns how to stop. */
  watch(box: HTMLElement): () => void {
    const free = (): void => void (this.#follows = false);
    for (const name of MOVES) box.addEventListener(name, free, { passive: true });
    return () => MOVES.forEach((name) => box.removeEventListener(name, free));
  }

  /** After each drawing: one step nearer. */
  settle(): void {
    const [target, box] = [this.#target, this.around.box()];
    if (!target || !box) return;
    if ("end" in target) {
      if (this.#follows) box.scrollTop = target.end < 0 ? 0 : box.scrollHeight;
      return;
    }
    const n = "hit" in target ? target.hit.message : target.message;
    const at = this.#card(n);
    const card = this.around.cards()[at];
    if (!card) return;
    const { app, windowed } = this.around;
    if (app.cardFolded(card)) return void (this.#follows && app.fold(`card:${card.n}`, false));
    const place = box.querySelector<HTMLElement>(`.place[data-index="${at}"]`);
    if (!place) return void (this.#follows && windowed.show(at));
    const lens = app.s.view !== "text";
    if ("token" in target) {
      mark("hit-now", []); // its frame says which it is; the colour says what it is
      this.#toToken(place, n, target.token, false);
    }
    else if ("hit" in target) {
      if (lens && target.hit.token !== null && target.hit.where === "text" && this.#toToken(place, n, target.hit.token)) return;
      this.#toHit(place, target.hit, card);
    }
  }

  #card(n: number): number {
    return this.around.cards().findIndex((card) => card.n === n || card.results.includes(n));
  }

  /** Has the message tokens with places? Goes to that one. */
  #toToken(place: HTMLElement, n: number, token: number, marked = true): boolean {
    const block = this.around.bodies.tokens(n);
    if (!block) return true; // on the way
    if (!block.ends || token >= block.size) return false;
    const found = place.querySelector(`[data-message="${n}"] [data-i="${token}"]`);
    if (found) {
      const range = document.createRange();
      range.selectNodeContents(found);
      if (marked) mark("hit-now", [range]);
      const rect = found.getBoundingClientRect();
      this.#center(rect.top, rect.height);
    } else this.#near(place.querySelector(`[data-tokens="${n}:${Math.floor(token / TOKENS)}"]`));
    return true;
  }

  #toHit(place: HTMLElement, hit: Hit, card: Card): void {
    const n = hit.message;
    const mine = this.around.hits().filter((other) => other.message === n && other.where === hit.where);
    if (hit.where !== "text") {
      const calls = [...place.querySelectorAll<HTMLElement>(`[data-call^="${n}."]`)];
      const found = calls.flatMap((call) => ranges(call, this.around.needles()));
      const range = found[mine.indexOf(hit)];
      if (range) return this.#show(range);
      const folded = calls.map((call) => `text:${call.dataset["call"]}.call`).filter((key) => this.#isFolded(key));
      if (folded.length) return this.#unfold(folded);
      return this.#near(calls[0] ?? place);
    }
    const body = this.around.bodies.body(n);
    if (!body) return;
    const at = body.passages.findIndex((p) => p.start <= hit.start && hit.start < p.end);
    const passage = body.passages[at];
    if (!passage) return; // in a mark around a thought: the card is in sight
    const lens = this.around.app.s.view !== "text";
    if (!lens && passage.kind === "thinking" && this.around.app.folded(`think:${n}.${at}`, this.around.app.folded("thinking", true))) return this.#unfold([`think:${n}.${at}`]);
    const k = passage.cuts.findLastIndex((cut) => cut <= hit.start);
    const [start, end] = [passage.cuts[k] ?? passage.start, passage.cuts[k + 1] ?? passage.end];
    const key = `text:${n}.${at}`;
    const piece = place.querySelector<HTMLElement>(`[data-piece="${n}:${start}"]`) ?? (lens && start === passage.start ? place.querySelector<HTMLElement>(`[data-piece="${n}:0"]`) : null);
    if (!piece) return this.#isFolded(key) && card ? this.#unfold([key]) : undefined;
    if (piece.classList.contains("wait")) return this.#near(piece);
    const before = mine.filter((other) => other.start >= start && (other.start < hit.start || (other.start === hit.start && other.end < hit.end))).length;
    const found = ranges(piece, this.around.needles());
    const range = found[before];
    if (range) return this.#show(range);
    if (this.#isFolded(key) && piece.querySelector("button.more")) return this.#unfold([key]);
    // It stands where the drawing leaves something out (the address of a link): about there.
    const last = found.at(-1);
    if (last) return this.#show(last);
    const box = piece.getBoundingClientRect();
    this.#center(box.top + (box.height * (hit.start - start)) / Math.max(1, end - start), 20);
  }

  #isFolded(key: string): boolean {
    return this.around.app.folded(key, true);
  }

  #unfold(keys: string[]): void {
    if (this.#follows) for (const key of keys) this.around.app.fold(key, false);
  }

  #near(element: Element | null | undefined): void {
    if (!element) return;
    const { top } = element.getBoundingClientRect();
    this.#center(top, 20);
  }

  #show(range: Range): void {
    mark("hit-now", [range]);
    const rect = range.getBoundingClientRect();
    this.#center(rect.top, rect.height);
  }

  /** Scrolls so that this height is in sight, in the middle unless it is already. */
  #center(top: number, height: number): void {
    const box = this.around.box();
    if (!box || !this.#follows) return;
    const frame = box.getBoundingClientRect();
    const from = top - frame.top;
    if (from >= MARGIN && from + height <= frame.height - MARGIN) return;
    box.scrollTop += from - (frame.height - Math.min(height, frame.height)) / 2;
  }
}
