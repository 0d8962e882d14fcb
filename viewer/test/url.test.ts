import { expect, test } from "vitest";
import { EMPTY, read, write, type State } from "../src/state/url";

test("an address says everything that is shown, and nothing else", () => {
  const state: State = { ...EMPTY, screen: "compare", q: 'task:"a b" -x', id: "r1", compare: ["r1", "r2"], m: 7, mark: "t4-9", view: "tokens", stream: "logprob", leaf: 3, folds: { prompt: true, "think:4.0": false }, outline: true, list: false, span: "2", all: true, at: 5 };
  expect(read(write(state))).toEqual(state);
  expect(write(EMPTY)).toBe("");
});

test("what an old or a broken link says wrongly is left out", () => {
  expect(read("?s=nowhere&view=x&m=-3&mark=x1&leaf=abc&unknown=1&fold=<b>,a:b:c&span=x&list=perhaps")).toEqual(EMPTY);
});

test("nothing is compared with itself", () => {
  expect(read("?s=compare&ids=a,b,a").compare).toEqual(["a", "b"]);
});

test("queries keep every character", () => {
  const q = 'reward:<0.2 "a&b=c#d" /x+y?%/ OR 漢字 \\';
  expect(read(write({ ...EMPTY, q })).q).toBe(q);
});
