// Indexes of arrays, as the API names and counts them.
import { duration } from "../time.ts";

/** Bin is a bar of a histogram: how many indexes took less than `below`, and not less than the bin before. */
export type Bin = { below: string; count: number };

/**
 * histogram returns the bins from the first to the last that has an index. Counts are of indexes that took
 * less than 1 ms, 2 ms, 4 ms and so on; the last of 32 has no bound.
 */
export function histogram(counts: number[] = []): Bin[] {
  const first = counts.findIndex((count) => count > 0);
  if (first < 0) return [];
  const last = counts.findLastIndex((count) => count > 0);
  return counts.slice(first, last + 1).map((count, i) => ({
    below: first + i < 31 ? `< ${duration(2 ** (first + i))}` : "longer",
    count,
  }));
}

/** hasIndex reports whether a set such as 0-57,60 has the index. */
export function hasIndex(indexes: string, index: number): boolean {
  return indexes
    .split(",")
    .filter(Boolean)
    .some((part) => {
      const [from, to = from] = part.split("-").map(Number);
      return from !== undefined && to !== undefined && from <= index && index <= to;
    });
}

/** parseIndex returns the number in a text, or undefined if it is not an index. */
export function parseIndex(text: string): number | undefined {
  return /^\d{1,6}$/.test(text.trim()) ? Number(text) : undefined;
}
