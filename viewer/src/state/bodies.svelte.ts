/** The messages of the rollout in sight, in windows: only those near are in memory. */
import { WINDOW, type Api } from "../api/client";
import type { Body, Bodies as Came, TokenBlock } from "../api/types";

const TOKEN_WINDOW = 8;
const KEPT = 25; // windows; with bodies cut at 20,000 characters that is at most 20 MB

export class Bodies {
  version = $state(0);
  #api: Api;
  #id = "";
  #windows = new Map<number, Body[]>();
  #tokens = new Map<number, TokenBlock>();
  #asked = new Set<string>();
  #stop = new AbortController();
  #rest = new Map<number, string>();

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
    this.#tokens.clear();
    this.#rest.clear();
    if (id !== this.#id) this.#windows.clear();
    this.#id = id;
    if (came) {
      const window = came.first / WINDOW;
      this.#windows.set(window, came.messages);
      this.#asked.add(`m${window}`);
    }
    if (again) for (const window of this.#windows.keys()) void this.#load(window);
    this.version++;
  }

  body(n: number): Body | undefined {
    const window = Math.floor(n / WINDOW);
    const bodies = this.#windows.get(window);
    if (!bodies) void this.#load(window);
    const body = bodies?.[n % WINDOW];
    const rest = this.#rest.get(n);
    return body && rest !== undefined ? { ...body, text: (body.text ?? "") + rest } : body;
  }

  /** The tokens of a message; null when it has none. */
  tokens(n: number): TokenBlock | undefined {
    const block = this.#tokens.get(n);
    if (!block) void this.#loadTokens(Math.floor(n / TOKEN_WINDOW));
    return block;
  }

  /** More of a text that was cut. */
  async more(n: number): Promise<void> {
    const key = `r${n}`;
    if (this.#asked.has(key)) return;
    this.#asked.add(key);
    const [have, signal] = [this.body(n)?.text ?? "", this.#stop.signal];
    try {
      const body = await this.#api.text(this.#id, n, [...have].length, signal);
      if (signal.aborted) return;
      this.#rest.set(n, (this.#rest.get(n) ?? "") + (body.text ?? ""));
      this.version++;
    } finally {
      if (!signal.aborted) this.#asked.delete(key);
    }
  }

  async #load(window: number): Promise<void> {
    const key = `m${window}`;
    if (this.#asked.has(key)) return;
    this.#asked.add(key);
    const signal = this.#stop.signal;
    try {
      const answer = await this.#api.messages(this.#id, window * WINDOW, WINDOW, signal);
      if (signal.aborted) return;
      this.#windows.delete(window);
      this.#windows.set(window, answer.messages);
      const oldest = this.#windows.keys().next().value;
      if (this.#windows.size > KEPT && oldest !== undefined) {
        this.#windows.delete(oldest);
        this.#asked.delete(`m${oldest}`);
      }
      this.version++;
    } catch {
      if (!signal.aborted) setTimeout(() => this.#asked.delete(key), 2000);
    }
  }

  async #loadTokens(window: number): Promise<void> {
    const key = `t${window}`;
    if (this.#asked.has(key)) return;
    this.#asked.add(key);
    const signal = this.#stop.signal;
    try {
      const answer = await this.#api.tokens(this.#id, window * TOKEN_WINDOW, TOKEN_WINDOW, signal);
      if (signal.aborted) return;
      for (const block of answer.messages) this.#tokens.set(block.n, block);
      for (let n = window * TOKEN_WINDOW; n < (window + 1) * TOKEN_WINDOW; n++) {
        if (!this.#tokens.has(n)) this.#tokens.set(n, { n, ids: null, ends: null, marks: {}, streams: {} });
      }
      this.version++;
    } catch {
      if (!signal.aborted) setTimeout(() => this.#asked.delete(key), 2000);
    }
  }
}
