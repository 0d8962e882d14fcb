/** Aligning rollouts in a bundle's page; with a server, `checks.align` does it. */
import { diffArrays } from "diff";
import type { Aligned, Body, Compared, RolloutRow, ShownWords, Side } from "../api/types";
import { finite } from "./num";
import { json } from "./text";

interface One {
  row: RolloutRow;
  messages: Body[];
}

/** Compared by lines; what differs, by sentences; and what differs there, by words. */
const BY = [/[^\n]*\n|[^\n]+/g, /[^.!?\n]*[.!?\n]+\s*|[^.!?\n]+/g, /\s+|[\p{L}\p{N}_]+|[^\p{L}\p{N}_\s]/gu] as const;
const SHORT = 4_000; // fewer characters are compared by words at once
const MOST = 1_500; // more differences than this are not looked for: the time grows with their square
const AROUND = 1_000; // characters shown of equal text beside what differs
const OWN = 10_000; // and of either end of what only one has
const SHOWN = 200_000; // and of one message
const PIECES = 1_000; // equal or different, of one message

/** Its text; where thinking ends and an answer begins, the answer has a line of its own. */
function parted(body: Body): string {
  const whole = [...(body.text ?? "")]; // ends count characters
  let [start, text, last] = [0, "", ""];
  for (const part of body.parts ?? []) {
    if (part.end === null || part.end === start) continue;
    text += (last && last !== part.type ? "\n" : "") + whole.slice(start, part.end).join("");
    [start, last] = [part.end, part.type];
  }
  return text + whole.slice(start).join("");
}

function say(body: Body): string {
  return [parted(body), ...body.tool_calls.map((call) => `→ ${call.name ?? ""}(${call.arguments === null ? "" : json(call.arguments)})`)].filter(Boolean).join("\n");
}

const keyOf = (body: Body): string => `${body.role}\n${body.name ?? ""}\n${say(body)}`;

/** Pairs of messages: equal ones first, then what lies between them in order. */
function pairs(a: Body[], b: Body[]): [number | null, number | null][] {
  const out: [number | null, number | null][] = [];
  let [i, j] = [0, 0];
  const changes = diffArrays(a.map(keyOf), b.map(keyOf));
  for (let c = 0; c < changes.length; c++) {
    const change = changes[c];
    if (!change) continue;
    if (!change.added && !change.removed) {
      for (let k = 0; k < change.value.length; k++) out.push([i++, j++]);
      continue;
    }
    const other = changes[c + 1];
    const paired = change.removed && other?.added ? other.value.length : 0;
    const removed = change.removed ? change.value.length : 0;
    const added = change.added ? change.value.length : paired;
    for (let k = 0; k < Math.max(removed, added); k++) out.push([k < removed ? i++ : null, k < added ? j++ : null]);
    if (paired) c++;
  }
  return out;
}

interface Run {
  of: "both" | "first" | "second";
  text: string;
}

/** The runs of two texts; pushes `rough` where they differ in too much. */
function differing(a: string, b: string, level: number, rough: string[]): Run[] {
  const by = BY[level] ?? BY[2];
  const changes = diffArrays(a.match(by) ?? [], b.match(by) ?? [], { maxEditLength: MOST });
  if (!changes && level < 2) return differing(a, b, level + 1, rough);
  const runs: Run[] = [];
  let [mine, theirs] = ["", ""];
  if (!changes) {
    rough.push(a);
    let same = 0;
    while (same < a.length && a[same] === b[same]) same++;
    runs.push({ of: "both", text: a.slice(0, same) });
    [mine, theirs] = [a.slice(same), b.slice(same)];
  }
  const close = (): void => {
    if (mine && theirs && changes && level < 2) runs.push(...differing(mine, theirs, level + 1, rough));
    else runs.push({ of: "first", text: mine }, { of: "second", text: theirs });
    [mine, theirs] = ["", ""];
  };
  for (const change of changes ?? []) {
    const text = change.value.join("");
    if (change.removed) mine += text;
    else if (change.added) theirs += text;
    else {
      close();
      runs.push({ of: "both", text });
    }
  }
  close();
  return runs.filter((run) => run.text);
}

