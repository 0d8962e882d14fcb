/** The rollouts that the query selects: a window of them, however many there are. */
import { Refused, type Api } from "../api/client";
import type { ListedRow, RolloutRow } from "../api/types";
import { sorter, sorts } from "../lib/filter";
import { needles } from "../lib/whole";

const PAGE = 100;
const KEPT = 30; // pages kept in memory: about 3,000 rows
const AGAIN = 2000; // milliseconds until rows that did not come are asked for again

interface Page {
  rows: ListedRow[];
  /** The columns that it was asked for with. */
  columns: string[];
  /** Which question it answers: an older answer does not replace a newer one. */
  asked: number;
}

export class Selection {
  count = $state<number | null>(null);
  superseded = $state(0);
  error = $state.raw<Error | undefined>();
  /** The rows are still those of the selection before: they stay until the new ones are here. */
  stale = $state(false);
  /** Goes up whenever rows have arrived. */
  version = $state(0);
  /** A text search that is still going on: how far it is. */
  searching = $state.raw<{ scanned: number; total: number } | null>(null);
  /** How far a text search was when the person stopped it. */
  stopped = $state.raw<{ scanned: number; total: number } | null>(null);
  /** A text search ended with as many as the page holds: there may be others. */
  more = $state(false);
  /** The first row in sight. */
  top = $state(0);
  generation = "";

  #api: Api;
  #q = "";
  #order = "";
  #columns: string[] = [];
  #pages = new Map<number, Page>();
  #asked = new Map<number, { stop: AbortController; done: Promise<void> }>();
  #first: Promise<void> = Promise.resolve();
  #search: AbortController | undefined;
  /** A sorted text search that has found more than the page holds: the server sorts it. */
  #many = "";
  #found: RolloutRow[] | null = null;
  #questions = 0;
  #far = new Map<string, number>();
  #looked = new Map<string, Promise<number | null>>();

  constructor(api: Api) {
    this.#api = api;
  }

  get q(): string {
    return this.#q;
  }

  get order(): string {
    return this.#order;
  }

  /** Are its first rows here, and nothing more to come by itself? */
  get ready(): boolean {
    return this.count !== null && !this.stale && this.searching === null;
  }

  /** Is it known which rollouts are in it? */
  get whole(): boolean {
    return this.ready && !this.error && !this.stopped && !this.more;
  }

  /** What a text search has found so far; null: this selection is none. */
  get found(): RolloutRow[] | null {
    return this.stale ? null : this.#found;
  }

  /** Is it looked for in texts, and told as it is found? */
  streams(q: string, order: string): boolean {
    return needles(q).length > 0 && sorts(order) && this.#many !== `${q}\n${order}`;
  }

