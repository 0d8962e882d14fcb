/** One function per question the page can ask. The same interface is answered by a server
 * (`http`) and, in a bundle, by the files beside the page (`files.ts`). */
import { followTogether } from "../lib/live";
import * as T from "./types";

export type Params = Record<string, string | number | boolean | null | undefined>;

/** Why the server refused, in words for a person. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly problem: T.Refusal,
  ) {
    super(problem.error);
  }
}

export interface Api {
  readonly fixed: boolean;
  status(signal?: AbortSignal): Promise<T.Status>;
  runs(signal?: AbortSignal): Promise<{ runs: T.ListedRun[] }>;
  /** Rows with the fields of `T.LISTED` and these columns. */
  rollouts(p: { q: string; order: string; at: number; limit: number; columns: string[] }, s?: AbortSignal): Promise<T.ListedPage>;
  /** One rollout, with its messages from `first` on where that is not slower than without. */
  detail(id: string, first: number, s?: AbortSignal): Promise<T.Detail>;
  messages(id: string, first: number, count: number, s?: AbortSignal): Promise<T.Bodies>;
  /** A stretch of what message `n` says. */
  text(id: string, n: number, start: number, chars: number, s?: AbortSignal): Promise<T.TextWindow>;
  /** Of each of these messages, up to `most` tokens from number `start` on. */
  tokens(id: string, p: { first: number; count: number; start: number; most: number }, s?: AbortSignal): Promise<T.TokenBlocks>;
  strip(id: string, stream: string, s?: AbortSignal): Promise<T.Strip>;
  spans(id: string, s?: AbortSignal): Promise<T.Spans>;
  neighbours(id: string, s?: AbortSignal): Promise<T.ShownNeighbours>;
  place(id: string, q: string, order: string, s?: AbortSignal): Promise<{ at: number | null }>;
  start(q: string, s?: AbortSignal): Promise<T.Start>;
  /** Another rollout than `but`, if there is one. */
  random(q: string, but: string, s?: AbortSignal): Promise<T.Start>;
  facets(q: string, keys: readonly string[], s?: AbortSignal): Promise<T.Facets>;
  histograms(q: string, keys: readonly string[], s?: AbortSignal): Promise<T.Histograms>;
  /** Keys of the user's own that rollouts of a selection have: `rewards.correct`, `meta.lang`. */
  names(q: string, s?: AbortSignal): Promise<T.Names>;
  ribbon(q: string, metrics: string, s?: AbortSignal): Promise<T.Ribbon>;
  tasks(p: { q: string; kind: string; order: string; at: number }, s?: AbortSignal): Promise<T.Tasks>;
  /** Tasks against runs, steps or the values of another key; `base` and `other`: the `q` of two columns. */
  matrix(p: { q: string; across: string; order: string; base: string; other: string; at: number }, s?: AbortSignal): Promise<T.Matrix>;
  history(p: { q: string; task: string; dataset: string | null }, s?: AbortSignal): Promise<T.History>;
  funnel(q: string, s?: AbortSignal): Promise<T.Funnel>;
  failures(q: string, s?: AbortSignal): Promise<T.Failures>;
  findings(q: string, s?: AbortSignal): Promise<T.Checks>;
  compare(ids: string[], s?: AbortSignal): Promise<T.Compared>;
  hits(id: string, q: string, find: string, s?: AbortSignal): Promise<T.Hits>;
  keys(s?: AbortSignal): Promise<T.Keys>;
  values(key: string, prefix: string, s?: AbortSignal): Promise<T.Values>;
  label(label: Partial<T.Label> & { rollout: string }): Promise<unknown>;
  login(token: string): Promise<unknown>;
  search(q: string, news: (n: T.SearchNews) => void, signal: AbortSignal): Promise<void>;
  listen(news: (n: T.News) => void, state: (live: boolean) => void): () => void;
}

/** Messages that come in one answer. */
export const WINDOW = 40;

function address(path: string, params: Params = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  }
  const tail = query.toString();
  return `api/${path}${tail ? `?${tail}` : ""}`;
}

/** Told when the server asks for a token in the middle: it was started anew, or the token is another. */
export const LOCKED = "rollscope:locked";

