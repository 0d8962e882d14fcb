/** One stream over all tokens, in buckets: in a bundle's page, as the server does it. */
import type { Num, Strip, TokenBlock } from "../api/types";
import { finite } from "./num";
import { valuesOf } from "./tokens";

const BUCKETS = 2000;

export function stripOf(blocks: TokenBlock[], stream: string): Strip {
  const values: Num[] = [];
  const starts: number[] = [];
  for (const block of blocks) {
    starts.push(values.length);
    const found = valuesOf(block, stream);
    const length = block.ids?.length ?? block.ends?.length ?? found?.length ?? 0;
    values.push(...(found ?? new Array<null>(length).fill(null)));
  }
  const per = Math.max(1, Math.ceil(values.length / BUCKETS));
  const [low, high, mean]: [Num[], Num[], Num[]] = [[], [], []];
  for (let i = 0; i < values.length; i += per) {
    const bucket = values.slice(i, i + per).map(finite).filter((n): n is number => n !== null);
    low.push(bucket.length ? Math.min(...bucket) : null);
    high.push(bucket.length ? Math.max(...bucket) : null);
    mean.push(bucket.length ? bucket.reduce((a, b) => a + b, 0) / bucket.length : null);
  }
  let [least, most] = [-1, -1];
  let [sum, count] = [0, 0];
  values.forEach((value, i) => {
    const n = finite(value);
    if (n === null) return;
    sum += n;
    count++;
    if (least < 0 || n < (finite(values[least]) ?? 0)) least = i;
    if (most < 0 || n > (finite(values[most]) ?? 0)) most = i;
  });
  const place = (at: number): [number, number] | null => {
    if (at < 0) return null;
    let i = starts.length - 1;
    while (i > 0 && (starts[i] ?? 0) > at) i--;
    return [blocks[i]?.n ?? 0, at - (starts[i] ?? 0)];
  };
  return {
    stream, tokens: values.length, missing: values.filter((v) => v === null).length, per, low, high, mean,
    messages: blocks.map((block) => block.n), starts,
    lowest: least < 0 ? null : (values[least] ?? null), highest: most < 0 ? null : (values[most] ?? null), average: count ? sum / count : null,
    lowest_at: place(least), highest_at: place(most),
  };
}
