/** The same answers from the files of a bundle: no server, so the page counts by itself. */
import { align } from "../lib/align";
import { facetsOf, failuresOf, funnelOf, histogramsOf, ribbonOf, tasksOf } from "../lib/counting";
import { matcher, sorter, type Hits } from "../lib/filter";
import { groupOf, isAlone } from "../lib/group";
import { literal, needles } from "../lib/query";
import type { Ask, Found } from "../lib/searcher";
import { stripOf } from "../lib/strip";
import { textTerms } from "../lib/whole";
import { Refused, type Api } from "./client";
import type { Body, Detail, Hit, Keys, Num, Row, Run, Spans, TokenBlock } from "./types";

interface Whole {
  detail: Detail;
  messages: Body[];
  tokens: TokenBlock[];
  spans: Spans;
}

/** What a run's trainer logged. */
interface Logged {
  project: string;
  run: string;
  metrics: Record<string, [number, Num][]>;
}

const KEPT = 12; // whole rollouts in memory

export async function files(root: string): Promise<Api> {
  const load = async <A>(name: string): Promise<A> => {
    const answer = await fetch(root + name);
    if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
    return (await answer.json()) as A;
  };
  const { rows, texts } = await load<{ rows: Row[]; texts: number }>("rows.json");
  let logged: Promise<Logged[]> | undefined;
  const places = new Map(rows.map((row, n) => [row.id, n]));
  const kept = new Map<string, Promise<Whole>>();

  function whole(id: string): Promise<Whole> {
    const n = places.get(id);
    if (n === undefined) return Promise.reject(refusal(`rollout ${id} is not in this bundle`));
    const found = kept.get(id) ?? load<Whole>(`rollouts/${n}.json`);
    found.catch(() => kept.delete(id)); // what did not come is asked for again
    kept.delete(id);
    kept.set(id, found);
    const oldest = kept.keys().next().value;
    if (kept.size > KEPT && oldest !== undefined) kept.delete(oldest);
    return found;
  }

  const find = finder(root, texts, rows);
  let last: { key: string; rows: Promise<Row[]> } | undefined;
  function select(q: string, order = ""): Promise<Row[]> {
    const key = `${q}|${order}`;
    if (last?.key !== key) {
      const made = find(q).then((hits) => sorter(order)(rows.filter(matcher(q, hits))));
      last = { key, rows: made };
      made.catch(() => (last = undefined));
    }
    return last.rows;
  }
  const asked = <A>(make: () => A): Promise<A> => new Promise((done) => done(make()));

  return {
    fixed: true,
    status: () => asked(() => ({ version: "bundle", generation: "1", rollouts: rows.length, can_label: false, dir: null, empty_help: [] })),
    runs: () => asked(() => ({ runs: runsOf(rows) })),
    rollouts: async ({ q, order, at, limit }) => {
      const found = await select(q, order);
      return { rows: found.slice(at, at + limit), at, count: found.length, superseded: 0, next: null, generation: "1" };
    },
    detail: async (id) => (await whole(id)).detail,
    messages: async (id, first, count) => ({ first, messages: (await whole(id)).messages.slice(first, first + count) }),
    text: async (id, n, start) => {
      const body = (await whole(id)).messages[n];
      if (!body) throw refusal("no such message");
      return { ...body, text: [...(body.text ?? "")].slice(start).join(""), start_char: start };
    },
    tokens: async (id, first, count) => ({ messages: (await whole(id)).tokens.filter((block) => block.n >= first && block.n < first + count) }),
    strip: async (id, stream) => stripOf((await whole(id)).tokens, stream),
    spans: async (id) => (await whole(id)).spans,
    neighbours: (id) => asked(() => neighboursOf(rows, id)),
    place: async (id, q, order) => {
      const at = (await select(q, order)).findIndex((row) => row.id === id);
      return { at: at < 0 ? null : at };
    },
    start: async (q) => startOf(await select(q)),
    random: async (q) => {
      const found = await select(q);
      return { id: found[Math.floor(Math.random() * found.length)]?.id ?? null };
    },
    facets: async (q) => facetsOf(await select(q)),
    histograms: async (q) => histogramsOf(await select(q)),
    ribbon: async (q) => {
      logged ??= load<Logged[]>("metrics.json");
      logged.catch(() => (logged = undefined));
      const [ribbon, all] = [ribbonOf(await select(q)), await logged];
      for (const lane of ribbon.runs) lane.metrics = all.find((l) => l.project === lane.project && l.run === lane.run)?.metrics ?? {};
      return ribbon;
    },
    tasks: async ({ q, kind, order, at }) => tasksOf(await select(q), kind, order, at),
    history: ({ task, dataset }) =>
      asked(() => {
        const found = rows.filter((row) => row.task === task && (dataset === null || row.dataset === dataset));
        return { task, dataset, rows: found, count: found.length, preview: found[0]?.prompt_preview ?? null, reference: null };
      }),
    funnel: async (q) => funnelOf(await select(q)),
    failures: async (q) => failuresOf(await select(q)),
    compare: async (ids) => {
      const all = await Promise.all(ids.map(whole));
      return align(all.map((one) => ({ row: one.detail.row, messages: one.messages })));
    },
    hits: async (id, q, find) => ({ hits: hitsOf((await whole(id)).messages, [...needles(q), ...(find ? [literal(find, "giu")] : [])]) }),
    keys: () => load<Keys>("keys.json"),
    values: (key, prefix) =>
      asked(() => {
        const facet = facetsOf(rows, [key], 1000).facets[0];
        const values = (facet?.values ?? []).filter((v) => v.value?.toLowerCase().startsWith(prefix.toLowerCase())).slice(0, 20);
        return { key, values, more: 0 };
      }),
    label: () => Promise.reject(refusal("a bundle cannot be labelled")),
    login: () => Promise.resolve(null),
    search: async (q, news, signal) => {
      let told = 0;
      const tell = (hits: Hits, end: number, done = false): void => {
        news({ rows: rows.slice(told, end).filter(matcher(q, hits)), scanned: end, total: rows.length, done, more: false });
        told = end;
      };
      matcher(q); // refuses what a bundle cannot answer, before anything is read
      tell(await find(q, tell, signal), rows.length, true);
    },
    listen: () => () => undefined,
  };
}

