import { expect, it } from "vitest";
import { historyQuery, statesOf } from "./AllHistory.tsx";

it("reads the filter from the address and ignores kinds that do not run", () => {
  const query = historyQuery(new URLSearchParams("kind=jobs&state=failed&user=ada&robot=r1&template=t&q=a&ns=n"));
  expect(query).toMatchObject({ kind: "jobs", state: "failed", user: "ada", robot: "r1", template: "t", q: "a" });
  expect(query.namespace).toBe("n");
  expect(historyQuery(new URLSearchParams("kind=robots&state=")).kind).toBeUndefined();
  expect(historyQuery(new URLSearchParams("state=")).state).toBeUndefined();
});

it("offers the states of the kind, or of all kinds once", () => {
  expect(statesOf("rayclusters")).toEqual(["pending", "ready", "suspended"]);
  expect(statesOf().filter((state) => state === "completed")).toHaveLength(1);
  expect(statesOf()).toContain("Completed"); // of pod jobs
});
