/** The same answers from the files of a bundle. See `rollscope bundle`. */
import type { Api } from "./client";

export function files(_root: string): Api {
  throw new Error("bundles are not ready");
}
