import { describe, expect, it } from "vitest";
import type { Change, Page, Row } from "../api.ts";
import { LiveList } from "./list.ts";

const row = (name: string, resourceVersion: string, state = "running"): Row => ({
  kind: "tasks",
  namespace: "default",
  name,
  uid: name,
  resourceVersion,
  state,
  severity: "running",
  created: "2026-01-01T00:00:00Z",
});

const change = (r: Row, type: Change["type"] = "changed"): Change => ({
  seq: r.resourceVersion,
  type,
  kind: r.kind,
  namespace: r.namespace,
  name: r.name,
  uid: r.uid,
  time: r.created,
  row: type === "removed" ? undefined : r,
});

/** pages is a server that returns the given pages one by one, each when the test releases it. */
function pages(...script: Row[][]) {
  const open: ((page: Page) => void)[] = [];
  const load = () => new Promise<Page>((resolve) => open.push(resolve));
  const answer = async () => {
    const items = script.shift() ?? [];
    const total = items.length + script.flat().length;
    open.shift()?.({ items, total, continue: script.length ? "more" : undefined, resourceVersion: "1" });
    await new Promise((later) => setTimeout(later));
  };
  return { load, answer };
}

const states = (list: LiveList) => list.get().rows.map((r) => `${r.name} ${r.state} ${r.resourceVersion}`);

describe("LiveList", () => {
  it("keeps the row of an event when an older page arrives after it", async () => {
    const server = pages([row("a", "5")]);
    const list = new LiveList("tasks", {}, "name", server.load);
    void list.reload();
    list.apply([change(row("a", "9", "completed"))]);
    await server.answer();
    expect(states(list)).toEqual(["a completed 9"]);
  });

  it("does not bring back what was removed while it was loading", async () => {
    const server = pages([row("a", "5"), row("b", "6")]);
    const list = new LiveList("tasks", {}, "name", server.load);
    void list.reload();
    list.apply([change(row("a", "7"), "removed")]);
    await server.answer();
    expect(states(list)).toEqual(["b running 6"]);
  });

  it("keeps what was added behind the pages that are being read", async () => {
    const server = pages([row("b", "5")], [row("c", "6")]);
    const list = new LiveList("tasks", {}, "name", server.load);
    void list.reload();
    await server.answer();
    list.apply([change(row("a", "8"), "added")]);
    await server.answer();
    expect(states(list)).toEqual(["a running 8", "b running 5", "c running 6"]);
    expect(list.get()).toMatchObject({ loading: false, total: 3 });
  });

  it("ignores an event that is older than what it has", async () => {
    const server = pages([row("a", "10", "completed")]);
    const list = new LiveList("tasks", {}, "name", server.load);
    void list.reload();
    await server.answer();
    list.apply([change(row("a", "9"))]);
    expect(states(list)).toEqual(["a completed 10"]);
  });

  it("removes a row that no longer matches, and does not count it", async () => {
    const server = pages([row("a", "1"), row("b", "2")]);
    const list = new LiveList("tasks", { state: "running" }, "name", server.load);
    void list.reload();
    await server.answer();
    list.apply([change(row("a", "3", "completed"))]);
    expect(states(list)).toEqual(["b running 2"]);
    expect(list.get().total).toBe(1);
  });

  it("removes rows after a resync that the server no longer has", async () => {
    const server = pages([row("a", "1"), row("b", "2")]);
    const list = new LiveList("tasks", {}, "name", server.load);
    void list.reload();
    await server.answer();
    const again = pages([row("b", "2")]);
    Object.assign(list, { load: again.load });
    void list.reload();
    await again.answer();
    expect(states(list)).toEqual(["b running 2"]);
    expect(list.get().total).toBe(1);
  });

  it("shows a batch at once", async () => {
    const server = pages([]);
    const list = new LiveList("tasks", {}, "name", server.load);
    void list.reload();
    await server.answer();
    let shown = 0;
    list.subscribe(() => shown++);
    list.apply(Array.from({ length: 100 }, (_, i) => change(row(`t${i}`, "5"), "added")));
    expect([shown, list.get().rows.length]).toEqual([1, 100]);
  });
});
