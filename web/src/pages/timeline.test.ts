import { expect, it } from "vitest";
import { pack, place, ticks } from "./timeline.ts";

it("gives bars that overlap rows of their own, and uses a row again when it is free", () => {
  const bar = (start: number, end: number) => ({ start, end });
  expect(pack([bar(0, 10), bar(5, 8), bar(8, 12), bar(10, 11)])).toEqual([0, 1, 1, 0]);
  expect(pack([bar(5, 6), bar(0, Number.POSITIVE_INFINITY)])).toEqual([1, 0]);
});

it("lets what still runs reach to the end", () => {
  expect(place(50, undefined, 0, 100)).toEqual({ x: 0.5, width: 0.5 });
  expect(place(50, 75, 0, 100)).toEqual({ x: 0.5, width: 0.25 });
});

it("has round ticks, not more than asked for", () => {
  const hour = 3_600_000;
  expect(ticks(5, hour, 7)).toEqual([1, 2, 3, 4, 5, 6].map((n) => n * 600_000));
  expect(ticks(0, 400 * 24 * hour, 8).length).toBeLessThanOrEqual(9);
});
