import { expect, test } from "vitest";
import type { Outline } from "../src/api/types";
import { branch, cards, leaves, leafThrough } from "../src/lib/tree";

function outline(rows: [role: string, parent: number, tools?: string[]][]): Outline {
  return {
    parent: rows.map(([, parent]) => parent),
    role: rows.map(([role]) => role),
    name: rows.map(() => null),
    chars: rows.map(() => 1),
    tokens: rows.map(() => null),
    sampled: rows.map(([role]) => role === "assistant"),
    tools: rows.map(([, , tools]) => tools ?? []),
    calls: rows.map(([, , tools]) => (tools ?? []).map(() => "")),
    thinks: rows.map(() => false),
    failed: rows.map(() => false),
    preview: rows.map(() => ""),
    reward: rows.map(() => null),
  };
}

const tree = outline([["user", -1], ["assistant", 0], ["assistant", 0], ["tool", 2], ["user", -1], ["assistant", 4]]);

test("every branch can be read, from its root to its end", () => {
  expect(leaves(tree)).toEqual([1, 3, 5]);
  expect(branch(tree, 1)).toEqual([0, 1]);
  expect(branch(tree, 5)).toEqual([4, 5]);
  expect(branch(tree, null)).toEqual([0, 2, 3]);
  expect(leafThrough(tree, 2)).toBe(3);
});

test("what tools answered stands with what called them", () => {
  const calls = outline([["user", -1], ["assistant", 0, ["a", "b"]], ["tool", 1], ["tool", 2], ["tool", 3], ["assistant", 4]]);
  expect(cards(calls, branch(calls, null)).map((card) => [card.n, card.results, card.prompt])).toEqual([
    [0, [], true],
    [1, [2, 3], false],
    [4, [], false],
    [5, [], false],
  ]);
});

test("a damaged tree is no endless loop", () => {
  expect(branch(outline([["user", 1], ["user", 0]]), null).length).toBeLessThan(3);
  expect(branch(outline([]), null)).toEqual([]);
});
