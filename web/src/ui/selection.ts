// Which rows are selected, and where the keyboard cursor is. Pure functions except the hook at the end.
import { useCallback, useMemo, useState } from "react";
import type { Row } from "../api.ts";

export type Selection = { chosen: ReadonlySet<string>; cursor?: string; anchor?: string };
export type How = "only" | "toggle" | "range";

const indexOf = (rows: readonly Row[], uid?: string) => (uid ? rows.findIndex((row) => row.uid === uid) : -1);

/**
 * choose selects rows as lists usually do: Ctrl adds or removes one, Shift selects a range from the last
 * one.
 */
export function choose(now: Selection, rows: readonly Row[], uid: string, how: How): Selection {
  if (how === "only") return { chosen: new Set([uid]), cursor: uid, anchor: uid };
  const from = indexOf(rows, now.anchor ?? now.cursor);
  if (how === "range" && from >= 0) {
    const to = indexOf(rows, uid);
    const part = rows.slice(Math.min(from, to), Math.max(from, to) + 1);
    return {
      chosen: new Set([...now.chosen, ...part.map((row) => row.uid)]),
      cursor: uid,
      anchor: now.anchor ?? now.cursor,
    };
  }
  const chosen = new Set(now.chosen);
  if (!chosen.delete(uid)) chosen.add(uid);
  return { chosen, cursor: uid, anchor: uid };
}

/** step moves the cursor by a number of rows and stays inside the list. */
export function step(now: Selection, rows: readonly Row[], by: number): Selection {
  const at = indexOf(rows, now.cursor);
  const to = at < 0 ? 0 : Math.max(0, Math.min(rows.length - 1, at + by));
  return { ...now, cursor: rows[to]?.uid };
}

const none: Selection = { chosen: new Set() };

export function useSelection(rows: readonly Row[]) {
  const [selection, set] = useState<Selection>(none);
  const chosenRows = useMemo(() => rows.filter((row) => selection.chosen.has(row.uid)), [rows, selection.chosen]);
  return {
    selection,
    chosenRows,
    choose: useCallback((uid: string, how: How) => set((now) => choose(now, rows, uid, how)), [rows]),
    step: (by: number) => set((now) => step(now, rows, by)),
    all: () => set((now) => ({ ...now, chosen: new Set(rows.map((row) => row.uid)) })),
    clear: () => set((now) => ({ ...now, chosen: new Set() })),
  };
}
