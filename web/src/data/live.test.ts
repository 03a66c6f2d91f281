import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { Change } from "../api.ts";

/** Stream is one response to GET /events. Its request waits until the test answers it. */
class Stream {
  static opened: Stream[] = [];
  private control?: ReadableStreamDefaultController<Uint8Array>;
  private answer?: (response: Response) => void;
  private fail?: (error: Error) => void;
  readonly response = new Promise<Response>((answer, fail) => Object.assign(this, { answer, fail }));
  constructor(
    readonly url: string,
    readonly session?: string,
  ) {
    Stream.opened.push(this);
  }
  start() {
    const start = (control: ReadableStreamDefaultController<Uint8Array>) => {
      this.control = control;
    };
    this.answer?.(new Response(new ReadableStream({ start })));
  }
  async say(type: string, data: unknown, id = "") {
    if (!this.control) this.start();
    this.control?.enqueue(new TextEncoder().encode(`id: ${id}\nevent: ${type}\ndata: ${JSON.stringify(data)}\n\n`));
    await settled();
  }
  async ping(id: string) {
    this.control?.enqueue(new TextEncoder().encode(`: ping\nid: ${id}\n\n`));
    await settled();
  }
  async break() {
    this.control ? this.control.error(new TypeError("network error")) : this.fail?.(new TypeError("refused"));
    await settled();
  }
  async refuse(status: number) {
    this.answer?.(new Response("{}", { status }));
    await settled();
  }
}

// The reader of a stream runs in microtasks only, so all of them have run after a macrotask.
const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

