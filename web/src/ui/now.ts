// One clock for all ages on the page: separate timers would wake the browser hundreds of times a second.
import { useSyncExternalStore } from "react";

let now = Date.now();
const watchers = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

function tick() {
  now = Date.now();
  for (const watch of watchers) watch();
}

function subscribe(watch: () => void) {
  watchers.add(watch);
  timer ??= setInterval(tick, 1000);
  return () => {
    watchers.delete(watch);
    if (watchers.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

/** useNow returns the time in milliseconds, updated every second. */
export const useNow = () => useSyncExternalStore(subscribe, () => now);
