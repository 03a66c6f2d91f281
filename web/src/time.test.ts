import { expect, it } from "vitest";
import { age, duration, fromLocal, span } from "./time.ts";

it.each([
  [-5, "0s"],
  [40, "40ms"],
  [1234, "1.2s"],
  [9999, "9.9s"],
  [59_999, "59s"],
  [60_000, "1m"],
  [3_661_000, "1h 1m"],
  [3_600_000, "1h"],
  [90_061_000, "1d 1h"],
])("%d ms are %s", (ms, text) => expect(duration(ms)).toBe(text));

it("has no decimals in an age", () => {
  const now = Date.parse("2026-01-01T00:00:10Z");
  expect(age("2026-01-01T00:00:07.250Z", now)).toBe("2s");
  expect(age("2026-01-01T00:00:09.900Z", now)).toBe("now");
});

it("counts what still runs up to now", () => {
  const now = Date.parse("2026-01-01T00:01:00Z");
  expect(span("2026-01-01T00:00:00Z", undefined, now)).toBe("1m");
  expect(span("2026-01-01T00:00:00Z", "2026-01-01T00:00:30Z", now)).toBe("30s");
});

it("takes what a person has typed so far as no time", () => {
  expect(fromLocal("2026-13-")).toBeUndefined();
  expect(fromLocal(null)).toBeUndefined();
  expect(fromLocal("2026-01-02T03:04")).toBe(new Date("2026-01-02T03:04").toISOString());
});
