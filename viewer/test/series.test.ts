import { expect, test } from "vitest";
import { smoothed, ticks, usualWindow, type Point } from "../src/lib/series";

test("a smoothed number is the mean of its neighbours, and a gap stays a gap", () => {
  const points: Point[] = [[0, 0], [1, 3], [2, null], [3, 6], [9, 1]];
  expect(smoothed(points, 1)).toEqual(points);
  expect(smoothed(points, 3)).toEqual([[0, 1.5], [1, 1.5], [2, null], [3, 6], [9, 1]]);
  expect(smoothed(points, 5)).toEqual([[0, 1.5], [1, 3], [2, null], [3, 4.5], [9, 1]]);
});

test("few steps are not smoothed, many are", () => {
  expect([10, 80, 200, 2000].map(usualWindow)).toEqual([1, 1, 7, 51]);
});

test("ticks are round and lie inside", () => {
  expect(ticks(0, 199, 8, true)).toEqual([0, 50, 100, 150]);
  expect(ticks(0, 1, 4)).toEqual([0, 0.5, 1]);
  expect(ticks(-0.3, 0.1, 4)).toEqual([-0.3, -0.2, -0.1, 0, 0.1]);
  expect(ticks(3, 5, 8, true)).toEqual([3, 4, 5]);
  expect(ticks(3, 3, 8, true)).toEqual([3]);
});
