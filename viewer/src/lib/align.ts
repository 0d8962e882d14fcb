/** Aligning rollouts in a bundle's page; with a server, `checks.align` does it. */
import { diffArrays, diffWordsWithSpace } from "diff";
import type { Aligned, Body, Compared, RolloutRow, Side } from "../api/types";
import { json } from "./text";

interface One {
  row: RolloutRow;
  messages: Body[];
}

const LONGEST = 20_000; // beyond this words are not compared one by one

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

function side(body: Body | undefined, other: Body | undefined, own: "added" | "removed"): Side {
  if (!body) return { n: null, role: null, name: null, words: [] };
  const [mine, theirs] = [say(body), other ? say(other) : ""];
  const base = { n: body.n, role: body.role, name: body.name };
  if (!other || mine === theirs || mine.length + theirs.length > LONGEST) return { ...base, words: [{ same: mine === theirs, text: mine.slice(0, 60_000) }] };
  const [from, to] = own === "removed" ? [mine, theirs] : [theirs, mine];
  return { ...base, words: diffWordsWithSpace(from, to).filter((c) => !(own === "removed" ? c.added : c.removed)).map((c) => ({ same: !c.added && !c.removed, text: c.value })) };
}

export function align(all: One[]): Compared {
  const [first, ...others] = all;
  if (!first || others.length === 0) return { rows: [], aligned: [], first: null, differences: [] };
  const found = others.map((other) => pairs(first.messages, other.messages));
  const aligned: Aligned[] = [];
  const blank: Side = { n: null, role: null, name: null, words: [] };
  const extra = (n: number): void =>
    others.forEach((other, o) => {
      const list = found[o] ?? [];
      const at = n < 0 ? -1 : list.findIndex(([i]) => i === n);
      for (let k = at + 1; k < list.length && list[k]?.[0] === null; k++) {
        const body = other.messages[list[k]?.[1] ?? -1];
        aligned.push({ same: false, sides: all.map((_, place) => (place === o + 1 ? side(body, undefined, "added") : blank)) });
      }
    });
  extra(-1);
  first.messages.forEach((body, n) => {
    const partners = others.map((other, o) => other.messages[found[o]?.find(([i]) => i === n)?.[1] ?? -1]);
    const same = partners.every((partner) => partner !== undefined && keyOf(partner) === keyOf(body));
    const differing = partners.find((partner) => partner !== undefined && keyOf(partner) !== keyOf(body));
    aligned.push({ same, sides: [side(body, differing ?? body, "removed"), ...partners.map((partner) => side(partner, body, "added"))] });
    extra(n);
  });
  const at = aligned.findIndex((row) => !row.same);
  const shared = aligned[at]?.sides[0]?.words[0];
  return { rows: all.map((one) => one.row), aligned, first: at < 0 ? null : { row: at, char: shared?.same ? shared.text.length : 0 }, differences: differences(all.map((one) => one.row)) };
}

function differences(rows: RolloutRow[]): Compared["differences"] {
  const names = Object.keys(rows[0] ?? {}).filter((name) => !["id", "time", "preview", "prompt_preview"].includes(name)) as (keyof RolloutRow)[];
  return names.map((key) => ({ key, values: rows.map((row) => row[key]) })).filter(({ values }) => new Set(values.map((v) => JSON.stringify(v))).size > 1);
}
