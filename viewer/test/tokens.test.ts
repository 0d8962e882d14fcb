import { expect, test } from "vitest";
import { pieces, shade, spanOf, streamNames, valuesOf, visible } from "../src/lib/tokens";

const block = { n: 0, ids: [1, 2, 3, 4], ends: [1, 1, 2, 5], marks: {}, streams: { logprob: [-1, null, -2, -3], train_logprob: [-1, -1, -2, -2] } };

test("pieces join to the text, whatever characters it has", () => {
  const text = "👩‍é漢!rest";
  const cut = pieces(text, { ...block, ends: [1, 2, 3, 5] });
  expect(cut.tokens.map((t) => t.text).join("") + cut.rest).toBe(text);
});

test("a token that only completes a character has no text of its own", () => {
  const cut = pieces("aXbcd", block);
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
  const cut = pieces("hi", { n: 0, ids: [7, 1, 8], ends: [0, 2, 2], marks: { "7": "<user>", "1": "no" }, streams: {} });
  expect(cut.tokens).toEqual([{ id: 7, text: "", mark: "<user>" }, { id: 1, text: "hi" }, { id: 8, text: "" }]);
});
