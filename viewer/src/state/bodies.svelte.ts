/** The messages of the rollout in sight, in windows: only those near are in memory. */
import { WINDOW, type Api } from "../api/client";
import type { Body, Bodies as Came, TokenBlock, TokenBlocks } from "../api/types";
import { stretch } from "../lib/text";

/** Tokens of one message that are drawn together. */
export const TOKENS = 400;
const TOKEN_WINDOW = 8; // messages whose first tokens come in one answer
const KEPT = 25; // windows of messages; with texts cut at 20,000 characters that is at most 20 MB
const PIECES = 400; // of texts, of 8,000 characters
const BLOCKS = 400; // of tokens

/** What was used last stays. */
class Kept<V> {
  #all = new Map<string, V>();
  constructor(readonly most: number) {}

  get(key: string): V | undefined {
    const found = this.#all.get(key);
    if (found !== undefined) {
      this.#all.delete(key);
      this.#all.set(key, found);
    }
    return found;
  }

  set(key: string, value: V): void {
    this.#all.set(key, value);
    const oldest = this.#all.keys().next().value;
    if (this.#all.size > this.most && oldest !== undefined) this.#all.delete(oldest);
  }
}

class Memory {
  readonly windows = new Kept<Body[]>(KEPT);
  readonly tokens = new Kept<TokenBlock>(BLOCKS);
  readonly pieces = new Kept<string>(PIECES);
}

export class Bodies {
  version = $state(0);
  #api: Api;
  #id = "";
  #now = new Memory();
  /** Of a rollout that has grown: what is shown until it is here again. */
  #old: Memory | undefined;
  #asked = new Set<string>();
  #stop = new AbortController();
  #ahead: { id: string; first: number; stop: AbortController; came: Promise<TokenBlocks | undefined> } | undefined;

  constructor(api: Api) {
    this.#api = api;
  }

  /** Turns to a rollout. `again`: it has grown, what is loaded may be old. `came`: messages that
   * came with it already. */
  turn(id: string, again: boolean, came: Came | null): void {
    if (id === this.#id && !again) return;
    this.#stop.abort();
    this.#stop = new AbortController();
    this.#asked.clear();
    this.#old = id === this.#id ? this.#now : undefined;
    this.#now = new Memory();
    this.#id = id;
    if (came) this.#now.windows.set(String(came.first / WINDOW), came.messages);
    this.version++;
  }

  /** Asks for the first tokens around message `n` of a rollout that is on its way, so that they come
   * with it and not after it. */
  ahead(id: string, n: number): void {
    if (id === this.#id || id === this.#ahead?.id) return;
    this.#ahead?.stop.abort();
    const stop = new AbortController();
    const first = TOKEN_WINDOW * Math.floor(n / TOKEN_WINDOW);
    const came = this.#api.tokens(id, { first, count: TOKEN_WINDOW, start: 0, most: TOKENS }, stop.signal).catch(() => undefined);
    this.#ahead = { id, first, stop, came };
  }

  body(n: number): Body | undefined {
    const window = Math.floor(n / WINDOW);
    const bodies = this.#now.windows.get(String(window));
    if (!bodies) this.#load(window);
    return (bodies ?? this.#old?.windows.get(String(window)))?.[n % WINDOW];
  }

  /** Characters `start` to `end` of what message `n` says; undefined until they are here. */
  text(n: number, start: number, end: number): string | undefined {
    const body = this.body(n);
    if (!body) return undefined;
    if (Math.min(end, body.chars) <= FIRST) return stretch(body.text ?? "", start, end);
    const key = `${n}:${start}:${end}`;
    const found = this.#now.pieces.get(key);
    if (found === undefined)
      this.#ask(`p${key}`, async (signal) => {
        const { text } = await this.#api.text(this.#id, n, start, end - start, signal);
        return () => this.#now.pieces.set(key, text);
      });
    return found ?? this.#old?.pieces.get(key);
  }

  /** All that message `n` says, also what is not here. */
  async whole(body: Body): Promise<string> {
    if (body.chars <= FIRST) return body.text ?? "";
    const id = this.#id;
    let text = "";
    for (let at = 0; at < body.chars; at += MOST) text += (await this.#api.text(id, body.n, at, MOST)).text;
    return text;
  }

  /** Tokens of message `n` from number `window * TOKENS` on; without ids where it has none. */
  tokens(n: number, window = 0): TokenBlock | undefined {
    const block = this.#now.tokens.get(`${n}:${window}`);
    if (block) return block;
    // The beginnings of short messages come together.
    const first = window ? n : TOKEN_WINDOW * Math.floor(n / TOKEN_WINDOW);
    const count = window ? 1 : TOKEN_WINDOW;
    this.#ask(`t${first}:${window}`, async (signal) => {
      const early = window ? undefined : await this.#taken(first);
      const { messages } = early ?? (await this.#api.tokens(this.#id, { first, count, start: window * TOKENS, most: TOKENS }, signal));
      const came = new Map(messages.map((m) => [m.n, m]));
      return () => {
        for (let k = first; k < first + count; k++) {
          const block = came.get(k);
          // A rollout that goes on may have grown since its tokens were asked for: those are asked for again.
          if (block || !early || !this.body(k)?.tokens) this.#now.tokens.set(`${k}:${window}`, block ?? { ...NONE, n: k });
        }
      };
    });
    return this.#old?.tokens.get(`${n}:${window}`);
  }

  /** What was asked for ahead of this rollout, once. */
  #taken(first: number): Promise<TokenBlocks | undefined> | undefined {
    const ahead = this.#ahead;
    if (ahead?.id !== this.#id || ahead.first !== first) return undefined;
    this.#ahead = undefined;
    return ahead.came;
  }

  #load(window: number): void {
    this.#ask(`m${window}`, async (signal) => {
      const { messages } = await this.#api.messages(this.#id, window * WINDOW, WINDOW, signal);
      return () => this.#now.windows.set(String(window), messages);
    });
  }

  /** Asks for something once; what did not come may be asked for again a little later. */
  #ask(key: string, get: (signal: AbortSignal) => Promise<() => void>): void {
    if (this.#asked.has(key)) return;
    this.#asked.add(key);
    const { signal } = this.#stop;
    get(signal).then(
      (keep) => {
        if (signal.aborted) return;
        keep();
        this.#asked.delete(key);
        this.version++;
      },
      () => {
        if (!signal.aborted) setTimeout(() => this.#asked.delete(key), 2000);
      },
    );
  }
}

const MOST = 200_000; // characters in one answer
const FIRST = 20_000; // characters of a text that come with its message
const NONE = { size: 0, start: 0, text: "", text_start: 0, left: 0, ids: null, ends: null, marks: {}, streams: {} };
