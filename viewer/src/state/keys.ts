/** Every key, in one table: what `?` lists is what happens. */
import { tick } from "svelte";
import { finite } from "../lib/num";
import { streamNames } from "../lib/tokens";
import type { RolloutRow } from "../api/types";
import type { App } from "./app.svelte";
import { putNth } from "./labels";
import { pick as toggle } from "./picking";
import { RIBBONS, type State } from "./url";

export interface Key {
  keys: string[];
  /** How they are listed, when there are too many to list. */
  shown?: string;
  does: string;
  act: (app: App, key: string) => void | Promise<void>;
}

/** Tells the transcript, once there is one. */
const tell = (what: string, by: number) => async (app: App): Promise<void> => {
  if (app.unbegun) {
    await app.begun();
    await tick();
  }
  emit(what, by);
};

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
      { keys: ["n"], does: "next hit", act: tell("hit", 1) },
      { keys: ["N"], does: "previous hit", act: tell("hit", -1) },
      { keys: ["J"], does: "next turn", act: tell("turn", 1) },
      { keys: ["K"], does: "previous turn", act: tell("turn", -1) },
      { keys: ["Home"], does: "beginning of the transcript", act: tell("edge", -1) },
      { keys: ["End"], does: "end of the transcript", act: tell("edge", 1) },
    ],
  },
  {
    title: "Read",
    keys: [
      { keys: ["/"], does: "find in transcript", act: tell("find", 0) },
      { keys: ["i"], does: "query bar", act: () => emit("query", 0) },
      { keys: ["x"], does: "raw form of every text: exactly the tokens", act: (app) => app.go({ view: app.s.view === "raw" ? "text" : "raw" }) },
      { keys: ["t"], does: "token lens, next stream", act: nextStream },
      { keys: ["z"], does: "thinking: fold or unfold all", act: (app) => app.foldThinking() },
      { keys: ["p"], does: "prompt: fold or unfold", act: (app) => app.fold("prompt", !app.folded("prompt", false)) },
      { keys: ["o"], does: "outline", act: (app) => app.go({ outline: !app.s.outline }, "replace") },
      { keys: ["\\"], does: "list and facets: show or hide", act: (app) => app.go({ list: !app.s.list }, "replace") },
      { keys: ["|"], does: "facts: show or hide", act: (app) => app.go({ facts: !app.s.facts }, "replace") },
      { keys: ["R"], does: "ribbon of steps: taller, folded, as usual", act: (app) => app.go({ ribbon: RIBBONS[(RIBBONS.indexOf(app.s.ribbon) + 1) % RIBBONS.length] ?? "" }, "replace") },
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
      { keys: ["h"], does: "history of this task", act: history },
      { keys: ["a"], does: "all tasks", act: (app) => app.go({ screen: "tasks" }) },
      { keys: ["m"], does: "all tasks against runs, steps or models", act: (app) => app.go({ screen: "matrix" }) },
      { keys: ["f"], does: "fate funnel", act: (app) => app.go({ screen: "fate" }) },
      { keys: ["e"], does: "failures", act: (app) => app.go({ screen: "failures" }) },
      { keys: ["q"], does: "findings of checks", act: (app) => app.go({ screen: "findings" }) },
      { keys: ["s"], does: "spans on a timeline", act: (app) => app.go({ screen: app.s.screen === "spans" ? "read" : "spans" }) },
      { keys: ["Escape"], does: "back to reading", act: back },
    ],
  },
  {
    title: "Share",
    keys: [
      { keys: ["y"], does: "copy link", act: (app) => app.copy(location.href, "link") },
      { keys: ["Y"], does: "copy as Python", act: (app) => app.copyQuestion("Python") },
      { keys: ["C"], does: "copy as command", act: (app) => app.copyQuestion("command") },
      { keys: ["D"], does: "light or dark", act: () => emit("theme", 0) },
      { keys: ["?"], does: "this list", act: (app) => void (app.dialog = app.dialog === "help" ? "" : "help") },
    ],
  },
];

const BY_KEY = new Map(KEYS.flatMap((group) => group.keys.flatMap((key) => key.keys.map((k) => [k, key] as const))));

/** Where the person is typing, if so. */
export function typing(event: KeyboardEvent): HTMLElement | null {
  const target = event.composedPath()[0];
  const types = target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
  return types ? target : null;
}

const EDGES = ["Home", "End"];

/** Do the keys for beginning and end mean the transcript, and not another list that has the focus? */
function edged(): boolean {
  const box = document.activeElement?.closest(".scroll");
  const cards = document.querySelector(".scroll.cards");
  return cards !== null && (!box || box === cards);
}

