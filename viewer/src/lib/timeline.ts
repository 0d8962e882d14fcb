/** Spans and turns of a rollout on one line of time. A call without an end ran nobody knows how long:
 * it is neither short nor over, so nothing behind it is called waiting before something else begins. */

export interface Timed {
  start: number | null;
  end: number | null;
}

export interface Timeline {
  begin: number;
  end: number;
  /** Seconds in which neither the policy wrote nor a call ran, as far as that is known. */
  waiting: number;
  /** Calls of which the end was not recorded. */
  unended: number;
}

export function timeline(all: readonly Timed[]): Timeline {
  const timed = all.filter((one): one is { start: number; end: number | null } => one.start !== null).sort((a, b) => a.start - b.start);
  const begin = timed[0]?.start ?? 0;
  let [reached, waiting, unknown] = [begin, 0, false];
  for (const { start, end } of timed) {
    if (!unknown) waiting += Math.max(0, start - reached);
    unknown = end === null;
    reached = Math.max(reached, end ?? start);
  }
  return { begin, end: reached, waiting, unended: timed.filter((one) => one.end === null).length };
}

/** Until when a call is drawn: one without an end until something else begins. */
export function reach(one: Timed, all: readonly Timed[], end: number): number {
  if (one.end !== null) return one.end;
  const start = one.start ?? end;
  return Math.min(end, ...all.flatMap((other) => (other.start !== null && other.start > start ? [other.start] : [])));
}
