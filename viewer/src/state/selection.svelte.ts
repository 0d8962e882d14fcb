/** The rollouts that the query selects: a window of them, however many there are. */
import type { Api } from "../api/client";
import type { Row } from "../api/types";
import { needles } from "../lib/query";

const PAGE = 100;
const KEPT = 30; // pages kept in memory: about 3,000 rows

export class Selection {
  count = $state<number | null>(null);
  superseded = $state(0);
  error = $state.raw<Error | undefined>();
  /** Goes up whenever rows have arrived. */
  version = $state(0);
  /** A text search that is still going on: how far it is. */
  searching = $state.raw<{ scanned: number; total: number } | null>(null);
  generation = "";

  #api: Api;
  #q = "";
  #order = "";
  #pages = new Map<number, Row[]>();
  #asked = new Map<number, AbortController>();
  #search: AbortController | undefined;
  #found: Row[] | null = null;
  #far = new Map<string, number>();
  #lost = new Set<string>();

  constructor(api: Api) {
    this.#api = api;
  }

  get q(): string {
    return this.#q;
  }

  /** Selects anew. */
  select(q: string, order: string): void {
    if (q === this.#q && order === this.#order && this.count !== null) return;
    this.#q = q;
    this.#order = order;
    this.cancel();
    this.#pages.clear();
    this.#far.clear();
    this.#lost.clear();
    this.#found = null;
    this.count = null;
    this.error = undefined;
    this.version++;
    if (!this.#api.fixed && !order && needles(q).length > 0) void this.#stream();
    else void this.#load(0);
  }

  /** The store has grown: what is in sight is asked for again and replaced when it comes. */
  refresh(first: number): void {
    if (this.#found) return;
    const page = Math.floor(first / PAGE);
    for (const other of [...this.#pages.keys()]) if (Math.abs(other - page) > 1) this.#pages.delete(other);
    void this.#load(page, true);
  }

  /** The row at a place, if it is loaded; asks for it if not. */
  row(at: number): Row | undefined {
    if (this.#found) return this.#found[at];
    const page = Math.floor(at / PAGE);
    const rows = this.#pages.get(page);
    if (!rows) void this.#load(page);
    return rows?.[at % PAGE];
  }

  /** The place of a rollout, also far from what is loaded; its page is loaded then. */
  async locate(id: string): Promise<number | null> {
    const near = this.place(id);
    if (near !== null || this.#found || this.#lost.has(id)) return near;
    this.#lost.add(id); // asked once; found again below
    const { at } = await this.#api.place(id, this.#q, this.#order);
    if (at !== null) {
      this.#far.set(id, at);
      await this.#load(Math.floor(at / PAGE));
    }
    return at;
  }

  /** The place of a rollout among the loaded rows. */
  place(id: string): number | null {
    if (this.#found) {
      const at = this.#found.findIndex((row) => row.id === id);
      return at < 0 ? null : at;
    }
    for (const [page, rows] of this.#pages) {
      const at = rows.findIndex((row) => row.id === id);
      if (at >= 0) return page * PAGE + at;
    }
    return this.#far.get(id) ?? null;
  }

  /** Waits for a row. */
  async fetch(at: number): Promise<Row | undefined> {
    if (!this.#found && !this.#pages.has(Math.floor(at / PAGE))) await this.#load(Math.floor(at / PAGE));
    return this.row(at);
  }

  /** Stops what is under way. */
  cancel(): void {
    this.#search?.abort();
    this.#search = undefined;
    this.searching = null;
    for (const asked of this.#asked.values()) asked.abort();
    this.#asked.clear();
  }

  async #load(page: number, again = false): Promise<void> {
    if (page < 0 || (this.#asked.has(page) && !again)) return;
    const asked = new AbortController();
    this.#asked.set(page, asked);
    try {
      const answer = await this.#api.rollouts({ q: this.#q, order: this.#order, at: page * PAGE, limit: PAGE }, asked.signal);
      if (asked.signal.aborted) return;
      this.#pages.delete(page);
      this.#pages.set(page, answer.rows);
      const oldest = this.#pages.keys().next().value;
      if (this.#pages.size > KEPT && oldest !== undefined) this.#pages.delete(oldest);
      this.count = answer.count;
      this.superseded = answer.superseded;
      this.generation = answer.generation;
      this.error = undefined;
      this.version++;
    } catch (error) {
      if (asked.signal.aborted) return;
      this.error = error as Error;
      this.count ??= 0;
      this.#pages.set(page, []); // not asked again and again
    } finally {
      if (this.#asked.get(page) === asked) this.#asked.delete(page);
    }
  }

  async #stream(): Promise<void> {
    const search = new AbortController();
    this.#search = search;
    const found: Row[] = [];
    this.#found = found;
    this.searching = { scanned: 0, total: 0 };
    try {
      await this.#api.search(
        this.#q,
        (news) => {
          if (search.signal.aborted) return;
          found.push(...news.rows);
          this.count = found.length;
          this.searching = news.done ? null : { scanned: news.scanned, total: news.total };
          this.version++;
        },
        search.signal,
      );
    } catch (error) {
      if (search.signal.aborted) return;
      this.error = error as Error;
      this.count ??= 0;
    }
    if (this.#search === search) this.searching = null;
  }
}