/** Told after each file of texts: of rows before `end` all hits are known. */
type Read = (hits: Hits, end: number) => void;

/** Looks for the text terms of queries in all texts, beside the page; each term once. */
function finder(root: string, texts: number, rows: Row[]): (q: string, read?: Read, signal?: AbortSignal) => Promise<Hits> {
  const known: Hits = new Map();
  const look = (terms: string[], hits: Hits, read?: Read, signal?: AbortSignal): Promise<void> =>
    new Promise((done, fail) => {
      const worker = new Worker(new URL("../lib/searcher.ts", import.meta.url), { type: "module" });
      const end = (act: () => void): void => {
        worker.terminate();
        act();
      };
      signal?.addEventListener("abort", () => end(() => fail(new Error("stopped"))));
      worker.onerror = (event) => end(() => fail(new Error(event.message || "the search cannot run here")));
      worker.onmessage = ({ data }: MessageEvent<Found>) => {
        if ("error" in data) return end(() => fail(new Error(data.error)));
        terms.forEach((term, i) => data.places[i]?.forEach((n) => hits.get(term)?.add(rows[n]?.id ?? "")));
        read?.(hits, data.end);
        if (data.file === texts - 1) end(done);
      };
      worker.postMessage({ root: new URL(root, location.href).href, files: texts, terms } satisfies Ask);
    });
  return async (q, read, signal) => {
    const wanted = textTerms(q).filter((term) => !known.has(term));
    if (wanted.length && texts) {
      const mine: Hits = new Map(wanted.map((term) => [term, new Set<string>()]));
      await look(wanted, new Map([...known, ...mine]), read, signal);
      for (const [term, ids] of mine) known.set(term, ids);
    }
    return known;
  };
}

const refusal = (error: string): Refused => new Refused(404, { error, start: null, end: null, suggestions: [] });

function runsOf(rows: Row[]): Run[] {
  return [...Map.groupBy(rows, (row) => `${row.project}\n${row.run}`).values()].map((mine) => {
    const steps = mine.map((row) => row.step).filter((step) => step !== null);
    return {
      project: mine[0]?.project ?? "",
      run: mine[0]?.run ?? "",
      rollouts: mine.length,
      superseded: 0,
      first_step: steps.length ? Math.min(...steps) : null,
      last_step: steps.length ? Math.max(...steps) : null,
      last_time: mine.reduce<number | null>((t, row) => (row.time !== null && row.time > (t ?? 0) ? row.time : t), null),
      live: false,
    };
  });
}

function startOf(rows: Row[]): { id: string | null } {
  for (const mine of Map.groupBy(rows, groupOf).values()) {
    if (new Set(mine.map((row) => row.reward).filter((r) => typeof r === "number")).size > 1) return { id: mine[0]?.id ?? null };
  }
  return { id: rows[0]?.id ?? null };
}

function neighboursOf(rows: Row[], id: string): Awaited<ReturnType<Api["neighbours"]>> {
  const me = rows.find((row) => row.id === id);
  if (!me) throw refusal("not in this bundle");
  const mine = rows.filter((row) => row.project === me.project && row.run === me.run && row.split === me.split);
  const groups = [...Map.groupBy(mine, groupOf)].filter(([, [row]]) => row === me || (row && !isAlone(row)));
  const at = groups.findIndex(([key]) => key === groupOf(me));
  const beside = (n: number): string | null => (isAlone(me) || me.step === null ? null : (groups[n]?.[1][0]?.id ?? null));
  const same = mine.filter((row) => row.task !== null && row.task === me.task && row.dataset === me.dataset && row.step !== null);
  const nearest = (list: Row[], way: 1 | -1): string | null => {
    const step = list.map((row) => row.step ?? 0).sort((a, b) => way * (a - b))[0];
    const there = list.filter((row) => row.step === step);
    return (there.find((row) => row.index === me.index) ?? there[0])?.id ?? null;
  };
  return {
    siblings: (groups[at]?.[1] ?? []).toSorted((a, b) => (a.index ?? 0) - (b.index ?? 0)),
    previous_group: beside(at + 1),
    next_group: beside(at - 1),
    earlier: nearest(same.filter((row) => (row.step ?? 0) < (me.step ?? 0)), -1),
    later: nearest(same.filter((row) => (row.step ?? 0) > (me.step ?? 0)), 1),
  };
}

function hitsOf(messages: Body[], patterns: RegExp[]): Hit[] {
  return messages.flatMap((body) =>
    patterns.flatMap((pattern) => [...(body.text ?? "").matchAll(pattern)].filter((m) => m[0]).map((m) => ({ message: body.n, start: m.index, end: m.index + m[0].length, where: "text", said: m[0].slice(0, 300) }))),
  );
}

