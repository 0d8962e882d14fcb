import { expect, test } from "vitest";
import { afterThinking, ansi, characters, places, runs, shown, stretch } from "../src/lib/text";

test("characters that turn or hide text are named", () => {
  expect(shown("a\u202Eb\u200Bc\u0000d")).toBe("a⟦U+202E⟧b⟦U+200B⟧c⟦U+0000⟧d");
  expect(runs("x\u2066y")).toEqual([{ text: "x" }, { text: "U+2066", hidden: true }, { text: "y" }]);
  expect(shown("tab\tline\nnext\r\nlast")).toBe("tab\tline\nnext\nlast");
});

test("a terminal's colours become classes and its commands harmless marks", () => {
  expect(ansi("\u001b[1;31mred\u001b[0m plain")).toEqual([{ text: "red", classes: "ansi-bold ansi-fg-red" }, { text: " plain" }]);
  const text = ansi("a\u001b]8;;http://evil\u0007link\u001b]8;;\u0007\u001b[2Jb").map((run) => run.text).join("|");
  expect(text).not.toContain("evil");
  expect(ansi("\u001b[38;5;196mx\u001b[m")[0]).toEqual({ text: "x", colour: "rgb(255 0 0)" });
  expect(ansi("\u001b[48;2;1;2;3mx\u001b[49my")).toEqual([{ text: "x", background: "rgb(1 2 3)" }, { text: "y" }]);
  expect(ansi("\u001b[38:2::9:8:7mx")[0]).toEqual({ text: "x", colour: "rgb(9 8 7)" });
  expect(ansi("\u001b[31;7mx\u001b[27my\u001b[0;7mz")).toEqual([
    { text: "x", classes: "ansi-fg-paper ansi-bg-red" },
    { text: "y", classes: "ansi-fg-red" },
    { text: "z", classes: "ansi-fg-paper ansi-bg-ink" },
  ]);
});

test("thinking is told from saying", () => {
  expect(afterThinking("<think>a</think>\n b")).toBe("b");
});

test("places counted in characters are found in strings with wide ones", () => {
  const at = places("a👩b");
  expect([0, 1, 2, 3].map(at)).toEqual([0, 1, 3, 4]);
});

test("joiners belong to some scripts and to emoji, and hide in others", () => {
  for (const text of ["می\u200cخواهم", "क्\u200dष", "👩\u200d💻", "👍🏽\u200d", "❤️\u200d🔥"]) expect(shown(text)).toBe(text);
  expect(shown("pass\u200dword")).toBe("pass⟦U+200D⟧word");
  expect(shown("\u200c")).toBe("⟦U+200C⟧");
});

test("places in a string are counted in characters", () => {
  const chars = characters("a👩b");
  expect([0, 1, 3, 4, 1].map(chars)).toEqual([0, 1, 2, 3, 1]);
  expect(stretch("a👩b", 1, 3)).toBe("👩b");
});
