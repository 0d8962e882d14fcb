import { expect, test } from "vitest";
import { reach, timeline } from "../src/lib/timeline";

const at = (start: number | null, end: number | null): { start: number | null; end: number | null } => ({ start, end });

test("what lies between calls is waiting", () => {
  expect(timeline([at(10, 12), at(15, 20)])).toEqual({ begin: 10, end: 20, waiting: 3, unended: 0 });
  expect(timeline([at(10, 30), at(12, 13), at(15, 20)]).waiting).toBe(0);
});

test("behind a call without an end nothing is called waiting", () => {
  const calls = [at(0, null), at(400, 410), at(412, null), at(448, null)];
  expect(timeline(calls)).toEqual({ begin: 0, end: 448, waiting: 2, unended: 3 });
  expect(calls.map((call) => reach(call, calls, 448))).toEqual([400, 410, 448, 448]);
});

test("calls without any time make no line", () => {
  expect(timeline([at(null, null)])).toEqual({ begin: 0, end: 0, waiting: 0, unended: 0 });
});
