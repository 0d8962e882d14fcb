/** The reader's labels: which are at hand, and how to write one and go on. */
import type { App } from "./app.svelte";
import { onward } from "./keys";

const USUAL = ["good", "bad", "hack", "wrong-grade", "interesting"];
const KEPT = "labels";
const MOST = 30; // nine have a key, the others are in the dialog
const AUTHOR = "author";

/** A project's labels. Each keeps the digit that it has: a new one comes last. */
export function atHand(project: string | null | undefined): string[] {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(`${KEPT}:${project ?? ""}`) ?? "null");
    return Array.isArray(kept) && kept.every((word) => typeof word === "string") ? kept : USUAL;
  } catch {
    return USUAL;
  }
}

export const author = (): string => localStorage.getItem(AUTHOR) ?? "";

/** The labels that a rollout, or one message of it, holds. */
export function held(app: App, message: number | null): Set<string> {
  const notes = app.detail.value?.notes ?? [];
  return new Set(notes.filter((n) => n.name.startsWith("label.") && n.value !== false && n.message === message).map((n) => n.name.slice(6)));
}

export interface Said {
  label: string | null;
  note: string;
  message: number | null;
  author: string;
}

let writing = false;

/** Writes it and goes on to the next rollout. A label that is there already is taken back. */
export async function put(app: App, said: Said): Promise<void> {
  if (writing) return app.say("not labelled: the label before is still being kept"); // else both would be on one rollout
  writing = true;
  try {
    await write(app, said);
  } catch (error) {
    app.say((error as Error).message);
  } finally {
    writing = false;
  }
}

async function write(app: App, said: Said): Promise<void> {
  const rollout = app.s.id;
  const { task, project } = app.row ?? {};
  const who = { rollout, message: said.message, author: said.author || null };
  const back = said.label !== null && held(app, said.message).has(said.label);
  localStorage.setItem(AUTHOR, said.author);
  if (said.label) await app.api.label({ ...who, label: said.label, value: !back });
  if (said.note) await app.api.label({ ...who, note: said.note });
  const mine = atHand(project);
  if (said.label && !mine.includes(said.label)) localStorage.setItem(`${KEPT}:${project ?? ""}`, JSON.stringify([...mine, said.label].slice(0, MOST)));
  app.dialog = "";
  app.say(said.label ? `${back ? "no longer" : "labelled"} ${said.label}: ${task ?? rollout}` : "note kept");
  if (app.s.id === rollout && !(await onward(app)) && app.s.id === rollout) app.readAgain();
}

/** One key: the n-th label, and on to the next. */
export function putNth(app: App, n: number): Promise<void> | void {
  const label = atHand(app.row?.project)[n - 1];
  if (!label || app.s.screen !== "read") return;
  if (!app.row) return app.say("not labelled: this rollout is not here yet");
  if (!app.status?.can_label) return app.say("labels cannot be written here");
  return put(app, { label, note: "", message: null, author: author() });
}
