/** Spans and turns of a rollout on one line of time. A call without an end ran nobody knows how long:
 * it is neither short nor over, so nothing behind it is called waiting before something else begins.
 * It surely ran as long as what it called. */

export interface Timed {
  start: number | null;
  end: number | null;
  id?: string | null;
  parent?: string | null;
}

export interface Timeline {
  begin: number;
  end: number;
  /** Seconds in which neither the policy wrote nor a call ran, as far as that is known. */
  waiting: number;
  /** Calls of which the end was not recorded. */
  unended: number;
  /** By id, when the last of what a call called is known to have run. */
  ran: Map<string, number>;
}

const DEEPEST = 60; // ids are what programs say: they may go round in circles

export function timeline(all: readonly Timed[]): Timeline {
  const timed = all.filter((one): one is Timed & { start: number } => one.start !== null).sort((a, b) => a.start - b.start);
  const ran = below(timed);
  const begin = timed[0]?.start ?? 0;
  let [reached, waiting] = [begin, 0];
  let unended: number[] = []; // until when each of those is known to have run
  for (const one of timed) {
    const { start, end } = one;
    if (!unended.length) waiting += Math.max(0, start - reached);
    unended = unended.filter((known) => start <= known);
    if (end === null) unended.push(known(one, ran));
    reached = Math.max(reached, end ?? start);
  }
  return { begin, end: reached, waiting, unended: timed.filter((one) => one.end === null).length, ran };
}

function below(all: readonly (Timed & { start: number })[]): Map<string, number> {
  const parents = new Map(all.map((one) => [one.id, one.parent]));
  const ran = new Map<string, number>();
  for (const one of all) {
    let parent = one.parent;
    for (let n = 0; parent && n < DEEPEST; n++) {
      ran.set(parent, Math.max(ran.get(parent) ?? -Infinity, one.end ?? one.start));
      parent = parents.get(parent);
    }
  }
  return ran;
}

const known = (one: Timed, ran: Map<string, number>): number => Math.max(one.start ?? -Infinity, (one.id && ran.get(one.id)) || -Infinity);

/** Until when a call is drawn: one without an end until something else begins. */
export function reach(one: Timed, all: readonly Timed[], { end, ran }: Timeline): number {
  if (one.end !== null) return one.end;
  const from = one.start === null ? end : known(one, ran);
  return Math.min(end, ...all.flatMap((other) => (other.start !== null && other.start > from ? [other.start] : [])));
}
