/** What the page knows: its address, the selection, the rollout in sight, and what is live. */
import { LOCKED, WINDOW, type Api } from "../api/client";
import type { Compared, Detail, Names, ShownNeighbours, RolloutRow, ListedRun, Status } from "../api/types";
import { asCommand, asPython } from "../lib/asked";
import type { Card } from "../lib/tree";
import { ownPart, runsOf } from "../lib/query";
import { Resource } from "./resource.svelte";
import { Selection } from "./selection.svelte";
import { emit } from "./keys";
import { read, write, type Screen, type State } from "./url";

/** Screens that show one rollout. */
const READING = new Set<Screen>(["read", "group", "spans", "compare"]);

/** A system message of more characters is long. */
const LONG = 1200;

/** Browsers have a clipboard only for pages that came by https or from this machine; the older way
 * works on the others, too. */
async function toClipboard(text: string): Promise<void> {
  if (isSecureContext) return navigator.clipboard.writeText(text);
  const box = document.createElement("textarea");
  box.value = text;
  document.body.append(box);
  box.select();
  const copied = document.execCommand("copy");
  box.remove();
  if (!copied) throw new Error("not copied");
}

export class App {
  s = $state.raw<State>(read(location.search));
  status = $state.raw<Status | undefined>();
  runs = $state.raw<ListedRun[]>([]);
  /** Is there a line to the server; null: not yet known. */
  live = $state<boolean | null>(null);
  /** Rollouts that came since the person last looked. */
  fresh = $state(0);
  generation = $state("");
  /** The last thing said at the bottom of the page. */
  said = $state("");
  locked = $state(false);
  failed = $state("");
  dialog = $state<"" | "help" | "label" | "columns">("");

  /** A query for which there is no place to begin reading. */
  nowhere = $state<string | null>(null);

  readonly selection: Selection;
  readonly detail = new Resource<Detail>();
  readonly neighbours = new Resource<ShownNeighbours>();
  readonly compared = new Resource<Compared>();
  /** Keys of the user's own that the runs in the selection have. */
  readonly names = new Resource<Names>();
  #quiet: ReturnType<typeof setTimeout> | undefined;
  #seen: number | null = null;
  #version = "";

  constructor(readonly api: Api) {
    this.selection = new Selection(api);
    addEventListener("popstate", () => {
      this.s = read(location.search);
      this.dialog = ""; // its text was meant for the rollout that was in sight
    });
    addEventListener(LOCKED, () => (this.locked = true));
  }

  /** Changes the address. `replace`: without a new entry in the history. */
  go(change: Partial<State>, how: "push" | "replace" = "push"): void {
    this.#enter(this.#with(change), how);
  }

  /** Follows a link of the page; one to where the page is already leads back to what it marks. */
  visit(link: string): void {
    if (!this.#enter(read(link), "push")) emit("again", 0);
  }

  /** Tells whether the address is another one now. */
  #enter(next: State, how: "push" | "replace"): boolean {
    const address = write(next);
    if (address === write(this.s)) return false;
    this.s = next;
    history[how === "push" ? "pushState" : "replaceState"](null, "", address || location.pathname);
    return true;
  }

  /** The address of the page with these changes: a link to it needs nothing but `href`. */
  link(change: Partial<State>): string {
    return write(this.#with(change)) || "?";
  }

  /** Another rollout has other spans and branches, others compared part elsewhere, and only siblings
   * are read from the same turn on and folded alike, message by message. */
  #with(change: Partial<State>): State {
    const { id, compare, folds } = this.s;
    const next = { ...this.s };
    if (id && change.id !== undefined && change.id !== id) {
      next.span = "";
      next.leaf = null;
      const around = this.neighbours.old ? undefined : this.neighbours.value;
      if (!around?.siblings.some((row) => row.id === change.id)) {
        next.m = null;
        next.folds = Object.fromEntries(Object.entries(folds).filter(([key]) => !key.includes(":")));
      }
    }
    if (next.m === null || change.m !== undefined || (change.id !== undefined && change.id !== id)) next.mark = ""; // it stands in one message
    if (change.compare && change.compare.join() !== compare.join()) next.at = null;
    return { ...next, ...change };
  }

  filter(q: string, change: Partial<State> = {}): void {
    this.go({ q, ...change });
  }

