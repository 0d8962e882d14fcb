/** One answer of the API that follows what the page shows: newest question wins. */
import { untrack } from "svelte";
import { Refused } from "../api/client";

export class Resource<A> {
  value = $state.raw<A | undefined>();
  error = $state.raw<Error | undefined>();
  loading = $state(false);
  /** The value still answers an earlier question; the answer to the last one is on its way. */
  old = $state(false);
  #about = "";
  #question = "";
  #running: AbortController | undefined;

  /** Asks, unless this is what was asked last. The old answer stays until the new one is here, or is
   * refused. Not `now`: only what is outdated is stopped, so that what matters more is answered
   * first. `version`: the same is asked again when this has changed. */
  ask(about: string, get: (signal: AbortSignal) => Promise<A>, now = true, version = ""): void {
    untrack(() => this.#ask(about, `${about}\n${version}`, get, now));
  }

  #ask(about: string, question: string, get: (signal: AbortSignal) => Promise<A>, now: boolean): void {
    if (question === this.#question) return;
    this.#running?.abort();
    this.#question = now ? question : "";
    this.loading = now;
    this.old = this.value !== undefined && about !== this.#about;
    if (!now) return;
    const running = new AbortController();
    this.#running = running;
    get(running.signal).then(
      (answer) => {
        if (running !== this.#running) return;
        this.#about = about;
        this.value = answer;
        this.old = false;
        this.error = undefined;
        this.loading = false;
      },
      (error: unknown) => {
        if (running !== this.#running || running.signal.aborted) return;
        this.#question = "";
        if (this.old) this.value = undefined;
        this.old = false;
        this.error = error instanceof Error ? error : new Error(String(error));
        this.loading = false;
      },
    );
  }

  /** Forgets the answer. */
  clear(): void {
    this.#running?.abort();
    this.#running = undefined;
    this.#question = "";
    this.value = undefined;
    this.old = false;
    this.error = undefined;
    this.loading = false;
  }

  get refused(): Refused | undefined {
    return this.error instanceof Refused ? this.error : undefined;
  }
}
