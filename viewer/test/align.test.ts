/** Comparing in a bundle, where no server does it. */
import { expect, test } from "vitest";
import type { Body, RolloutRow } from "../src/api/types";
import { align } from "../src/lib/align";

const one = (id: string, reward: number | null, text: string): { row: RolloutRow; messages: Body[] } => ({
  row: { id, reward } as RolloutRow,
  messages: [{ n: 0, role: "assistant", name: null, text, parts: null, tool_calls: [] } as unknown as Body],
});
const own = (found: ReturnType<typeof align>, side: number): string[] => (found.aligned[0]?.sides[side]?.words ?? []).filter((word) => !word.same).map((word) => word.text);

test("the better one comes first", () => {
  const found = align([one("bad", 0, "2 + 2 = 5"), one("good", 1, "2 + 2 = 4")]);
  expect(found.rows.map((row) => row.id)).toEqual(["good", "bad"]);
  expect([own(found, 0), own(found, 1)]).toEqual([["4"], ["5"]]);
});

test("two long lines are compared by their words, and what is the same is left out", () => {
  const same = "Every word of it is the same. ".repeat(1800);
  const found = align([one("a", null, `${same}so alpha. ${same}`), one("b", null, `${same}so beta. ${same}`)]);
  expect([own(found, 0), own(found, 1)]).toEqual([["alpha"], ["beta"]]);
  expect(found.first).toEqual({ row: 0, char: same.length + 3 });
  expect(found.aligned[0]?.sides[0]?.words.reduce((sum, word) => sum + word.text.length, 0)).toBeLessThan(3000);
  expect(found.rough).toBe(false);
});

test("a comparison that would take too long says that it is rough", () => {
  const words = (seed: number): string => {
    let x = seed;
    return Array.from({ length: 20_000 }, () => "abcdefg"[(x = (x * 16807) % 2147483647) % 7]).join(" ");
  };
  const found = align([one("a", null, `So: ${words(1)}`), one("b", null, `So: ${words(2)}`)]);
  const texts = found.aligned[0]?.sides[0]?.words ?? [];
  expect(texts[0]?.text.startsWith("So: ")).toBe(true);
  expect(found.rough).toBe(true);
});
