import { expect, test } from "vitest";
import { asCommand, asPython, both, marked, needles, quoted, range, replace, term, terms, toggle } from "../src/lib/query";

test("a click adds a term, another takes it away", () => {
  expect(toggle("reward:>0", "fate:trained")).toBe("reward:>0 fate:trained");
  expect(toggle("reward:>0 fate:trained", "fate:trained")).toBe("reward:>0");
});

test("terms are told apart whatever stands in them", () => {
  expect(terms('a:"x y" -b:1..2 (c:1 OR d:"e f") /re ge?x/ "plain words" word')).toEqual(['a:"x y"', "-b:1..2", '(c:1 OR d:"e f")', "/re ge?x/", '"plain words"', "word"]);
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

test("only what a query looks for in texts is marked", () => {
  const found = needles('reward:>0 Word "Exact (1)" /d\\d/ assistant:"inner" -not task:x OR').map((r) => [r.source, r.flags]);
  expect(found).toEqual([
    ["Word", "giu"],
    ["Exact \\(1\\)", "gu"],
    ["d\\d", "gu"],
    ["inner", "gu"],
  ]);
});

test("a selection can be taken to Python and to the command line", () => {
  expect(asPython('task:"a"', "-reward")).toContain('.rollouts("task:\\"a\\"", order="-reward")');
  expect(asCommand("it's", "")).toBe(`rollscope ls 'it'\\''s'`);
  expect(asCommand("a", "-reward", "/a b")).toBe(`rollscope ls 'a' --order='-reward' --dir='/a b'`);
  expect(asPython("a", "", "/a b")).toContain('open("/a b").rollouts("a")');
});

test("what a pattern found is marked, and the pattern is not run in the page", () => {
  const found = marked('carry /(x+x+)+y/ "One"', "two", [{ said: "xxy" }, { said: "xxy" }, { said: null }]);
  expect(found.map(String)).toEqual(["/carry/giu", "/One/gu", "/two/giu", "/xxy/gu"]);
});

test("a value that has another meaning is quoted", () => {
  expect([term("task", "none"), term("task", "NaN"), term("task", "1..2"), term("task", "a.b-c"), term("task", null)]).toEqual(['task:"none"', 'task:"NaN"', 'task:"1..2"', "task:a.b-c", "task:none"]);
});
