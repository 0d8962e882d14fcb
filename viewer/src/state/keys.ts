/** Every key, in one table: what `?` lists is what happens. */
import { asCommand, asPython } from "../lib/query";
import { finite } from "../lib/num";
import { streamNames } from "../lib/tokens";
import type { Row } from "../api/types";
import type { App } from "./app.svelte";
import { putNth } from "./labels";

export interface Key {
  keys: string[];
  /** How they are listed, when there are too many to list. */
  shown?: string;
  does: string;
  act: (app: App, key: string) => void | Promise<void>;
}

export const KEYS: { title: string; keys: Key[] }[] = [
  {
    title: "Move",
    keys: [
      { keys: ["j"], does: "next rollout", act: (app) => step(app, 1) },
      { keys: ["k"], does: "previous rollout", act: (app) => step(app, -1) },
      { keys: ["]"], does: "next sibling", act: (app) => sibling(app, 1) },
      { keys: ["["], does: "previous sibling", act: (app) => sibling(app, -1) },
      { keys: ["}"], does: "same task, later step", act: (app) => jump(app, "later", "no later step of this task") },
      { keys: ["{"], does: "same task, earlier step", act: (app) => jump(app, "earlier", "no earlier step of this task") },
      { keys: ["."], does: "next group", act: (app) => jump(app, "next_group", "no next group") },
      { keys: [","], does: "previous group", act: (app) => jump(app, "previous_group", "no previous group") },
      { keys: ["r"], does: "random rollout of the selection", act: random },
      { keys: ["n"], does: "next hit", act: () => emit("hit", 1) },
      { keys: ["N"], does: "previous hit", act: () => emit("hit", -1) },
      { keys: ["J"], does: "next turn", act: () => emit("turn", 1) },
      { keys: ["K"], does: "previous turn", act: () => emit("turn", -1) },
    ],
  },
  {
    title: "Read",
    keys: [
      { keys: ["/"], does: "find in transcript", act: () => emit("find", 0) },
      { keys: ["i"], does: "query bar", act: () => emit("query", 0) },
      { keys: ["x"], does: "raw form: exactly the tokens", act: (app) => app.go({ screen: "read", view: app.s.view === "raw" ? "text" : "raw" }) },
      { keys: ["t"], does: "token lens, next stream", act: nextStream },
      { keys: ["z"], does: "thinking: fold or unfold all", act: (app) => app.foldThinking() },
      { keys: ["p"], does: "prompt: fold or unfold", act: (app) => app.fold("prompt", !app.folded("prompt", false)) },
      { keys: ["o"], does: "outline", act: (app) => app.go({ outline: !app.s.outline }, "replace") },
      { keys: ["\\"], does: "list and facets: show or hide", act: (app) => app.go({ list: !app.s.list }, "replace") },
      { keys: ["1", "2", "3", "4", "5", "6", "7", "8", "9"], shown: "1 … 9", does: "label with the n-th label, and go on", act: (app, key) => putNth(app, Number(key)) },
      { keys: ["l"], does: "label or note of one's own, and go on", act: (app) => void (app.dialog = app.status?.can_label ? "label" : "") },
    ],
  },
  {
    title: "Screens",
    keys: [
      { keys: ["w"], does: "table", act: (app) => app.go({ screen: app.s.screen === "table" ? "read" : "table" }) },
      { keys: ["g"], does: "group board", act: (app) => app.go({ screen: "group" }) },
      { keys: ["b"], does: "compare best and worst sibling", act: bestAndWorst },
      { keys: ["c"], does: "compare: pick this one, then another", act: pick },
      { keys: ["h"], does: "history of this task", act: (app) => app.row?.task && app.go({ screen: "task", task: app.row.task, dataset: app.row.dataset }) },
      { keys: ["a"], does: "all tasks", act: (app) => app.go({ screen: "tasks" }) },
      { keys: ["f"], does: "fate funnel", act: (app) => app.go({ screen: "fate" }) },
      { keys: ["e"], does: "failures", act: (app) => app.go({ screen: "failures" }) },
      { keys: ["s"], does: "spans on a timeline", act: (app) => app.go({ screen: app.s.screen === "spans" ? "read" : "spans" }) },
      { keys: ["Escape"], does: "back to reading", act: back },
    ],
  },
  {
    title: "Share",
    keys: [
      { keys: ["y"], does: "copy link", act: (app) => app.copy(location.href, "link") },
      { keys: ["Y"], does: "copy as Python", act: (app) => app.copy(asPython(app.s.q, app.s.order, app.status?.dir), "Python") },
      { keys: ["C"], does: "copy as command", act: (app) => app.copy(asCommand(app.s.q, app.s.order, app.status?.dir), "command") },
      { keys: ["D"], does: "light or dark", act: () => emit("theme", 0) },
      { keys: ["?"], does: "this list", act: (app) => void (app.dialog = app.dialog === "help" ? "" : "help") },
    ],
  },
];

