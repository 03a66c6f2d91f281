import { describe, expect, it } from "vitest";
import type { Row } from "../api.ts";
import { matches, merge, newer, orderBy, servedSort } from "./order.ts";

const row = (uid: string, more: Partial<Row> = {}): Row => ({
  kind: "tasks",
  namespace: "default",
  name: uid,
  uid,
  resourceVersion: "1",
  state: "running",
  severity: "running",
  created: "2026-01-01T00:00:00Z",
  ...more,
});

describe("newer", () => {
  it.each([
    ["10", "9", true],
    ["9", "10", false],
    ["9007199254740993", "9007199254740992", true], // equal as doubles
    ["7", "7", false],
    ["7", "", true],
  ])("%s after %s: %s", (a, b, want) => expect(newer(a, b)).toBe(want));
});

describe("orderBy", () => {
  it("reads numbers in names as numbers", () => {
    const sorted = [row("t-10"), row("t-9")].sort(orderBy("name"));
    expect(sorted.map((r) => r.name)).toEqual(["t-9", "t-10"]);
  });
  it("turns around with a minus", () => {
    const old = row("old", { created: "2025-01-01T00:00:00Z" });
    expect([old, row("new")].sort(orderBy("-created"))[0]?.name).toBe("new");
  });
});

describe("servedSort", () => {
  it.each([
    ["-created", undefined, "-created"],
    ["progress", undefined, "name"],
    ["name", "archived", "-created"],
    ["name", "all", "-created"],
  ] as const)("%s of %s: %s", (sort, scope, want) => expect(servedSort(sort, scope)).toBe(want));
});

describe("merge", () => {
  it("equals sorting again, whatever changes", () => {
    let seed = 1;
    const next = (below: number) => {
      seed = (seed * 16807) % 2147483647;
      return seed % below;
    };
    const order = orderBy("-priority");
    let list: Row[] = [];
    const all = new Map<string, Row>();
    for (let round = 0; round < 300; round++) {
      const changes = new Map<string, Row | null>();
      for (let i = next(6); i >= 0; i--) {
        const uid = `u${next(40)}`;
        changes.set(uid, next(4) === 0 ? null : row(uid, { priority: next(5) }));
      }
      for (const [uid, r] of changes) r ? all.set(uid, r) : all.delete(uid);
      list = merge(list, changes, order);
      expect(list).toEqual([...all.values()].sort(order));
    }
  });
});

describe("matches", () => {
  it.each([
    ["a state of several", { state: "pending,running" }, true],
    ["another state", { state: "failed" }, false],
    ["another namespace", { namespace: "field" }, false],
    ["a part of the name", { q: "MY-t" }, true],
    ["a part of the message", { q: "arm in use" }, true],
    ["a part of the flow", { q: "night" }, true],
    ["a part of the node", { q: "rack-7" }, true],
    ["a label", { label: "env=prod" }, true],
    ["a label of another value", { label: "env=test" }, false],
    ["a label of any value", { label: "env" }, true],
    ["the archive, which events do not change", { scope: "archived" as const }, false],
  ])("%s", (_, query, want) =>
    expect(
      matches(
        query,
        row("My-Task", { message: "robot-1: arm in use", labels: { env: "prod" }, flow: "nightly", node: "rack-7" }),
      ),
    ).toBe(want),
  );
});
