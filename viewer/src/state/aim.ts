/** Brings a place in the transcript into sight: a hit, what a finding is about, a token, an end. What it stands in is unfolded,
 * loaded and drawn first, and heights above it become known only then: so after each drawing the place
 * is looked for again, until the person scrolls. */
import type { Hit } from "../api/types";
import { mark, ranges, showing } from "../lib/marks";
import { places } from "../lib/text";
import type { Card } from "../lib/tree";
import type { Windowed } from "../lib/virtual.svelte";
import type { App } from "./app.svelte";
import { TOKENS, type Bodies } from "./bodies.svelte";

/** Characters or tokens of a message. */
export interface Stretch {
  message: number;
  start: number;
  end: number;
  tokens: boolean;
}

export type Target = { hit: Hit } | { stretch: Stretch } | { message: number; token: number } | { message: number } | { end: -1 | 1 };

interface Around {
  app: App;
  bodies: Bodies;
  windowed: Windowed;
  box: () => HTMLElement | undefined;
  cards: () => Card[];
  hits: () => Hit[];
  needles: () => RegExp[];
}

const messageOf = (target: Exclude<Target, { end: -1 | 1 }>): number => ("hit" in target ? target.hit.message : "stretch" in target ? target.stretch.message : target.message);

function contents(element: HTMLElement): Range {
  const range = document.createRange();
  range.selectNodeContents(element);
  return range;
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
    mark("hit-now", []);
    if (!("end" in target)) {
      const at = this.#card(messageOf(target));
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
    const n = messageOf(target);
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
      this.#toTokens(place, n, target.token);
    }
    else if ("stretch" in target) this.#toStretch(place, target.stretch);
    else if ("hit" in target) {
      if (lens && target.hit.token !== null && target.hit.where === "text" && this.#toTokens(place, n, target.hit.token, target.hit.token + 1)) return;
      this.#toHit(place, target.hit);
    }
  }

  #card(n: number): number {
    return this.around.cards().findIndex((card) => card.n === n || card.results.includes(n));
  }

  /** Has the message tokens with places? Goes to that one, and marks those before `end`. */
  #toTokens(place: HTMLElement, n: number, token: number, end = token): boolean {
    const block = this.around.bodies.tokens(n);
    if (!block) return true; // on the way
    if (!block.ends || token >= block.size) return false;
    const drawn = [...place.querySelectorAll<HTMLElement>(`[data-message="${n}"] [data-i]`)];
    const marked = drawn.filter(({ dataset }) => Number(dataset["i"]) >= token && Number(dataset["i"]) < end);
    if (marked.length) mark("hit-now", marked.map(contents));
    const found = drawn.find(({ dataset }) => Number(dataset["i"]) === token);
    if (found) {
      const rect = found.getBoundingClientRect();
      this.#center(rect.top, rect.height);
    } else this.#near(place.querySelector(`[data-tokens="${n}:${Math.floor(token / TOKENS)}"]`));
    return true;
  }

  /** The token that this character of a message lies in; null: in none; undefined: that is on the way. */
  #tokenAt(n: number, char: number): number | null | undefined {
    const { bodies } = this.around;
    const head = bodies.tokens(n);
    let [low, high] = [0, Math.ceil((head?.ends ? head.size : 0) / TOKENS) - 1];
    while (low <= high) {
      const middle = (low + high) >> 1;
      const block = bodies.tokens(n, middle);
      if (!block) return undefined;
      const at = block.ends?.findIndex((end) => char < end) ?? -1;
      if (char < block.text_start) high = middle - 1;
      else if (at < 0) low = middle + 1;
      else return block.start + at;
    }
    return head && null;
  }

  /** The characters that these tokens add to a message; null: not known, or not yet. */
  #charsOf({ message, start, end }: Stretch): [number, number] | null {
    const endOf = (token: number): number | undefined => {
      const block = this.around.bodies.tokens(message, Math.floor(token / TOKENS));
      return block?.ends?.[token - block.start];
    };
    const [from, to] = [start > 0 ? endOf(start - 1) : 0, endOf(end - 1)];
    return from === undefined || to === undefined ? null : [from, to];
  }

  #toStretch(place: HTMLElement, stretch: Stretch): void {
    const { app, bodies } = this.around;
    const n = stretch.message;
    const lens = app.s.view !== "text";
    if (lens && stretch.tokens && this.#toTokens(place, n, stretch.start, stretch.end)) return;
    const [start, end] = stretch.tokens ? (this.#charsOf(stretch) ?? [0, 0]) : [stretch.start, stretch.end];
    if (lens && !stretch.tokens) {
      const [first, last] = [this.#tokenAt(n, start), this.#tokenAt(n, end - 1)];
      if (first === undefined || last === undefined) return;
      if (first !== null && this.#toTokens(place, n, first, (last ?? first) + 1)) return;
    }
    const passages = bodies.body(n)?.passages ?? [];
    const passage = passages.find((p) => p.start < end && start < p.end);
    if (!passage) return; // not here yet, or in a mark around a thought: the card is in sight
    const edges = passages.flatMap((p) => (lens ? p.cuts : [...p.cuts, p.end]));
    const drawn = [...place.querySelectorAll<HTMLElement>(`[data-piece^="${n}:"]:not(.wait)`)].flatMap((piece) => {
      const from = Number(piece.dataset["piece"]?.split(":")[1]);
      const to = edges.find((edge) => edge > from) ?? bodies.body(n)?.chars ?? from;
      const text = from < end && start < to ? bodies.text(n, from, to) : undefined;
      if (text === undefined) return [];
      const at = places(text);
      const range = showing(piece, text, at(start - from), at(end - from));
      return range ? [{ piece, range }] : [];
    });
    mark("hit-now", drawn.map(({ range }) => range));
    const here = this.#pieceAt(place, n, Math.max(start, passage.start));
    if (!here) return;
    const range = drawn.find(({ piece }) => piece === here.piece)?.range;
    if (!range && this.#isCut(here)) return this.#unfold([here.key]);
    const rect = (range ?? here.piece).getBoundingClientRect();
    this.#center(rect.top, rect.height);
  }

  /** The drawn piece in which this character of a message stands. Null: it is being unfolded or loaded, or
   * the character belongs to a mark around a thought. */
  #pieceAt(place: HTMLElement, n: number, char: number): { piece: HTMLElement; key: string; start: number; end: number } | null {
    const { app, bodies } = this.around;
    const passages = bodies.body(n)?.passages ?? [];
    const at = passages.findIndex((p) => p.start <= char && char < p.end);
    const passage = passages[at];
    if (!passage) return null;
    const lens = app.s.view !== "text";
    const [key, thought] = [`text:${n}.${at}`, `think:${n}.${at}`];
    if (!lens && passage.kind === "thinking" && app.folded(thought, app.folded("thinking", true))) return this.#unfold([thought]), null;
    const k = passage.cuts.findLastIndex((cut) => cut <= char);
    const [start, end] = [passage.cuts[k] ?? passage.start, passage.cuts[k + 1] ?? passage.end];
    const piece = place.querySelector<HTMLElement>(`[data-piece="${n}:${start}"]`) ?? (lens && start === passage.start ? place.querySelector<HTMLElement>(`[data-piece="${n}:0"]`) : null);
    if (piece && !piece.classList.contains("wait")) return { piece, key, start, end };
    if (piece) this.#near(piece);
    else if (this.#isFolded(key)) this.#unfold([key]);
    return null;
  }

  #toHit(place: HTMLElement, hit: Hit): void {
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
    const here = this.#pieceAt(place, n, hit.start);
    if (!here) return;
    const { piece, key, start, end } = here;
    const before = mine.filter((other) => other.start >= start && (other.start < hit.start || (other.start === hit.start && other.end < hit.end))).length;
    const found = ranges(piece, this.around.needles());
    const range = found[before];
    if (range) return this.#show(range);
    if (this.#isCut(here)) return this.#unfold([key]);
    // It stands where the drawing leaves something out (the address of a link): about there.
    const last = found.at(-1);
    if (last) return this.#show(last);
    const box = piece.getBoundingClientRect();
    this.#center(box.top + (box.height * (hit.start - start)) / Math.max(1, end - start), 20);
  }

  #isFolded(key: string): boolean {
    return this.around.app.folded(key, true);
  }

  /** Is more of it to be shown? */
  #isCut({ piece, key }: { piece: HTMLElement; key: string }): boolean {
    return this.#isFolded(key) && piece.querySelector("button.more") !== null;
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
    const tall = Math.min(height, frame.height - 2 * MARGIN); // of what is taller the beginning
    if (from >= MARGIN && from + tall <= frame.height - MARGIN) return;
    box.scrollTop += from - (frame.height - tall) / 2;
  }
}
