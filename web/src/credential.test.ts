import { afterEach, beforeEach, expect, it, vi } from "vitest";

// Tabs of one browser: each with its own storage, connected by a channel.
let channels: Channel[] = [];
class Channel {
  onmessage?: (event: { data: unknown }) => void;
  constructor() {
    channels.push(this);
  }
  postMessage(data: unknown) {
    for (const other of channels) if (other !== this) other.onmessage?.({ data });
  }
}

class Storage {
  private readonly items = new Map<string, string>();
  getItem = (name: string) => this.items.get(name) ?? null;
  setItem = (name: string, value: string) => void this.items.set(name, value);
  removeItem = (name: string) => void this.items.delete(name);
}

beforeEach(() => {
  channels = [];
  vi.stubGlobal("BroadcastChannel", Channel);
});
afterEach(() => vi.unstubAllGlobals());

// A tab's storage is the global one while its code runs.
async function openTab() {
  vi.resetModules();
  const storage = new Storage();
  const reload = vi.fn();
  const tab = await import("./credential.ts");
  tab.joinTabs();
  const within =
    <A extends unknown[], R>(call: (...args: A) => R) =>
    (...args: A): R => {
      const [before, there] = [globalThis.sessionStorage, globalThis.location];
      vi.stubGlobal("sessionStorage", storage);
      vi.stubGlobal("location", { reload });
      try {
        return call(...args);
      } finally {
        vi.stubGlobal("sessionStorage", before);
        vi.stubGlobal("location", there);
      }
    };
  const channel = channels.at(-1) as Channel;
  channel.onmessage = within(channel.onmessage as NonNullable<Channel["onmessage"]>);
  return {
    reload,
    current: within(tab.currentSession),
    keep: within(tab.keepSession),
    want: within(tab.wantSession),
    signOut: within(tab.signOut),
    other: within(tab.otherSessionThan),
  };
}

it("hands a session to a tab that wants one, and to no other", async () => {
  const [first, second] = [await openTab(), await openTab()];
  first.keep("s1");
  expect(second.current()).toBe("");
  second.want();
  expect(second.current()).toBe("s1");
  first.keep("s2");
  expect(second.current()).toBe("s1");
});

it("replaces a session that has ended as soon as another tab signs in", async () => {
  const [first, second] = [await openTab(), await openTab()];
  first.keep("s1");
  second.want();
  const changed = second.other("s1");
  second.want(); // the other tab has only the session that has ended
  expect(second.current()).toBe("s1");
  first.want();
  first.keep("s2");
  expect(second.current()).toBe("s2");
  await changed;
  await second.other("s1"); // it is another one already
});

it("does not exchange two sessions that have both ended", async () => {
  const [first, second] = [await openTab(), await openTab()];
  first.keep("s1");
  second.keep("s2");
  first.want();
  expect([first.current(), second.current()]).toEqual(["s2", "s2"]);
  first.want();
  second.want();
  expect([first.current(), second.current()]).toEqual(["s2", "s2"]);
});

it("forgets the session in all tabs", async () => {
  const [first, second] = [await openTab(), await openTab()];
  first.keep("s1");
  second.want();
  second.signOut();
  expect([first.current(), second.current()]).toEqual(["", ""]);
  expect([first.reload, second.reload].map((reload) => reload.mock.calls.length)).toEqual([1, 1]);
});
