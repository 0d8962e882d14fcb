import { getContext, setContext } from "svelte";
import type { App } from "./app.svelte";

const KEY = Symbol("app");
export const provide = (app: App): App => setContext(KEY, app);
export const use = (): App => getContext<App>(KEY);
