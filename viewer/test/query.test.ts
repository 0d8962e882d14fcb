import { expect, test } from "vitest";
import { both, exactly, quoted, range, replace, term, terms, toggle } from "../src/lib/query";

test("a click adds a term, another takes it away", () => {
  expect(toggle("reward:>0", "fate:trained")).toBe("reward:>0 fate:trained");
  expect(toggle("reward:>0 fate:trained", "fate:trained")).toBe("reward:>0");
});

test("terms are told apart whatever stands in them", () => {
  expect(terms('a:"x y" -b:1..2 (c:1 OR d:"e f") /re ge?x/ "plain words" word')).toEqual(['a:"x y"', "-b:1..2", '(c:1 OR d:"e f")', "/re ge?x/", '"plain words"', "word"]);
});

test("a list, a pattern with its flag and what is negated are one piece each", () => {
  expect(terms('task:"a b","c d" task:/x y/i -(a OR b) NOT c OR fate:f(x)')).toEqual(['task:"a b","c d"', "task:/x y/i", "-(a OR b)", "NOT c", "OR", "fate:f(x)"]);
  expect(toggle('task:"a b","c d" step:1', "step:1")).toBe('task:"a b","c d"');
});

test("a query that cannot be read yet is taken word by word", () => {
  expect(terms("step:1 (fate:")).toEqual(["step:1", "(fate:"]);
});

test("a term for exactly one text is as short as it can be", () => {
  expect([exactly("fate", "trained"), exactly("fate", "none"), exactly("fate", null), exactly("task", 'a "b"')]).toEqual(["fate:trained", 'fate:"none"', "fate:none", 'task:"a \\"b\\""']);
  expect(exactly("fate_reason", "a/b\t(1)")).toBe("fate_reason:/^a\\/b\\x{9}\\(1\\)$/");
});

test("a brush replaces the range that was there", () => {
  expect(replace("step:1..3 fate:trained", "step", range("step", 5, 9))).toBe("fate:trained step:5..9");
  expect(range("reward", 0.1 + 0.2, 1)).toBe("reward:0.3..1");
});

test("values are quoted when they must be", () => {
  expect(quoted("a b")).toBe('"a b"');
  expect(quoted('say "hi"')).toBe('"say \\"hi\\""');
  expect(term("fate", null)).toBe("fate:none");
  expect(term("task", "q-1")).toBe("task:q-1");
});

test("an OR stays together when something is added", () => {
  expect(both("a:1 OR b:2", "c:3")).toBe("(a:1 OR b:2) c:3");
  expect(both("", "c:3")).toBe("c:3");
  expect(both("a:1 OR b:2", "(a:1 OR b:2) c:3")).toBe("(a:1 OR b:2) c:3");
  expect(both("run:a", "run:a has:reward")).toBe("run:a has:reward");
});

test("a value that has another meaning is quoted", () => {
  expect([term("task", "none"), term("task", "NaN"), term("task", "1..2"), term("task", "a.b-c"), term("task", null)]).toEqual(['task:"none"', 'task:"NaN"', 'task:"1..2"', "task:a.b-c", "task:none"]);
});
