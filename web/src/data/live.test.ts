import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { Change } from "../api.ts";

class Stream extends EventTarget {
  static readonly CLOSED = 2;
  static opened: Stream[] = [];
  readyState = 1;
  onerror?: () => void;
  constructor(readonly url: string) {
    super();
    Stream.opened.push(this);
  }
  say(type: string, data: unknown, lastEventId = "") {
    this.dispatchEvent(new MessageEvent(type, { data: JSON.stringify(data), lastEventId }));
  }
}

let frames: (() => void)[] = [];
beforeEach(() => {
  vi.resetModules();
  vi.useFakeTimers();
  vi.advanceTimersByTime(1000); // the clock of a new page starts near zero
  Stream.opened = [];
  frames = [];
  vi.stubGlobal("EventSource", Stream);
  vi.stubGlobal("document", { hidden: false });
  vi.stubGlobal("requestAnimationFrame", (frame: () => void) => frames.push(frame));
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

async function listening() {
  const { listen, liveState } = await import("./live.ts");
  const batches: Change[][] = [];
  let resyncs = 0;
  listen({ changes: (batch) => batches.push(batch), resync: () => resyncs++ });
  const [stream] = Stream.opened as [Stream];
  return { stream, batches, resyncs: () => resyncs, liveState };
}

it("hands on all changes of a frame at once", async () => {
  const { stream, batches } = await listening();
  for (let i = 0; i < 50; i++) stream.say("change", { seq: String(i) });
  expect([frames.length, batches.length]).toEqual([1, 0]);
  frames[0]?.();
  expect(batches.map((b) => b.length)).toEqual([50]);
});

it("leaves frames free in a stream that does not stop", async () => {
  const { stream, batches } = await listening();
  stream.say("change", { seq: "1" });
  frames[0]?.();
  stream.say("change", { seq: "2" });
  expect(frames.length).toBe(1);
  vi.advanceTimersByTime(100);
  frames[1]?.();
  expect(batches.length).toBe(2);
});

it("begins at the position from before anything was loaded, also after a failed request", async () => {
  const { beginAt, listen } = await import("./live.ts");
  beginAt("30");
  listen({ changes: () => {}, resync: () => {} });
  const [stream] = Stream.opened as [Stream];
  stream.readyState = Stream.CLOSED;
  stream.onerror?.();
  listen({ changes: () => {}, resync: () => {} }); // the second reader waits with the first
  vi.runOnlyPendingTimers();
  expect(Stream.opened.map((s) => s.url)).toEqual(["/api/v1/events?since=30", "/api/v1/events?since=30"]);
  Stream.opened[1]?.say("change", { seq: "31" }, "31");
  beginAt("40"); // a later position must not skip changes that this page has not received
  const again = Stream.opened[1] as Stream;
  again.readyState = Stream.CLOSED;
  again.onerror?.();
  vi.runOnlyPendingTimers();
  expect(Stream.opened[2]?.url).toBe("/api/v1/events?since=31");
});

it("continues after the last event when the stream was refused", async () => {
  const { stream, liveState } = await listening();
  stream.say("hello", { since: "40" });
  expect(liveState.get()).toBe("live");
  stream.say("change", { seq: "42" }, "42");
  stream.readyState = Stream.CLOSED;
  stream.onerror?.();
  expect(liveState.get()).toBe("broken");
  vi.runOnlyPendingTimers();
  expect(Stream.opened[1]?.url).toBe("/api/v1/events?since=42");
});

it("loads the tasks of a mass change and delivers them as separate changes", async () => {
  const asked: string[] = [];
  const pages = [
    { items: [{ name: "a", uid: "1", state: "paused" }], continue: "more" },
    { items: [{ name: "b", uid: "2", state: "paused" }] },
  ];
  vi.stubGlobal("fetch", async (address: string) => {
    asked.push(address);
    return new Response(JSON.stringify(pages.shift()));
  });
  const { stream, batches } = await listening();
  const many = {
    kind: "tasks",
    type: "changed",
    namespace: "fleet",
    name: "",
    uid: "",
    job: "j",
    refresh: true,
    after: "7",
  };
  stream.say("change", many, "9");
  await vi.waitFor(() => expect(asked.length).toBe(2));
  await vi.waitFor(() => expect(frames.length).toBe(1));
  frames[0]?.();
  expect(asked[0]).toBe("/api/v1/objects/tasks?namespace=fleet&job=j&changedAfter=7&limit=1000");
  expect(asked[1]).toContain("continue=more");
  expect(batches.flat().map((c) => [c.name, c.uid, c.to, c.refresh])).toEqual([
    ["a", "1", "paused", false],
    ["b", "2", "paused", false],
  ]);
});

it("loads everything again when a mass change cannot be loaded", async () => {
  vi.stubGlobal("fetch", async () => new Response("{}", { status: 500 }));
  const { stream, resyncs } = await listening();
  stream.say("change", { kind: "tasks", refresh: true, after: "7" });
  await vi.waitFor(() => expect(resyncs()).toBe(1));
});

it("drops the changes before a resync, because the lists are loaded again", async () => {
  const { stream, batches, resyncs } = await listening();
  stream.say("change", { seq: "1" });
  stream.say("resync", {});
  frames[0]?.();
  expect([batches.flat().length, resyncs()]).toEqual([0, 1]);
});

it("loads everything again after a restart of the console, and follows on", async () => {
  const { stream, batches, resyncs } = await listening();
  stream.say("hello", { since: "before:40" }, "before:40");
  stream.say("change", { seq: "41" }, "before:41");
  stream.onerror?.(); // the browser reconnects with the header Last-Event-ID
  stream.say("hello", { since: "before:41" }, "before:41");
  stream.say("resync", {}, "after:7");
  expect(resyncs()).toBe(1);
  stream.say("change", { seq: "50" }, "after:8");
  for (const frame of frames) frame();
  expect(batches.flat().map((c) => c.seq)).toEqual(["50"]);
  stream.readyState = Stream.CLOSED;
  stream.onerror?.();
  vi.runOnlyPendingTimers();
  expect(Stream.opened[1]?.url).toBe("/api/v1/events?since=after%3A8");
});

it("does not wait for frames in a hidden tab", async () => {
  const { stream, batches } = await listening();
  vi.stubGlobal("document", { hidden: true });
  stream.say("change", { seq: "1" });
  vi.advanceTimersByTime(1000);
  expect(batches.length).toBe(1);
});
