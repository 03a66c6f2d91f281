import { expect, it } from "vitest";
import { hasIndex, histogram, parseIndex } from "./indexes.ts";

it("the histogram has the bins between the fastest and the slowest index", () => {
  expect(histogram()).toEqual([]);
  expect(histogram([0, 0])).toEqual([]);
  expect(histogram([0, 0, 3, 0, 1, 0])).toEqual([
    { below: "< 4ms", count: 3 },
    { below: "< 8ms", count: 0 },
    { below: "< 16ms", count: 1 },
  ]);
  const unbounded = new Array(32).fill(0);
  unbounded[31] = 2;
  expect(histogram(unbounded)).toEqual([{ below: "longer", count: 2 }]);
});

it("a set has the indexes of its ranges", () => {
  for (const index of [0, 5, 57, 60]) expect(hasIndex("0-57,60", index)).toBe(true);
  for (const index of [58, 59, 61]) expect(hasIndex("0-57,60", index)).toBe(false);
  expect(hasIndex("", 0)).toBe(false);
});

it("an index is a number of up to six digits", () => {
  expect(parseIndex(" 17 ")).toBe(17);
  for (const text of ["", "x", "-1", "1.5", "1234567"]) expect(parseIndex(text)).toBeUndefined();
});
