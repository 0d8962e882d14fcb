import { expect, test } from "vitest";
import { scrollFor, windowOf } from "../src/lib/window";

test("only what is in sight exists", () => {
  const w = windowOf(1_000_000, 28, 0, 560);
  expect(w.last - w.first).toBeLessThan(40);
});

test("both ends of a million rows can be reached", () => {
  const w = windowOf(1_000_000, 28, 0, 560);
  expect(w.height).toBeLessThan(17_000_000);
  const end = windowOf(1_000_000, 28, w.height - 560, 560);
  expect(end.last).toBe(1_000_000);
  expect(end.offset + (end.last - end.first) * 28).toBeCloseTo(w.height, 0);
});

test("a row is brought into sight, and left alone when it is", () => {
  expect(scrollFor(5, 100, 28, 0, 560)).toBeNull();
  const to = scrollFor(900_000, 1_000_000, 28, 0, 560) ?? 0;
  const w = windowOf(1_000_000, 28, to, 560, 0);
  expect(w.first).toBeLessThanOrEqual(900_000);
  expect(w.last).toBeGreaterThan(900_000);
});
