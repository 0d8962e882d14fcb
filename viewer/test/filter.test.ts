import { expect, test } from "vitest";
import type { RolloutRow } from "../src/api/types";
import { sorter, sorts } from "../src/lib/filter";

const rows = (values: unknown[]): RolloutRow[] => values.map((reward, i) => ({ id: `r${i}`, reward }) as RolloutRow);
const ids = (sorted: RolloutRow[]): string => sorted.map((row) => row.id).join(" ");

test("what is missing or no number stands last, whichever way; equal ones by id", () => {
  const some = rows([0.5, null, "NaN", -1, 0.5, "Infinity", "-Infinity"]);
  expect(ids(sorter("reward")(some))).toBe("r6 r3 r0 r4 r5 r1 r2");
  expect(ids(sorter("-reward")(some))).toBe("r5 r0 r4 r3 r6 r1 r2");
});

test("texts are sorted by their letters, as the server does, not by a language", () => {
  const some = ["b", "B", "ä", "a"].map((task, i) => ({ id: `r${i}`, task }) as RolloutRow);
  expect(ids(sorter("task")(some))).toBe("r1 r3 r0 r2");
});

test("orders that only the server knows are left to it", () => {
  expect(["", "-reward", "-step,group"].map(sorts)).toEqual([true, true, true]);
  expect(["meta.level", "version", "tool"].map(sorts)).toEqual([false, false, false]);
});
