/** Rollouts that a person picks to compare. */
import type { App } from "./app.svelte";

/** So many are compared at once. */
export const MOST = 8;

/** Picks a rollout, or takes it back. Is it picked now? */
export function pick(app: App, id: string): boolean {
  const { compare } = app.s;
  if (compare.includes(id)) {
    app.go({ compare: compare.filter((other) => other !== id) }, "replace");
    return false;
  }
  if (compare.length >= MOST) {
    app.say(`${MOST} are compared at most: take one back first`);
    return false;
  }
  app.go({ compare: [...compare, id] }, "replace");
  return true;
}
