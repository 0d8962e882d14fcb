import { expect, test } from "vitest";
import type { Row } from "../src/api/types";
import { ALIASES, ROW } from "../src/api/columns";
import { matcher, sorter, sorts } from "../src/lib/filter";

const rows = (values: unknown[]): Row[] => values.map((reward, i) => ({ id: `r${i}`, reward }) as Row);
const ids = (sorted: Row[]): string => sorted.map((row) => row.id).join(" ");

test("what is missing or no number stands last, whichever way; equal ones by id", () => {
  const some = rows([0.5, null, "NaN", -1, 0.5, "Infinity", "-Infinity"]);
  expect(ids(sorter("reward")(some))).toBe("r6 r3 r0 r4 r5 r1 r2");
  expect(ids(sorter("-reward")(some))).toBe("r5 r0 r4 r3 r6 r1 r2");
});

test("texts are sorted by their letters, as the server does, not by a language", () => {
  const some = ["b", "B", "ä", "a"].map((task, i) => ({ id: `r${i}`, task }) as Row);
  expect(ids(sorter("task")(some))).toBe("r1 r3 r0 r2");
});

test("orders that only the server knows are left to it", () => {
  expect(["", "-reward", "step"].map(sorts)).toEqual([true, true, true]);
  expect(["meta.level", "-step,group", "tool"].map(sorts)).toEqual([false, false, false]);
});

const found = (q: string, ...all: Partial<Row>[]): string => {
  const listed = all.map((row, i) => ({ tools: [], labels: [], flags: [], rewards: {}, error_kind: null, error_type: null, ...row, id: `r${i}` }) as unknown as Row);
  return ids(listed.filter(matcher(q)));
};

test("every word of the trainers means here what it means to the server", () => {
  for (const [word, key] of Object.entries(ALIASES)) {
    const column = ROW.find((one) => one.key === key);
    if (!column) continue; // rows do not have it: refused by name, below
    const value = column.kind === "number" ? 1 : "a";
    expect(found(`${word}:${value}`, { [column.name]: column.kind === "member" ? ["a"] : value }, { [column.name]: column.kind === "member" ? [] : null })).toBe("r0");
  }
});

test("what rows do not have is refused by name, never answered with nothing", () => {
  for (const q of ["launch:a", "restart:a", "has:launch", "meta.x:1", "error:timeout", "unknown:1"]) expect(() => found(q, {})).toThrow("cannot ask");
});

test("keys that are made of several columns", () => {
  expect(found("has:error OR truncated:true", { error_type: "Timeout" }, { truncated: true }, {})).toBe("r0 r1");
  expect(found("validate:true", { split: "eval" }, { split: "train" }, { split: null })).toBe("r0");
  expect(found("staleness:2", { step: 1, trained_step: 3 }, { step: 1, trained_step: null })).toBe("r0");
});

test("reasons are found by a part of them, in any case unless it is quoted", () => {
  const reasons = ["Same rewards", "same", null].map((fate_reason) => ({ fate_reason }));
  expect(found("fate_reason:same", ...reasons)).toBe("r0 r1");
  expect(found('fate_reason:"Same"', ...reasons)).toBe("r0");
  expect(found("fate_reason:none", ...reasons)).toBe("r2");
});
