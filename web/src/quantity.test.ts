import { expect, it } from "vitest";
import { quantity, share } from "./quantity.ts";

it.each([
  ["1500m", 1.5],
  ["2Gi", 2 ** 31],
  ["64", 64],
  ["1e3", 1000],
  ["lots", Number.NaN],
])("%s", (text, number) => expect(quantity(text)).toBe(number));

it("is unknown without a bound", () => {
  expect(share("1", undefined)).toBeUndefined();
  expect(share(undefined, "4")).toBe(0);
  expect(share("500m", "2")).toBe(0.25);
  expect(share("9", "2")).toBe(1);
});
