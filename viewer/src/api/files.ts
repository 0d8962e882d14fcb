/** The same answers from the files of a bundle: no server, so the page counts by itself. */
import { align } from "../lib/align";
import { facetsOf, failuresOf, findingsOf, funnelOf, histogramsOf, namesOf, ribbonOf, tasksOf } from "../lib/counting";
import { matrixOf } from "../lib/matrix";
import { matcher, sorter, type Hits, type Rowed } from "../lib/filter";
import { literal } from "../lib/pattern";
import type { Ask, Found } from "../lib/searcher";
import { stripOf } from "../lib/strip";
import { characters, stretch } from "../lib/text";
import { windowOf } from "../lib/tokens";
import { parse } from "../lib/syntax";
import { historyOf, neighboursOf, runsOf, startOf } from "../lib/walking";
import { idOf, needles, textTerms, type TextTerm } from "../lib/whole";
import { Refused, type Api } from "./client";
import type { Alarm, Body, Detail, Hit, Keys, Num, RolloutRow, Spans, TokenBlock } from "./types";

interface Whole {
  detail: Detail;
  messages: Body[];
  tokens: TokenBlock[];
  spans: Spans;
}

/** What a run's trainer logged, and what checks found in its steps. */
interface Logged {
  project: string;
  run: string;
  metrics: Record<string, [number, Num][]>;
  alarms?: Alarm[]; // bundles made before have none
}

const KEPT = 12; // whole rollouts in memory

export async function files(root: string): Promise<Api> {
  const load = async <A>(name: string): Promise<A> => {
    const answer = await fetch(root + name);
    if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
    return (await answer.json()) as A;
  };
  const { rows, texts } = await load<{ rows: Rowed[]; texts: number }>("rows.json");
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
  let last: { key: string; rows: Promise<Rowed[]> } | undefined;
  function select(q: string, order = ""): Promise<Rowed[]> {
    const key = `${q}|${order}`;
    if (last?.key !== key) {
      const made = asked(() => [matcher(q), sorter(order)] as const) // refuses before anything is read
        .then(async ([, sort]) => sort(rows.filter(matcher(q, await find(q)))));
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
    text: async (id, n, start, chars) => {
      const body = (await whole(id)).messages[n];
      if (!body) throw refusal("no such message");
      return { n, start, text: stretch(body.text ?? "", start, start + chars), chars: body.chars };
    },
    tokens: async (id, { first, count, start, most }) => {
      const { messages, tokens } = await whole(id);
      const mine = tokens.filter((block) => block.n >= first && block.n < first + count);
      return { messages: mine.map((block) => windowOf(block, messages[block.n]?.text ?? "", messages[block.n]?.chars ?? 0, start, most)) };
    },
    strip: async (id, stream) => stripOf((await whole(id)).tokens, stream),
    spans: async (id) => (await whole(id)).spans,
    neighbours: (id) =>
      asked(() => {
        const me = rows[places.get(id) ?? -1];
        if (!me) throw refusal("not in this bundle");
        return neighboursOf(rows, me);
      }),
    place: async (id, q, order) => {
      const at = (await select(q, order)).findIndex((row) => row.id === id);
      return { at: at < 0 ? null : at };
    },
    start: async (q) => startOf(await select(q)),
    random: async (q, but) => {
      const all = await select(q);
      const found = all.length > 1 ? all.filter(({ id }) => id !== but) : all;
      return { id: found[Math.floor(Math.random() * found.length)]?.id ?? null };
    },
    facets: async (q, keys) => facetsOf(await select(q), keys),
    histograms: async (q, keys) => histogramsOf(await select(q), 40, keys),
    names: async (q) => namesOf(await select(q)),
    ribbon: async (q) => {
      logged ??= load<Logged[]>("metrics.json");
      logged.catch(() => (logged = undefined));
      const [ribbon, all] = [ribbonOf(await select(q)), await logged];
      for (const lane of ribbon.runs) {
        const mine = all.find((l) => l.project === lane.project && l.run === lane.run);
        const steps = new Set(lane.steps.map(({ step }) => step));
        lane.metrics = mine?.metrics ?? {};
        lane.alarms = (mine?.alarms ?? []).filter((alarm) => alarm.split === lane.split && steps.has(alarm.step));
      }
      return ribbon;
    },
    tasks: async ({ q, kind, order, at }) => tasksOf(await select(q), kind, order, at),
    matrix: async ({ q, ...asked }) => matrixOf(await select(q), asked),
    history: async ({ q, task, dataset }) => {
      const found = historyOf(await select(q), task, dataset);
      const reference: unknown = found[0] ? (await whole(found[0].id)).detail.reference : null;
      return { task, dataset, rows: found, count: found.length, preview: found.find((row) => row.prompt_preview)?.prompt_preview ?? null, reference };
    },
    funnel: async (q) => funnelOf(await select(q), q),
    failures: async (q) => failuresOf(await select(q), q),
    findings: async (q) => findingsOf(await select(q)),
    compare: async (ids) => {
      const all = await Promise.all(ids.map(whole));
      return align(all.map((one) => ({ row: one.detail.row, messages: one.messages })));
    },
    hits: async (id, q, find) => ({ hits: hitsOf(await whole(id), [...needles(q), ...(find ? [literal(find, "giu")] : [])]) }),
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
        news({ rows: rows.slice(told, end).filter(matcher(q, hits)), scanned: end, total: rows.length, done, more: false, stopped: false });
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
function finder(root: string, texts: number, rows: RolloutRow[]): (q: string, read?: Read, signal?: AbortSignal) => Promise<Hits> {
  const known: Hits = new Map();
  const look = (terms: TextTerm[], hits: Hits, read?: Read, signal?: AbortSignal): Promise<void> =>
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
        terms.forEach((term, i) => data.places[i]?.forEach((n) => hits.get(idOf(term))?.add(rows[n]?.id ?? "")));
        read?.(hits, data.end);
        if (data.file === texts - 1) end(done);
      };
      worker.postMessage({ root: new URL(root, location.href).href, files: texts, terms } satisfies Ask);
    });
  return async (q, read, signal) => {
    const wanted = textTerms(parse(q)).filter((term) => !known.has(idOf(term)));
    if (wanted.length && texts) {
      const mine: Hits = new Map(wanted.map((term) => [idOf(term), new Set<string>()]));
      await look(wanted, new Map([...known, ...mine]), read, signal);
      for (const [id, ids] of mine) known.set(id, ids);
    }
    return known;
  };
}

const refusal = (error: string): Refused => new Refused(404, { error, start: null, end: null, suggestions: [] });

function hitsOf({ messages, tokens }: Whole, patterns: RegExp[]): Hit[] {
  const ends = new Map(tokens.map((block) => [block.n, block.ends]));
  return messages.flatMap((body) => {
    const [text, mine] = [body.text ?? "", ends.get(body.n)];
    const found = patterns.flatMap((pattern) => [...text.matchAll(pattern)].filter((m) => m[0])).sort((a, b) => a.index - b.index);
    const chars = characters(text);
    return found.map((m): Hit => {
      const [start, end] = [chars(m.index), chars(m.index + m[0].length)];
      const token = mine?.findIndex((stop) => stop > start) ?? -1;
      return { message: body.n, start, end, where: "text", said: m[0].slice(0, 300), token: token < 0 ? null : token };
    });
  });
}
