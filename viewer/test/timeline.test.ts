import { expect, test } from "vitest";
import { reach, timeline } from "../src/lib/timeline";

const at = (start: number | null, end: number | null): { start: number | null; end: number | null } => ({ start, end });

test("what lies between calls is waiting", () => {
  expect(timeline([at(10, 12), at(15, 20)])).toMatchObject({ begin: 10, end: 20, waiting: 3, unended: 0 });
  expect(timeline([at(10, 30), at(12, 13), at(15, 20)]).waiting).toBe(0);
});

test("behind a call without an end nothing is called waiting", () => {
  const calls = [at(0, null), at(400, 410), at(412, null), at(448, null)];
  expect(timeline(calls)).toMatchObject({ begin: 0, end: 448, waiting: 2, unended: 3 });
  expect(calls.map((call) => reach(call, calls, timeline(calls)))).toEqual([400, 410, 448, 448]);
});

test("a call without an end ran as long as what it called", () => {
  const agent = { ...at(0, null), id: "agent", parent: null };
  const calls = [agent, { ...at(10, 12), id: "a", parent: "agent" }, { ...at(15, 20), id: "b", parent: "agent" }];
  expect(timeline(calls)).toMatchObject({ begin: 0, end: 20, waiting: 0, unended: 1 });
  expect(reach(agent, calls, timeline(calls))).toBe(20);
  const later = [...calls, at(30, 31), at(35, 36)];
  expect(timeline(later).waiting).toBe(4); // what lies behind it is not known until something else begins
  expect(reach(agent, later, timeline(later))).toBe(30);
});

test("calls that say they called each other end nothing", () => {
  const calls = [{ ...at(0, null), id: "a", parent: "b" }, { ...at(5, 6), id: "b", parent: "a" }];
  expect(timeline(calls)).toMatchObject({ end: 6, waiting: 0 });
});

test("calls without any time make no line", () => {
  expect(timeline([at(null, null)])).toMatchObject({ begin: 0, end: 0, waiting: 0, unended: 0 });
});
