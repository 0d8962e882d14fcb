import { expect, test } from "vitest";
import { matcher } from "../src/lib/filter";
import type { Row } from "../src/api/types";
import { searched, textTerms } from "../src/lib/whole";

test("text terms are found wherever they stand, without their negation", () => {
  expect(textTerms('reward:>0 word -"not this" (task:x OR (assistant:said -/re.x/)) OR word')).toEqual(["word", '"not this"', "assistant:said", "/re.x/"]);
});

test("a term looks in the messages of its role only", () => {
  expect(searched("role.tool:Error")).toEqual({ role: "tool", pattern: /Error/iu });
  expect(searched('"Exact (1)"')).toEqual({ role: null, pattern: /Exact \(1\)/u });
});

test("rows are chosen by who has the words", () => {
  const row = (id: string, reward: number): Row => ({ id, reward }) as Row;
  const rows = [row("a", 1), row("b", 1), row("c", 0)];
  const hits = new Map([["word", new Set(["a", "c"])]]);
  const chosen = (q: string): string[] => rows.filter(matcher(q, hits)).map((r) => r.id);
  expect(chosen("word")).toEqual(["a", "c"]);
  expect(chosen("-word")).toEqual(["b"]);
  expect(chosen("word reward:1")).toEqual(["a"]);
  expect(chosen("(word reward:1) OR reward:0")).toEqual(["a", "c"]);
});
