import { expect, test } from "vitest";
import { counted, finite, percent, seconds, short, signed, value } from "../src/lib/num";

test("missing, zero and odd numbers do not look alike", () => {
  expect([null, 0, "NaN", "-Infinity", 0.5, -1.2345, 1e-9].map((x) => value(x))).toEqual(["–", "0", "NaN", "−∞", "0.5", "−1.234", "1.0e−9"]);
  expect(finite("NaN")).toBeNull();
});

test("one is not said like two", () => {
  expect([0, 1, 2, 2000].map((n) => counted(n, "hit"))).toEqual(["0 hits", "1 hit", "2 hits", "2,000 hits"]);
});

test("numbers are short where there is little room", () => {
  expect([999, 1000, 12_345, 2_000_000].map(short)).toEqual(["999", "1k", "12.3k", "2M"]);
  expect([0.0004, 0.25, 2, 75].map((s) => seconds(s))).toEqual(["400 µs", "250 ms", "2.00 s", "1 m 15 s"]);
  expect([signed(1), signed(-1), signed(null)]).toEqual(["+1", "−1", "–"]);
  expect(percent(1, 300)).toBe("0.3 %");
});
