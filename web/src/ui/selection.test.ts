import { expect, it } from "vitest";
import type { Row } from "../api.ts";
import { choose, type Selection, step } from "./selection.ts";

const rows = [..."abcde"].map((uid) => ({ uid }) as Row);
const none: Selection = { chosen: new Set() };
const chosen = (s: Selection) => [...s.chosen].sort().join("");

it("adds and takes away one by one", () => {
  const one = choose(none, rows, "b", "toggle");
  expect(chosen(choose(one, rows, "d", "toggle"))).toBe("bd");
  expect(chosen(choose(one, rows, "b", "toggle"))).toBe("");
});

it("adds all from the last one, up and down", () => {
  const from = choose(none, rows, "c", "toggle");
  const down = choose(from, rows, "e", "range");
  expect(chosen(down)).toBe("cde");
  expect(chosen(choose(down, rows, "a", "range"))).toBe("abcde");
});

it("keeps the cursor inside the list, and begins at its top", () => {
  expect(step(none, rows, 1).cursor).toBe("a");
  expect(step({ ...none, cursor: "e" }, rows, 1).cursor).toBe("e");
  expect(step({ ...none, cursor: "a" }, rows, -1).cursor).toBe("a");
  expect(step({ ...none, cursor: "gone" }, rows, 1).cursor).toBe("a");
});
