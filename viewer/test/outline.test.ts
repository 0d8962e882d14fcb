import { expect, test } from "vitest";
import { linesOf } from "../src/lib/outline";

const places = (texts: string[], ...open: number[]): string[] => linesOf(texts, new Set(open)).map(({ at, count }) => `${at}×${count}`);

test("runs of the same are one line, and open to all of them", () => {
  expect(places(["a", "b", "b", "b", "b", "c", "c"])).toEqual(["0×1", "1×4", "5×1", "6×1"]);
  expect(places(["a", "b", "b", "b", "b", "c", "c"], 1)).toEqual(["0×1", "1×1", "2×1", "3×1", "4×1", "5×1", "6×1"]);
  expect(places([])).toEqual([]);
});
