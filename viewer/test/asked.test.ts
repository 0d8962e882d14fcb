import { expect, test } from "vitest";
import { asCommand, asPython, type Asked } from "../src/lib/asked";

const asked = (change: Partial<Asked>): Asked => ({ screen: "read", q: "", order: "", id: "a1", compare: ["a1", "b2", "c3"], task: "t 1", dataset: null, kind: "", across: "", sort: "", base: "", other: "", ...change });

test("a selection can be taken to Python and to the command line", () => {
  expect(asPython(asked({ q: 'task:"a"', order: "-reward" }))).toContain('.rollouts("task:\\"a\\"", order="-reward")');
  expect(asCommand(asked({ q: "it's" }))).toBe(`rollscope ls 'it'\\''s'`);
  expect(asCommand(asked({ q: "a", order: "-reward", dir: "/a b" }))).toBe(`rollscope ls 'a' --order='-reward' --dir='/a b'`);
  expect(asPython(asked({ q: "a", dir: "/a b" }))).toContain('open("/a b").rollouts("a")');
});

test("every other screen asks its own question", () => {
  const lines = (change: Partial<Asked>): [string, string] => [asPython(asked(change)).split("\n").at(-1) ?? "", asCommand(asked(change))];
  expect(lines({ screen: "group" })).toEqual(['siblings = rollscope.open().group("a1")', "rollscope group 'a1'"]);
  expect(lines({ screen: "task", dataset: "gsm 8k" })).toEqual(['rollouts = rollscope.open().task_history("t 1", "gsm 8k")', `rollscope task 't 1' 'dataset:"gsm 8k"'`]);
  expect(lines({ screen: "tasks", q: "step:1", kind: "flipped" })).toEqual(['tasks = rollscope.open().tasks("step:1", kind="flipped")', "rollscope tasks 'step:1'"]);
  expect(lines({ screen: "fate", q: "step:1" })).toEqual(['ends = store.fates("step:1")', "rollscope fate 'step:1'"]);
  expect(lines({ screen: "failures" })).toEqual(["failures = rollscope.open().failures()", "rollscope failures"]);
  expect(lines({ screen: "findings" })).toEqual(["checks = counts(rollscope.open())", "rollscope findings"]);
  expect(lines({ screen: "matrix", q: "step:1", across: "run", base: "run:a", other: "run:b" })).toEqual(['matrix = rollscope.open().matrix("step:1", "run", base="run:a", other="run:b", order="-difference")', "rollscope tasks 'step:1' --across='run' --compare 'run:a' 'run:b' --order='-difference'"]);
  expect(asCommand(asked({ screen: "compare" }))).toBe("rollscope diff 'a1' 'b2'\nrollscope diff 'a1' 'c3'");
  expect(asPython(asked({ screen: "compare" }))).toContain('for id in ("a1", "b2", "c3",)]');
});
