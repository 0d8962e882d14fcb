import { expect, test } from "vitest";
import { matcher } from "../src/lib/filter";
import type { RolloutRow } from "../src/api/types";
import { parse } from "../src/lib/syntax";
import { idOf, marked, needles, searched, textTerms } from "../src/lib/whole";

const terms = (q: string): unknown[] => textTerms(parse(q)).map(({ role, value }) => [role, value?.text ?? null]);
const has = (q: string, said: string, by: string): boolean => textTerms(parse(q)).every((term) => searched(term)(said, by));

test("text terms are found wherever they stand, also under a negation", () => {
  expect(terms('reward:>0 word -"not this" (task:x OR (assistant:said -/re.x/)) OR has:user')).toEqual([[null, "word"], [null, "not this"], ["assistant", "said"], [null, "re.x"], ["user", null]]);
});

test("a term looks in the messages of its role only", () => {
  expect([has("role.tool:Error", "an error", "tool"), has("role.tool:Error", "an error", "user"), has('"Exact (1)"', "exact (1)", "user")]).toEqual([true, false, false]);
});

test("rows are chosen by who has the words", () => {
  const row = (id: string, reward: number): RolloutRow => ({ id, reward }) as RolloutRow;
  const rows = [row("a", 1), row("b", 1), row("c", 0)];
  const hits = new Map(textTerms(parse("word")).map((term) => [idOf(term), new Set(["a", "c"])]));
  const chosen = (q: string): string[] => rows.filter(matcher(q, hits)).map((r) => r.id);
  expect(chosen("word")).toEqual(["a", "c"]);
  expect(chosen("-word")).toEqual(["b"]);
  expect(chosen("(word reward:1) OR reward:0")).toEqual(["a", "c"]);
});

test("only what a query looks for in texts is marked", () => {
  const found = needles('reward:>0 Word "Exact (1)" /d\\d/ assistant:"inner" -not task:x OR role.tool:none').map((r) => [r.source, r.flags]);
  expect(found).toEqual([
    ["Word", "giu"],
    ["Exact \\(1\\)", "gu"],
    ["d\\d", "gu"],
    ["inner", "gu"],
  ]);
});

test("what a pattern found is marked, and the pattern is not run in the page", () => {
  const found = marked('carry /(x+x+)+y/ "One"', "two", [{ said: "xxy" }, { said: "xxy" }, { said: null }]);
  expect(found.map(String)).toEqual(["/carry/giu", "/One/gu", "/two/giu", "/xxy/gu"]);
});

test("a pattern that only the server can read is refused, not answered with nothing", () => {
  for (const q of ["/\\pL+/", "task:/(?m)^x/", "/[[:alpha:]]/", "user:/\\Ax/"]) expect(() => matcher(q)).toThrow("cannot read the pattern");
});

test("a pattern that the server refuses is refused", () => {
  for (const q of ["/(?=x)/", "/(a)\\1/", "task:/(?<!x)y/", "/(/"]) expect(() => matcher(q)).toThrow("cannot read the pattern");
});
