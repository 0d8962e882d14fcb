/** One answer of the API that follows what the page shows: newest question wins. */
import { Refused } from "../api/client";

export class Resource<A> {
  value = $state.raw<A | undefined>();
  error = $state.raw<Error | undefined>();
  loading = $state(false);
  #question = "";
  #running: AbortController | undefined;

  /** Asks, unless this is what was asked last. The old answer stays until the new one is here.
   * Not `now`: only what is outdated is stopped, so that what matters more is answered first. */
  ask(question: string, get: (signal: AbortSignal) => Promise<A>, now = true): void {
    if (question === this.#question) return;
    this.#running?.abort();
    this.#question = now ? question : "";
    this.loading = now;
    if (!now) return;
    const running = new AbortController();
    this.#running = running;
    get(running.signal).then(
      (answer) => {
        if (running !== this.#running) return;
        this.value = answer;
        this.error = undefined;
        this.loading = false;
      },
      (error: unknown) => {
        if (running !== this.#running || running.signal.aborted) return;
        this.error = error instanceof Error ? error : new Error(String(error));
        this.loading = false;
        this.#question = "";
      },
    );
  }

  /** Forgets the answer. */
  clear(): void {
    this.#running?.abort();
    this.#running = undefined;
    this.#question = "";
    this.value = undefined;
    this.error = undefined;
    this.loading = false;
  }

  get refused(): Refused | undefined {
    return this.error instanceof Refused ? this.error : undefined;
  }
}
