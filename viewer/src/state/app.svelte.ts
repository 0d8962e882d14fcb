/** What the page knows: its address, the selection, the rollout in sight, and what is live. */
import type { Api } from "../api/client";
import type { Detail, Neighbours, Row, Run, Status } from "../api/types";
import { Resource } from "./resource.svelte";
import { Selection } from "./selection.svelte";
import { read, write, type State } from "./url";

export class App {
  s = $state.raw<State>(read(location.search));
  status = $state.raw<Status | undefined>();
  runs = $state.raw<Run[]>([]);
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
  /** Fold state by place (`think:4`), kept from sibling to sibling. */
  folds = $state<Record<string, boolean>>({});
  sides = $state({ left: true, right: true, outline: false });

  readonly selection: Selection;
  readonly detail = new Resource<Detail>();
  readonly neighbours = new Resource<Neighbours>();
  #quiet: ReturnType<typeof setTimeout> | undefined;
  #seen: number | null = null;

  constructor(readonly api: Api) {
    this.selection = new Selection(api);
    addEventListener("popstate", () => (this.s = read(location.search)));
  }

  /** Changes the address. `replace` for what nobody wants to step back through. */
  go(change: Partial<State>, how: "push" | "replace" = "push"): void {
    const next = { ...this.s, ...change };
    const address = write(next);
    if (address === write(this.s)) return;
    this.s = next;
    history[how === "push" ? "pushState" : "replaceState"](null, "", address || location.pathname);
  }

  /** The address of the page with these changes, for links that can be opened elsewhere. */
  link(change: Partial<State>): string {
    return write({ ...this.s, ...change }) || "?";
  }

  /** Opens a rollout; the turn in sight stays for a sibling, and begins anew elsewhere. */
  open(id: string, change: Partial<State> = {}): void {
    const sibling = this.neighbours.value?.siblings.some((row) => row.id === id) ?? false;
    const screen = this.s.screen === "read" || this.s.screen === "spans" ? this.s.screen : "read";
    this.go({ screen, id, leaf: null, m: sibling ? this.s.m : null, ...change });
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
      await navigator.clipboard.writeText(text);
      this.say(`${what} copied`);
    } catch {
      this.say(text);
    }
  }

  get row(): Row | undefined {
    return this.detail.value?.row.id === this.s.id ? this.detail.value.row : undefined;
  }

  folded(key: string, usual: boolean): boolean {
    return this.folds[key] ?? usual;
  }

  fold(key: string, value: boolean): void {
    this.folds = { ...this.folds, [key]: value };
  }

  /** The store told that it has changed. */
  news(generation: string, rollouts: number): void {
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
      this.runs = (await this.api.runs()).runs;
    } catch (error) {
      if ((error as { status?: number }).status === 401) this.locked = true;
      else this.failed = (error as Error).message;
    }
  }
}
