/** Numbers over steps, drawn: smoothed lines and the ticks of an axis. */

/** A step with its number; null where there is none. */
export type Point = [step: number, value: number | null];

/** How many steps are taken together where nobody chose: so many that a hundred steps and more stay readable. */
export const usualWindow = (steps: number): number => (steps > 80 ? Math.round(steps / 80) * 2 + 1 : 1);

/** Each number is the mean of those at most `window / 2` steps away. Where there is none, there stays none. */
export function smoothed(points: Point[], window: number): Point[] {
  if (window <= 1) return points;
  const half = window / 2;
  let [from, to, sum, known] = [0, 0, 0, 0];
  return points.map(([step, value]) => {
    for (; to < points.length && (points[to]?.[0] ?? 0) <= step + half; to++) {
      sum += points[to]?.[1] ?? 0;
      known += Number((points[to]?.[1] ?? null) !== null);
    }
    for (; (points[from]?.[0] ?? 0) < step - half; from++) {
      sum -= points[from]?.[1] ?? 0;
      known -= Number((points[from]?.[1] ?? null) !== null);
    }
    return [step, value === null ? null : sum / known];
  });
}

/** Round numbers from `low` to `high`, at most so many. */
export function ticks(low: number, high: number, most: number, whole = false): number[] {
  const least = (high - low) / Math.max(1, most);
  if (!(least > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(least));
  const by = Math.max(whole ? 1 : 0, [1, 2, 5, 10].map((n) => n * power).find((n) => n >= least * 0.999) ?? least);
  const first = Math.ceil(low / by - 1e-9);
  return Array.from({ length: Math.floor(high / by + 1e-9) - first + 1 }, (_, n) => Number(((first + n) * by).toPrecision(12)));
}
