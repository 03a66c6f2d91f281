// Positions on a time axis. Pure functions.

const second = 1000;
const steps = [
  0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400,
].map((s) => s * second);

/** ticks returns at most most round times between from and to. */
export function ticks(from: number, to: number, most: number): number[] {
  const step = steps.find((s) => (to - from) / s <= most) ?? Math.ceil((to - from) / most / 86_400_000) * 86_400_000;
  const out: number[] = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) out.push(at);
  return out;
}

/**
 * pack assigns bars to rows so that none overlap: each takes the first free row. It returns the row of
 * each bar.
 */
export function pack(bars: readonly { start: number; end: number }[]): number[] {
  const free: number[] = [];
  const rows = new Array<number>(bars.length).fill(0);
  const inOrder = bars.map((bar, i) => ({ ...bar, i })).sort((a, b) => a.start - b.start);
  for (const { start, end, i } of inOrder) {
    const first = free.findIndex((until) => until <= start);
    const row = first < 0 ? free.length : first;
    free[row] = end;
    rows[i] = row;
  }
  return rows;
}

export type Placed = { x: number; width: number };

/**
 * place returns position and width of a bar as fractions of the whole width. A bar without an end reaches
 * to the right.
 */
export function place(start: number, end: number | undefined, from: number, to: number): Placed {
  const whole = Math.max(1, to - from);
  const x = Math.max(0, (start - from) / whole);
  const until = Math.min(1, ((end ?? to) - from) / whole);
  return { x, width: Math.max(0, until - x) };
}
