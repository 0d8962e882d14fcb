import { expect, test } from "vitest";
import { pieces, shade, spanOf, streamNames, valuesOf, visible, windowOf } from "../src/lib/tokens";

const blank = { n: 0, size: 4, start: 0, text: "", text_start: 0, left: 0, marks: {}, streams: {} };
const block = { ...blank, ids: [1, 2, 3, 4], ends: [1, 1, 2, 5], streams: { logprob: [-1, null, -2, -3], train_logprob: [-1, -1, -2, -2] } };

test("pieces join to the text, whatever characters it has", () => {
  const text = "👩‍é漢!rest";
  const cut = pieces({ ...block, text, ends: [1, 2, 3, 5] });
  expect(cut.tokens.map((t) => t.text).join("") + cut.rest).toBe(text);
});

test("a token that only completes a character has no text of its own", () => {
  const cut = pieces({ ...block, text: "aXbcd" });
  expect(cut.tokens.map((t) => t.text)).toEqual(["a", "", "X", "bcd"]);
});

test("missing stays missing, and never becomes zero", () => {
  expect(shade("logprob", null, 4).side).toBe("missing");
  expect(shade("logprob", 0, 4)).toEqual({ side: "warm", strength: 0 });
  expect(valuesOf(block, "ratio")).toEqual([1, null, 1, Math.exp(1)]);
});

test("streams that follow from two others are offered when both are there", () => {
  expect(streamNames(["logprob", "train_logprob"])).toEqual(["logprob", "train_logprob", "ratio"]);
  expect(streamNames(["logprob"])).toEqual(["logprob"]);
});

test("full strength means the same in every rollout where it can", () => {
  expect(spanOf("logprob", -9, 0)).toBe(4);
  expect(spanOf("advantage", -2, 1)).toBe(2);
});

test("whitespace can be seen", () => {
  expect(visible("a b\n\tc")).toBe("a·b⏎\n→\tc");
});

test("a token of the chat template keeps what it says beside the text", () => {
  const cut = pieces({ ...blank, text: "hi", ids: [7, 1, 8], ends: [0, 2, 2], marks: { "7": "<user>", "1": "no" } });
  expect(cut.tokens).toEqual([{ id: 7, text: "", mark: "<user>" }, { id: 1, text: "hi" }, { id: 8, text: "" }]);
});

test("a window of tokens has their text, also beyond characters of two units", () => {
  const text = "🙂ab🙂cd and no tokens";
  const whole = { ...blank, ids: [1, 2, 3, 4], ends: [1, 3, 4, 6], streams: { logprob: [-1, -2, null, -4] } };
  const two = windowOf(whole, text, 20, 1, 2);
  expect(two).toMatchObject({ start: 1, size: 4, text: "ab🙂", text_start: 1, left: 0, ids: [2, 3], streams: { logprob: [-2, null] } });
  expect(pieces(two).tokens.map((t) => t.text)).toEqual(["ab", "🙂"]);
  expect(pieces(windowOf(whole, text, 20, 3, 9)).rest).toBe(" and no tokens");
});