/** Acts on a key press, unless the person is typing. */
export function act(app: App, event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const field = typing(event);
  if (field) {
    if (event.key === "Escape") field.blur();
    return;
  }
  if (app.dialog && event.key !== "Escape" && event.key !== "?") return;
  const key = BY_KEY.get(event.key);
  if (!key || (EDGES.includes(event.key) && !edged())) return;
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

/** Moves that are under way, and the state that the last of them led to. */
interface Walk {
  at: State;
  line: Promise<unknown>;
  waiting: number;
}
let walk: Walk | undefined;

/** Goes where `find` says, from where the moves before led: keys that were pressed before answers
 * came are all done, one after the other. Who has meanwhile gone elsewhere by other means stays
 * there. Tells whether it moved. */
function move(app: App, find: () => Promise<Partial<State> | null>): Promise<boolean> {
  const elsewhere = ({ at }: Walk): boolean => app.s.id !== at.id || app.s.q !== at.q || app.s.order !== at.order;
  if (!walk?.waiting || elsewhere(walk)) walk = { at: app.s, line: Promise.resolve(), waiting: 0 };
  const mine = walk;
  mine.waiting++;
  const moved = mine.line.then(async () => {
    if (!mine.at.id) {
      await app.begun();
      mine.at = { ...mine.at, id: app.s.id };
    }
    if (elsewhere(mine)) return false;
    const change = await find();
    if (!change || elsewhere(mine) || (change.screen && app.s.screen !== mine.at.screen)) return false;
    app.go(change);
    mine.at = app.s;
    return true;
  });
  mine.line = moved.catch(() => false).finally(() => mine.waiting--);
  return moved;
}

/** Goes on to the next (or previous) rollout of the selection; false at its end. */
export function onward(app: App, by = 1): Promise<boolean> {
  return move(app, async () => {
    const here = await app.selection.locate(app.s.id);
    const count = app.selection.count ?? 0; // only now: before it may not be known
    const next = here === null ? 0 : Math.max(0, Math.min(count - 1, here + by));
    const row = await app.selection.fetch(next);
    return row && row.id !== app.s.id ? { id: row.id, m: null, leaf: null } : null;
  });
}

async function step(app: App, by: number): Promise<void> {
  await onward(app, by);
}

async function sibling(app: App, by: number): Promise<void> {
  await move(app, async () => {
    const { siblings } = await app.around();
    const next = siblings[siblings.findIndex((row) => row.id === app.s.id) + by];
    if (!next) app.say(by > 0 ? "last sibling" : "first sibling");
    return next ? { id: next.id, leaf: null, m: app.s.m, folds: app.s.folds } : null;
  });
}

async function jump(app: App, where: "earlier" | "later" | "previous_group" | "next_group", otherwise: string): Promise<void> {
  await move(app, async () => {
    const id = (await app.around())[where];
    if (!id) app.say(otherwise);
    return id ? { id, leaf: null, m: null } : null;
  });
}

async function random(app: App): Promise<void> {
  await move(app, async () => {
    const { id } = await app.api.random(app.s.q, app.s.id);
    if (id && id === app.s.id) app.say("this is the only rollout of the selection");
    return id ? { id, screen: app.s.screen === "spans" ? "spans" : "read" } : null;
  });
}

async function history(app: App): Promise<void> {
  await move(app, async () => {
    const row = (await app.around()).siblings.find(({ id }) => id === app.s.id);
    if (!row?.task) app.say("this rollout is of no task");
    return row?.task ? { screen: "task", task: row.task, dataset: row.dataset } : null;
  });
}

function nextStream(app: App): void {
  if (!app.row) return app.go({ screen: "read", view: "tokens" }); // which there are is not known yet
  const names = streamNames(app.detail.value?.streams ?? []);
  if (names.length === 0) return app.say("no token streams were recorded for this rollout");
  if (app.s.view !== "tokens") return app.go({ screen: "read", view: "tokens", stream: app.s.stream || (names[0] ?? "") });
  const at = names.indexOf(app.s.stream);
  if (at === names.length - 1) return app.go({ view: "text", stream: "" });
  app.go({ stream: names[at + 1] ?? "" }, "replace");
}

/** The siblings with the highest and the lowest reward. */
export function extremes(siblings: RolloutRow[]): [RolloutRow, RolloutRow] | null {
  const scored = siblings.filter((row) => finite(row.reward) !== null);
  const [first] = scored;
  if (!first || scored.length < 2) return null;
  const by = (better: (a: number, b: number) => boolean): RolloutRow =>
    scored.reduce((best, row) => (better(finite(row.reward) ?? 0, finite(best.reward) ?? 0) ? row : best), first);
  const [best, worst] = [by((a, b) => a > b), by((a, b) => a < b)];
  return best.id === worst.id ? [best, scored.at(-1) ?? worst] : [best, worst];
}

async function bestAndWorst(app: App): Promise<void> {
  await move(app, async () => {
    const found = extremes((await app.around()).siblings);
    if (!found) app.say("this group has no two scored siblings");
    return found ? { screen: "compare", compare: found.map((row) => row.id) } : null;
  });
}

async function pick(app: App): Promise<void> {
  await app.begun();
  const { id, screen } = app.s;
  if (!id || screen === "compare" || !toggle(app, id)) return;
  if (app.s.compare.length >= 2) app.go({ screen: "compare" });
  else app.say("picked: go to another rollout and press c again");
}

function back(app: App): void {
  if (app.dialog) app.dialog = "";
  else if (app.s.screen !== "read") app.go({ screen: "read" });
  else if (app.s.find) app.go({ find: "" }, "replace");
  else if (app.s.view !== "text") app.go({ view: "text", stream: "" });
  else if (app.s.compare.length) app.go({ compare: [] });
}