const BY_KEY = new Map(KEYS.flatMap((group) => group.keys.flatMap((key) => key.keys.map((k) => [k, key] as const))));

/** Acts on a key press, unless the person is typing. */
export function act(app: App, event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const target = event.composedPath()[0];
  const typing = target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
  if (typing) {
    if (event.key === "Escape") target.blur();
    return;
  }
  if (app.dialog && event.key !== "Escape" && event.key !== "?") return;
  const key = BY_KEY.get(event.key);
  if (!key) return;
  event.preventDefault();
  Promise.resolve(key.act(app, event.key)).catch((error: unknown) => app.say(error instanceof Error ? error.message : String(error)));
}

/** Tells the part of the page that owns the thing (the finder, the query bar). */
export function emit(what: string, by: number): void {
  dispatchEvent(new CustomEvent(`rollscope:${what}`, { detail: by }));
}

/** Hears what `emit` tells; returns how to stop. */
export function hear(what: string, act: (by: number) => void): () => void {
  const listener = (event: Event): void => act((event as CustomEvent<number>).detail);
  addEventListener(`rollscope:${what}`, listener);
  return () => removeEventListener(`rollscope:${what}`, listener);
}

async function step(app: App, by: number): Promise<void> {
  const here = await app.selection.locate(app.s.id);
  const count = app.selection.count ?? 0; // only now: before it may not be known
  const at = here === null ? 0 : Math.max(0, Math.min(count - 1, here + by));
  const row = await app.selection.fetch(at);
  if (row) app.go({ id: row.id, m: null, leaf: null });
}

/** Goes on to the next (or previous) rollout of the selection; false at its end. */
export async function onward(app: App, by = 1): Promise<boolean> {
  const before = app.s.id;
  await step(app, by);
  return app.s.id !== before;
}

async function sibling(app: App, by: number): Promise<void> {
  const { siblings } = await app.around();
  const at = siblings.findIndex((row) => row.id === app.s.id);
  const next = siblings[at + by];
  if (next) app.go({ id: next.id, leaf: null, folds: app.s.folds });
  else app.say(by > 0 ? "last sibling" : "first sibling");
}

async function jump(app: App, where: "earlier" | "later" | "previous_group" | "next_group", otherwise: string): Promise<void> {
  const id = (await app.around())[where];
  if (id) app.go({ id, leaf: null, m: null });
  else app.say(otherwise);
}

async function random(app: App): Promise<void> {
  const { id } = await app.api.random(app.s.q);
  if (id) app.open(id);
}

function nextStream(app: App): void {
  const names = streamNames(app.detail.value?.streams ?? []);
  if (names.length === 0) return app.say("no token streams were recorded for this rollout");
  if (app.s.view !== "tokens") return app.go({ screen: "read", view: "tokens", stream: app.s.stream || (names[0] ?? "") });
  const at = names.indexOf(app.s.stream);
  if (at === names.length - 1) return app.go({ view: "text", stream: "" });
  app.go({ stream: names[at + 1] ?? "" }, "replace");
}

/** The siblings with the highest and the lowest reward. */
export function extremes(siblings: Row[]): [Row, Row] | null {
  const scored = siblings.filter((row) => finite(row.reward) !== null);
  const [first] = scored;
  if (!first || scored.length < 2) return null;
  const by = (better: (a: number, b: number) => boolean): Row =>
    scored.reduce((best, row) => (better(finite(row.reward) ?? 0, finite(best.reward) ?? 0) ? row : best), first);
  const [best, worst] = [by((a, b) => a > b), by((a, b) => a < b)];
  return best.id === worst.id ? [best, scored.at(-1) ?? worst] : [best, worst];
}

async function bestAndWorst(app: App): Promise<void> {
  const found = extremes((await app.around()).siblings);
  if (found) app.go({ screen: "compare", compare: found.map((row) => row.id) });
  else app.say("this group has no two scored siblings");
}

function pick(app: App): void {
  const { compare, id, screen } = app.s;
  if (!id || screen === "compare") return;
  const picked = compare.includes(id) ? compare.filter((other) => other !== id) : [...compare, id].slice(-8);
  app.go({ compare: picked, ...(picked.length >= 2 && !compare.includes(id) ? { screen: "compare" } : {}) });
  if (picked.length === 1) app.say("picked: go to another rollout and press c again");
}

function back(app: App): void {
  if (app.dialog) app.dialog = "";
  else if (app.s.screen !== "read") app.go({ screen: "read" });
  else if (app.s.find) app.go({ find: "" }, "replace");
  else if (app.s.view !== "text") app.go({ view: "text", stream: "" });
  else if (app.s.compare.length) app.go({ compare: [] });
}