/** What of it the page shows: long runs without their middle, and how long that is. */
function cut(runs: { same: boolean; text: string }[], around: number): ShownWords[] {
  const words: ShownWords[] = [];
  let left = SHOWN;
  for (const [i, { same, text }] of runs.entries()) {
    const most = same ? around : OWN;
    const inside = same && runs.length > 1;
    const [before, after] = [inside && i === 0 ? 0 : most, inside && i === runs.length - 1 ? 0 : most];
    if (left < before + after || words.length >= PIECES) {
      const skipped = runs.slice(i).reduce((sum, run) => sum + run.text.length, 0);
      return [...words, { same, text: "", skipped }];
    }
    const skipped = Math.max(0, text.length - before - after);
    left -= text.length - skipped;
    if (!skipped) words.push({ same, text, skipped: 0 });
    else words.push({ same, text: text.slice(0, before), skipped: 0 }, { same, text: "", skipped }, { same, text: text.slice(before + skipped), skipped: 0 });
  }
  return words.filter((word) => word.text || word.skipped);
}

function side(body: Body | undefined, other: Body | undefined, own: "added" | "removed", rough: string[]): Side {
  if (!body) return { n: null, role: null, name: null, words: [] };
  const [mine, theirs] = [say(body), other ? say(other) : ""];
  const base = { n: body.n, role: body.role, name: body.name };
  if (!other || mine === theirs) return { ...base, words: cut([{ same: true, text: mine }], OWN) };
  const [from, to] = own === "removed" ? [mine, theirs] : [theirs, mine];
  const runs = differing(from, to, from.length + to.length > SHORT ? 0 : 2, rough).filter((run) => run.of !== (own === "removed" ? "second" : "first"));
  return { ...base, words: cut(runs.map((run) => ({ same: run.of === "both", text: run.text })), AROUND) };
}

/** The best comes first: the others are held against it. */
function sorted(all: One[]): One[] {
  const good = ({ row }: One): number => finite(row.reward) ?? -Infinity;
  const best = all.reduce<One | undefined>((found, one) => (!found || good(one) > good(found) ? one : found), undefined);
  return best ? [best, ...all.filter((one) => one !== best)] : [];
}

export function align(given: One[]): Compared {
  const all = sorted(given);
  const [first, ...others] = all;
  if (!first || others.length === 0) return { rows: [], aligned: [], first: null, rough: false, differences: [] };
  const rough: string[] = [];
  const found = others.map((other) => pairs(first.messages, other.messages));
  const aligned: Aligned[] = [];
  const blank: Side = { n: null, role: null, name: null, words: [] };
  const extra = (n: number): void =>
    others.forEach((other, o) => {
      const list = found[o] ?? [];
      const at = n < 0 ? -1 : list.findIndex(([i]) => i === n);
      for (let k = at + 1; k < list.length && list[k]?.[0] === null; k++) {
        const body = other.messages[list[k]?.[1] ?? -1];
        aligned.push({ same: false, sides: all.map((_, place) => (place === o + 1 ? side(body, undefined, "added", rough) : blank)) });
      }
    });
  extra(-1);
  first.messages.forEach((body, n) => {
    const partners = others.map((other, o) => other.messages[found[o]?.find(([i]) => i === n)?.[1] ?? -1]);
    const same = partners.every((partner) => partner !== undefined && keyOf(partner) === keyOf(body));
    const other = partners.find((partner) => partner !== undefined && keyOf(partner) !== keyOf(body));
    aligned.push({ same, sides: [side(body, other ?? body, "removed", rough), ...partners.map((partner) => side(partner, body, "added", rough))] });
    extra(n);
  });
  const at = aligned.findIndex((row) => !row.same);
  return { rows: all.map((one) => one.row), aligned, first: at < 0 ? null : { row: at, char: alike(aligned[at]) }, rough: rough.length > 0, differences: differences(all.map((one) => one.row)) };
}

/** How many characters a row has in common before its first difference. */
function alike(row: Aligned | undefined): number {
  const words = row?.sides[0]?.words ?? [];
  const end = words.findIndex((word) => !word.same);
  return words.slice(0, end < 0 ? 0 : end).reduce((sum, word) => sum + word.text.length + word.skipped, 0);
}

function differences(rows: RolloutRow[]): Compared["differences"] {
  const names = Object.keys(rows[0] ?? {}).filter((name) => !["id", "time", "preview", "prompt_preview"].includes(name)) as (keyof RolloutRow)[];
  return names.map((key) => ({ key, values: rows.map((row) => row[key]) })).filter(({ values }) => new Set(values.map((v) => JSON.stringify(v))).size > 1);
}