let frames: (() => void)[] = [];
let session = "s1";
let fetched: ((address: string) => Promise<Response>) | undefined; // of other addresses
beforeEach(() => {
  vi.resetModules();
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  vi.advanceTimersByTime(1000); // the clock of a new page starts near zero
  Stream.opened = [];
  frames = [];
  session = "s1";
  fetched = undefined;
  vi.stubGlobal("sessionStorage", {
    getItem: () => session,
    setItem: (_: string, value: string) => {
      session = value;
    },
  });
  vi.stubGlobal("fetch", (address: string, init: { headers: Record<string, string> }) =>
    address.startsWith("/api/v1/events")
      ? new Stream(address, init.headers["X-K8s4r-Session"]).response
      : fetched?.(address),
  );
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

async function reopened() {
  vi.runOnlyPendingTimers();
  await settled();
}

it("hands on all changes of a frame at once", async () => {
  const { stream, batches } = await listening();
  for (let i = 0; i < 50; i++) await stream.say("change", { seq: String(i) });
  expect([frames.length, batches.length]).toEqual([1, 0]);
  frames[0]?.();
  expect(batches.map((b) => b.length)).toEqual([50]);
});

it("leaves frames free in a stream that does not stop", async () => {
  const { stream, batches } = await listening();
  await stream.say("change", { seq: "1" });
  frames[0]?.();
  await stream.say("change", { seq: "2" });
  expect(frames.length).toBe(1);
  vi.advanceTimersByTime(100);
  frames[1]?.();
  expect(batches.length).toBe(2);
});

it("begins at the position from before anything was loaded, also after a failed request", async () => {
  const { beginAt, listen } = await import("./live.ts");
  beginAt("30");
  listen({ changes: () => {}, resync: () => {} });
  await Stream.opened[0]?.break();
  listen({ changes: () => {}, resync: () => {} }); // the second reader waits with the first
  await reopened();
  expect(Stream.opened.map((s) => s.url)).toEqual(["/api/v1/events?since=30", "/api/v1/events?since=30"]);
  await Stream.opened[1]?.say("change", { seq: "31" }, "31");
  beginAt("40"); // a later position must not skip changes that this page has not received
  await Stream.opened[1]?.break();
  await reopened();
  expect(Stream.opened[2]?.url).toBe("/api/v1/events?since=31");
});

it("continues after the last position when the stream broke", async () => {
  const { stream, liveState } = await listening();
  await stream.say("hello", { since: "40" });
  expect(liveState.get()).toBe("live");
  await stream.say("change", { seq: "42" }, "42");
  await stream.break();
  expect(liveState.get()).toBe("broken");
  await reopened();
  expect(Stream.opened[1]?.url).toBe("/api/v1/events?since=42");
  await Stream.opened[1]?.say("hello", { since: "42" }, "42");
  await Stream.opened[1]?.ping("50"); // nothing that this page may see has changed until there
  await Stream.opened[1]?.break();
  await reopened();
  expect(Stream.opened[2]?.url).toBe("/api/v1/events?since=50");
});

it("waits longer after each failure", async () => {
  const { stream } = await listening();
  await stream.refuse(503);
  for (const wait of [500, 1000, 2000]) {
    const before = Stream.opened.length;
    vi.advanceTimersByTime(wait - 1);
    await settled();
    expect(Stream.opened.length).toBe(before);
    vi.advanceTimersByTime(1);
    await settled();
    expect(Stream.opened.length).toBe(before + 1);
    await Stream.opened.at(-1)?.refuse(503);
  }
});

it("waits for another session when its own has ended, and loads everything again", async () => {
  const { sessionEvents, keepSession } = await import("../credential.ts");
  let checks = 0;
  sessionEvents.addEventListener("check", () => checks++);
  const { stream, liveState, resyncs } = await listening();
  await stream.say("change", { seq: "42" }, "42");
  await stream.break();
  await reopened();
  await Stream.opened[1]?.refuse(401);
  expect([liveState.get(), checks]).toEqual(["ended", 1]);
  await reopened();
  expect(Stream.opened.length).toBe(2);
  keepSession("s2");
  await settled();
  expect([Stream.opened[2]?.url, Stream.opened[2]?.session]).toEqual(["/api/v1/events?since=42", "s2"]);
  expect(resyncs()).toBe(1);
});

it("loads the tasks of a mass change and delivers them as separate changes", async () => {
  const asked: string[] = [];
  const pages = [
    { items: [{ name: "a", uid: "1", state: "paused" }], continue: "more" },
    { items: [{ name: "b", uid: "2", state: "paused" }] },
  ];
  fetched = async (address) => {
    asked.push(address);
    return new Response(JSON.stringify(pages.shift()));
  };
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
  await stream.say("change", many, "9");
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
  fetched = async () => new Response("{}", { status: 500 });
  const { stream, resyncs } = await listening();
  await stream.say("change", { kind: "tasks", refresh: true, after: "7" });
  await vi.waitFor(() => expect(resyncs()).toBe(1));
});

it("drops the changes before a resync, because the lists are loaded again", async () => {
  const { stream, batches, resyncs } = await listening();
  await stream.say("change", { seq: "1" });
  await stream.say("resync", {});
  frames[0]?.();
  expect([batches.flat().length, resyncs()]).toEqual([0, 1]);
});

it("loads everything again after a restart of the console, and follows on", async () => {
  const { stream, batches, resyncs } = await listening();
  await stream.say("hello", { since: "before:40" }, "before:40");
  await stream.say("change", { seq: "41" }, "before:41");
  await stream.break();
  await reopened();
  const [, again] = Stream.opened as [Stream, Stream];
  await again.say("hello", { since: "before:41" }, "before:41");
  await again.say("resync", {}, "after:7");
  expect(resyncs()).toBe(1);
  await again.say("change", { seq: "50" }, "after:8");
  for (const frame of frames) frame();
  expect(batches.flat().map((c) => c.seq)).toEqual(["50"]);
  await again.break();
  await reopened();
  expect(Stream.opened[2]?.url).toBe("/api/v1/events?since=after%3A8");
});

it("does not wait for frames in a hidden tab", async () => {
  const { stream, batches } = await listening();
  vi.stubGlobal("document", { hidden: true });
  await stream.say("change", { seq: "1" });
  vi.advanceTimersByTime(1000);
  expect(batches.length).toBe(1);
});