  say(text: string): void {
    this.said = text;
    clearTimeout(this.#quiet);
    this.#quiet = setTimeout(() => (this.said = ""), 2600);
  }

  async copy(text: string, what: string): Promise<void> {
    try {
      await toClipboard(text);
      this.say(`${what} copied`);
    } catch {
      this.say(text);
    }
  }

  /** The question of the screen, as Python or as a command. */
  copyQuestion(as: "Python" | "command"): Promise<void> {
    const known = this.compared.value?.rows.map((row) => row.id) ?? []; // the base first
    const compare = this.compared.old || !known.length ? this.s.compare : known;
    const asked = { ...this.s, id: this.id, compare, dir: this.status?.dir };
    return this.copy(as === "Python" ? asPython(asked) : asCommand(asked), as);
  }

  /** Of several runs, what each is called; a single one needs no name. */
  readonly namesOfRuns = $derived.by(() => {
    const runs = runsOf(this.s.q, this.runs);
    const names = [...new Set(runs.map((run) => run.run))];
    const several = new Set(runs.map((run) => run.project)).size > 1;
    return new Map(runs.length < 2 ? [] : runs.map((run) => [JSON.stringify([run.project, run.run]), `${several ? `${run.project}/` : ""}${ownPart(run.run, names)}`]));
  });

  /** What a row says about its run; null: all rows are of one. */
  runOf(row: { project: string | null; run: string | null }): string | null {
    return this.namesOfRuns.get(JSON.stringify([row.project, row.run])) ?? null;
  }

  /** The rollout in sight: while a new one is being chosen, still the one before. */
  get id(): string {
    return this.s.id || (this.nowhere === this.s.q ? "" : (this.detail.value?.row.id ?? ""));
  }

  get row(): RolloutRow | undefined {
    return this.detail.value?.row.id === this.id ? this.detail.value.row : undefined;
  }

  /** Rows and rollout come first: until they are here, nothing else is asked for. */
  get busy(): boolean {
    const { q, order } = this.s;
    const selected = this.selection.ready && this.selection.q === q && this.selection.order === order;
    return !selected || this.unbegun || this.detail.loading;
  }

  /** Are there rollouts to read, but none is chosen yet? */
  get unbegun(): boolean {
    const { id, q, screen } = this.s;
    return !id && this.nowhere !== q && READING.has(screen) && (this.selection.count ?? 1) > 0;
  }

  /** Goes where reading a selection begins best. */
  async beginAt(q: string, signal: AbortSignal): Promise<void> {
    try {
      const { id } = await this.api.start(q, signal);
      if (signal.aborted || this.s.id) return;
      if (!id) throw new Error("nowhere");
      this.read(id);
      this.go({ id }, "replace");
    } catch {
      if (!signal.aborted) this.nowhere = q; // the query bar tells what is wrong with the query
    }
  }

  /** Asks for a rollout, and for the messages in sight. One that is still going on, or of which more
   * is known by now (a score, a fate, a label), is asked for again. */
  read(id: string): void {
    const row = this.detail.value?.row;
    const now = this.neighbours.value?.siblings.find((sibling) => sibling.id === id);
    if (row?.id !== id) this.#version = "";
    else if (row.open || (now && JSON.stringify(now) !== JSON.stringify(row))) this.#version = this.generation;
    this.#read(id);
  }

  /** Asks for the rollout in sight again. */
  readAgain(): void {
    this.#version = String(Math.random());
    this.#read(this.s.id);
  }

  #read(id: string): void {
    const first = WINDOW * Math.floor((this.s.m ?? 0) / WINDOW);
    this.detail.ask(id, (signal) => this.api.detail(id, first, signal), true, this.#version);
  }

  /** Waits until it is known which rollout is in sight. */
  async begun(): Promise<void> {
    while (this.unbegun) await new Promise((done) => setTimeout(done, 30));
  }

  /** Where the rollout in sight stands, also when the page does not show it yet. */
  async around(): Promise<ShownNeighbours> {
    const known = this.neighbours.value;
    return known?.siblings.some((row) => row.id === this.id) ? known : this.api.neighbours(this.id);
  }

  /** Folds are kept from sibling to sibling. */
  folded(key: string, usual: boolean): boolean {
    return this.s.folds[key] ?? usual;
  }

  fold(key: string, value: boolean): void {
    this.go({ folds: { ...this.s.folds, [key]: value } }, "replace");
  }

  /** The prompt folds as one, and a long system message is folded from the start. */
  cardFolded(card: Card): boolean {
    const outline = this.detail.value?.outline;
    const long = outline?.role[card.n] === "system" && (outline.chars[card.n] ?? 0) > LONG && this.s.view === "text";
    return this.folded(`card:${card.n}`, (card.prompt && this.folded("prompt", false)) || long);
  }

  foldThinking(): void {
    const others = Object.entries(this.s.folds).filter(([key]) => !key.startsWith("think:"));
    this.go({ folds: { ...Object.fromEntries(others), thinking: !this.folded("thinking", true) } }, "replace");
  }

  /** The store says that it has changed. News older than what the page knows is ignored. */
  news(generation: string, rollouts: number): void {
    const [boot, version] = generation.split("-");
    const [known, seen] = this.generation.split("-");
    if (boot === known && Number(version) <= Number(seen)) return;
    if (this.status?.rollouts === 0 && rollouts > 0) {
      this.status = { ...this.status, rollouts }; // the first ones: there is something to show now
      this.#seen = rollouts;
    }
    if (this.#seen !== null && rollouts > this.#seen) this.fresh += rollouts - this.#seen;
    this.#seen = rollouts;
    this.generation = generation;
  }

  looked(): void {
    this.fresh = 0;
  }

  async begin(): Promise<void> {
    try {
      this.status = await this.api.status();
      this.#seen = this.status.rollouts;
      this.generation = this.status.generation;
      this.locked = false;
    } catch (error) {
      if ((error as { status?: number }).status === 401) this.locked = true;
      else this.failed = (error as Error).message;
    }
  }
}