async function refuse(answer: Response): Promise<never> {
  if (answer.status === 401) dispatchEvent(new Event(LOCKED));
  let problem: T.Refusal = { error: `${answer.status} ${answer.statusText}`, start: null, end: null, suggestions: [] };
  try {
    problem = { ...problem, ...((await answer.json()) as Partial<T.Refusal>) };
  } catch {
    // not ours: a proxy's page
  }
  throw new Refused(answer.status, problem);
}

/** A browser says "Failed to fetch", each its own way. */
const reach = (address: string, options: RequestInit): Promise<Response> =>
  fetch(address, options).catch((error: unknown) => {
    throw error instanceof TypeError ? new Error("the server does not answer") : error;
  });

async function get<A>(path: string, params: Params = {}, signal?: AbortSignal): Promise<A> {
  const answer = await reach(address(path, params), { signal: signal ?? null, cache: "no-cache" });
  return answer.ok ? ((await answer.json()) as A) : refuse(answer);
}

async function post(path: string, body: unknown): Promise<unknown> {
  const answer = await reach(address(path), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return answer.ok ? answer.json() : refuse(answer);
}

const one = (id: string): string => `rollouts/${encodeURIComponent(id)}`;

export const http: Api = {
  fixed: false,
  status: (s) => get("status", {}, s),
  runs: (s) => get("runs", {}, s),
  rollouts: (p, s) => get("rollouts", { ...p, columns: [...new Set([...T.LISTED, ...p.columns])].join(",") }, s),
  detail: (id, first, s) => get(one(id), { first, count: WINDOW }, s),
  messages: (id, first, count, s) => get(`${one(id)}/messages`, { first, count }, s),
  text: (id, n, start, chars, s) => get(`${one(id)}/messages/${n}`, { start, chars }, s),
  tokens: (id, p, s) => get(`${one(id)}/tokens`, p, s),
  strip: (id, stream, s) => get(`${one(id)}/strip`, { stream }, s),
  spans: (id, s) => get(`${one(id)}/spans`, {}, s),
  neighbours: (id, s) => get(`${one(id)}/neighbours`, {}, s),
  place: (id, q, order, s) => get(`${one(id)}/place`, { q, order }, s),
  start: (q, s) => get("start", { q }, s),
  random: (q, but, s) => get("random", { q, but }, s),
  facets: (q, keys, s) => get("facets", { q, keys: keys.join(",") }, s),
  histograms: (q, keys, s) => get("histograms", { q, keys: keys.join(",") }, s),
  names: (q, s) => get("names", { q }, s),
  ribbon: (q, metrics, s) => get("ribbon", { q, metrics }, s),
  tasks: (p, s) => get("tasks", p, s),
  matrix: (p, s) => get("matrix", p, s),
  history: (p, s) => get("history", p, s),
  funnel: (q, s) => get("funnel", { q }, s),
  failures: (q, s) => get("failures", { q }, s),
  findings: (q, s) => get("findings", { q }, s),
  compare: (ids, s) => get("compare", { ids: ids.join(",") }, s),
  hits: (id, q, find, s) => get(`${one(id)}/hits`, { q, find }, s),
  keys: (s) => get("keys", {}, s),
  values: (key, prefix, s) => get("values", { key, prefix }, s),
  label: (label) => post("labels", label),
  login: (token) => post("login", { token }),

  async search(q, news, signal) {
    const answer = await reach(address("search", { q }), { signal });
    if (!answer.ok || !answer.body) return refuse(answer);
    let done = false;
    for await (const data of events(answer.body)) {
      const told = JSON.parse(data) as T.SearchNews;
      done = told.done;
      news(told);
    }
    if (!done) throw new Error("the server broke off");
  },

  listen: (news, state) =>
    followTogether(new URL(address("events"), document.baseURI).href, (told) => {
      state(told.live);
      if (told.news) news(told.news);
    }),
};

/** The `data:` of each server-sent event in a body. */
export async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.pipeThrough(new TextDecoderStream() as unknown as TransformStream<Uint8Array, string>).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value.replaceAll("\r", "")).split("\n\n");
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const data = block
        .split("\n")
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice(5).trimStart())
        .join("\n");
      if (data) yield data;
    }
  }
}
