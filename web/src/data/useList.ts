import { useEffect, useMemo, useSyncExternalStore } from "react";
import type { Kind, Query } from "../api.ts";
import { LiveList, type Shown } from "./list.ts";

// The latest lists stay in memory, so that "back" shows them at once.
const kept = new Map<string, LiveList>();
const keep = 6;

function listOf(kind: Kind, query: Query, sort: string, key: string): LiveList {
  const list = kept.get(key) ?? new LiveList(kind, query, sort);
  kept.delete(key);
  kept.set(key, list);
  return list;
}

function trim() {
  for (const [key, list] of kept) {
    if (kept.size <= keep) return;
    kept.delete(key);
    list.stop();
  }
}

export function useList(kind: Kind, query: Query, sort: string): Shown & { key: string; reload: () => void } {
  const key = JSON.stringify([kind, query, sort]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the key contains the whole query
  const list = useMemo(() => listOf(kind, query, sort, key), [key]);
  useEffect(() => {
    list.start();
    trim();
  }, [list]);
  const shown = useSyncExternalStore(list.subscribe, list.get);
  return { ...shown, key, reload: () => void list.reload() };
}