  /** Selects anew. Rows that lack a column are asked for again when they come in sight. */
  select(q: string, order: string, columns: string[]): void {
    if (String(columns) !== String(this.#columns)) {
      this.#columns = columns;
      this.version++;
    }
    if (q === this.#q && order === this.#order && this.count !== null) return;
    this.#q = q;
    this.#order = order;
    this.cancel();
    this.stopped = null;
    this.more = false;
    this.#far.clear();
    this.#looked.clear();
    this.error = undefined;
    if (this.streams(q, order)) {
      this.#drop(); // the first may take seconds: old rows would be taken for found ones
      void this.#stream();
    } else {
      this.stale = this.count !== null;
      this.#first = this.#load(0);
    }
  }

  /** Forgets the rows. */
  #drop(): void {
    this.#pages.clear();
    this.#found = null;
    this.count = null;
    this.superseded = 0;
    this.stale = false;
    this.version++;
  }

  /** The store has grown: the rows in sight are asked for again, and replaced when they come. */
  refresh(): void {
    if (this.#found || this.stale) return;
    this.#far.clear();
    this.#looked.clear();
    const page = Math.floor(this.top / PAGE);
    for (const other of [...this.#pages.keys()]) {
      // One is always asked for: it tells how many there are.
      if (other === page || other === page + 1 || this.#pages.size === 1) void this.#load(other, true);
      else this.#pages.delete(other);
    }
  }

  /** The person asks for news. This repeats even a text search, which reads everything. */
  again(): void {
    if (!this.#found) return this.refresh();
    this.cancel();
    this.stopped = null;
    this.more = false;
    this.#drop();
    void this.#stream();
  }

  /** The row at a place, if it is loaded; asks for it if not. */
  row(at: number): ListedRow | undefined {
    if (this.#found) return this.#found[at];
    const page = Math.floor(at / PAGE);
    const known = this.#pages.get(page);
    if (known?.columns !== this.#columns && !this.stale) {
      this.#leave(page);
      void this.#load(page);
    }
    return known?.rows[at % PAGE];
  }

  /** Stops asking for pages that were scrolled past. */
  #leave(page: number): void {
    for (const [other, { stop }] of this.#asked) {
      if (Math.abs(other - page) <= 1) continue;
      stop.abort();
      this.#asked.delete(other);
    }
  }

  /** The place of a rollout, even far from the loaded rows; its page is then loaded. */
  async locate(id: string): Promise<number | null> {
    await this.#first;
    const near = this.place(id);
    if (near !== null || this.#found) return near;
    const looked = this.#looked.get(id) ?? this.#look(id);
    this.#looked.set(id, looked); // asked once
    looked.catch(() => this.#looked.delete(id));
    return looked;
  }

  async #look(id: string): Promise<number | null> {
    const [q, order] = [this.#q, this.#order];
    const { at } = await this.#api.place(id, q, order);
    if (q !== this.#q || order !== this.#order) return null; // its place was in another selection
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
    for (const [page, { rows }] of this.#pages) {
      const at = rows.findIndex((row) => row.id === id);
      if (at >= 0) return page * PAGE + at;
    }
    return this.#far.get(id) ?? null;
  }

  /** Waits for a row. */
  async fetch(at: number): Promise<ListedRow | undefined> {
    await this.#first;
    const page = Math.floor(at / PAGE);
    while (!this.#found && !this.#pages.has(page)) await this.#load(page);
    return this.row(at);
  }

  /** Ends a text search before it has read everything; what it has found stays. */
  stop(): void {
    this.stopped = this.searching;
    this.cancel();
  }

  /** Stops all requests under way. */
  cancel(): void {
    this.#search?.abort();
    this.#search = undefined;
    this.searching = null;
    if (this.#found) this.count ??= 0;
    for (const { stop } of this.#asked.values()) stop.abort();
    this.#asked.clear();
  }

  /** Asks for a page, unless that is under way. */
  #load(page: number, again = false): Promise<void> {
    const asked = this.#asked.get(page);
    if (asked && !again) return asked.done;
    const stop = new AbortController();
    const done = this.#fetch(page, stop.signal).finally(() => {
      if (this.#asked.get(page)?.stop === stop) this.#asked.delete(page);
    });
    this.#asked.set(page, { stop, done });
    return done;
  }

  async #fetch(page: number, signal: AbortSignal): Promise<void> {
    const [columns, asked] = [this.#columns, ++this.#questions];
    try {
      const answer = await this.#api.rollouts({ q: this.#q, order: this.#order, at: page * PAGE, limit: PAGE, columns }, signal);
      if (signal.aborted) return;
      if (this.stale) this.#drop();
      if ((this.#pages.get(page)?.asked ?? 0) > asked) return;
      this.#pages.delete(page);
      this.#pages.set(page, { rows: answer.rows, columns, asked });
      const oldest = this.#pages.keys().next().value;
      if (this.#pages.size > KEPT && oldest !== undefined) this.#pages.delete(oldest);
      this.count = answer.count;
      this.superseded = answer.superseded;
      this.generation = answer.generation;
      this.error = undefined;
      this.version++;
    } catch (error) {
      if (signal.aborted) return;
      if (this.stale) this.#drop();
      this.error = error as Error;
      this.count ??= 0;
      const none: Page = { rows: [], columns, asked };
      this.#pages.set(page, none); // not asked again and again
      if (error instanceof Refused && error.status < 500) return; // nor ever
      setTimeout(() => this.#pages.get(page) === none && void this.#load(page, true), AGAIN);
    }
  }

  async #stream(): Promise<void> {
    const search = new AbortController();
    const [q, order] = [this.#q, this.#order];
    const sorted = sorter(order);
    this.#search = search;
    this.#found = [];
    this.searching = { scanned: 0, total: 0 };
    try {
      await this.#api.search(
        q,
        (news) => {
          if (search.signal.aborted) return;
          if (news.rows.length) this.#found = sorted([...(this.#found ?? []), ...news.rows]);
          const found = this.#found?.length ?? 0;
          if (found || news.done) this.count = found; // none yet is not none
          this.searching = news.done ? null : { scanned: news.scanned, total: news.total };
          if (news.stopped) this.stopped = { scanned: news.scanned, total: news.total };
          this.more = news.more;
          this.version++;
        },
        search.signal,
      );
    } catch (error) {
      if (search.signal.aborted) return;
      if (!(error instanceof Refused)) this.stopped = this.searching; // what it found is not all
      this.error = error as Error;
      this.count ??= 0;
    }
    if (this.#search !== search) return;
    this.searching = null;
    if (this.more && order) {
      this.#many = `${q}\n${order}`;
      this.more = false;
      this.stale = true;
      this.#first = this.#load(0);
    }
  }
}
