// The only event stream of this tab. Changes are delivered once per frame or less often: ten updates a
// second look live, and scrolling needs the other frames.
import { ApiError, api, type Change, decodeEvent, openEvents } from "../api.ts";
import { currentSession, otherSessionThan, sessionEvents } from "../credential.ts";
import { readEvents, type ServerEvent } from "./sse.ts";

export type Reader = { changes: (batch: Change[]) => void; resync: () => void };
/** Connection is "ended" while the user must sign in again. */
export type Connection = "connecting" | "live" | "broken" | "ended";

const readers = new Set<Reader>();
const watchers = new Set<() => void>();
let following = false;
let connection: Connection = "connecting";
let last = "";
let waiting: Change[] = [];
let retry = 0;
let flushed = 0;

const between = 100; // ms
const unseen = 1000; // ms

function setConnection(now: Connection) {
  if (now === connection) return;
  connection = now;
  for (const watch of watchers) watch();
}

function flush() {
  const batch = waiting;
  waiting = [];
  flushed = performance.now();
  for (const reader of readers) reader.changes(batch);
}

// A hidden tab gets no animation frames: without the timer its changes would pile up until it is visible
// again.
function schedule() {
  if (document.hidden) setTimeout(flush, unseen);
  else if (performance.now() - flushed >= between) requestAnimationFrame(flush);
  else setTimeout(() => requestAnimationFrame(flush), between);
}

function enqueueChange(change: Change) {
  if (waiting.push(change) === 1) schedule();
}

// One event reports that an action on a job changed many tasks. They are loaded and delivered as separate
// changes.
async function loadMassChange(many: Change) {
  const of = { namespace: many.namespace, job: many.job, changedAfter: many.after };
  try {
    let next: string | undefined;
    do {
      const page = await api.list(many.kind, of, { limit: 1000, continue: next });
      for (const row of page.items)
        enqueueChange({ ...many, refresh: false, name: row.name, uid: row.uid, to: row.state, row });
      next = page.continue;
    } while (next);
  } catch {
    reloadReaders(); // pages that show them get the error when they reload
  }
}

function reloadReaders() {
  waiting = [];
  for (const reader of readers) reader.resync();
}

function receive({ id, event, data }: ServerEvent) {
  if (event === "hello") {
    last ||= decodeEvent.hello(data).since;
    retry = 0;
    setConnection("live");
  }
  last = id || last;
  if (event === "resync") reloadReaders();
  if (event !== "change") return;
  const change = decodeEvent.change(data);
  change.refresh ? void loadMassChange(change) : enqueueChange(change);
}

// The server ends the stream with the session. It continues after the last event once the user has signed in
// again, or after a pause if the server cannot be reached.
async function follow() {
  following = true;
  for (;;) {
    const session = currentSession();
    try {
      await readEvents(await openEvents(last), receive);
    } catch (err) {
      if (err instanceof ApiError && err.code === 401) {
        setConnection("ended");
        await otherSessionThan(session);
        continue;
      }
    }
    setConnection("broken");
    await new Promise((again) => setTimeout(again, Math.min(30_000, 500 * 2 ** retry++)));
  }
}

// What could not be loaded with the session that has ended is loaded again.
sessionEvents.addEventListener("changed", reloadReaders);

/**
 * beginAt sets the position of the stream before anything was loaded. Changes between loading a list and
 * opening the stream would otherwise be missed. An open stream keeps its own position.
 */
export function beginAt(position: string) {
  last ||= position;
}

/**
 * listen adds a reader and opens the stream for the first one. It returns a function that removes the
 * reader.
 */
export function listen(reader: Reader): () => void {
  readers.add(reader);
  if (!following) void follow();
  return () => readers.delete(reader);
}

export const liveState = {
  subscribe: (watch: () => void) => {
    watchers.add(watch);
    return () => watchers.delete(watch);
  },
  get: () => connection,
};
