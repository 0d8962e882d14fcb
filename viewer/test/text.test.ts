import { expect, test } from "vitest";
import { afterThinking, ansi, places, runs, shown } from "../src/lib/text";

test("characters that turn or hide text are named", () => {
  expect(shown("a\u202Eb\u200Bc\u0000d")).toBe("a⟦U+202E⟧b⟦U+200B⟧c⟦U+0000⟧d");
  expect(runs("x\u2066y")).toEqual([{ text: "x" }, { text: "U+2066", hidden: true }, { text: "y" }]);
  expect(shown("tab\tline\nnext\r\nlast")).toBe("tab\tline\nnext\nlast");
});

test("a terminal's colours become classes and its commands harmless marks", () => {
  expect(ansi("\u001b[1;31mred\u001b[0m plain")).toEqual([{ text: "red", classes: "ansi-bold ansi-fg-red" }, { text: " plain" }]);
  const text = ansi("a\u001b]8;;http://evil\u0007link\u001b]8;;\u0007\u001b[2Jb").map((run) => run.text).join("|");
  expect(text).not.toContain("evil");
  expect(ansi("\u001b[38;5;196mx\u001b[m")[0]?.text).toBe("x");
});

test("thinking is told from saying", () => {
  expect(afterThinking("<think>a</think>\n b")).toBe("b");
});

test("places counted in characters are found in strings with wide ones", () => {
  const at = places("a👩b");
  expect([0, 1, 2, 3].map(at)).toEqual([0, 1, 3, 4]);
});
