// Times for display: ages, durations, and exact times in the user's time zone.

const steps: [number, string][] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "m"],
  [1, "s"],
];

/**
 * duration formats at most two units, such as 3h 12m. Below ten seconds it has a decimal, below one second
 * it is in ms.
 */
export function duration(ms: number): string {
  if (ms < 0) return "0s";
  if (ms < 1000) return `${Math.round(ms)}ms`;
  if (ms < 10_000) return `${(Math.floor(ms / 100) / 10).toFixed(1)}s`;
  let rest = Math.floor(ms / 1000);
  const parts: string[] = [];
  for (const [size, unit] of steps) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count > 0 || parts.length > 0) parts.push(`${count}${unit}`);
    if (parts.length === 2) break;
  }
  return parts.filter((p, i) => i === 0 || !p.startsWith("0")).join(" ");
}

/** age formats how long ago a time was. It has no decimals, which would make a table flicker. */
export function age(time: string, now: number): string {
  const ms = now - Date.parse(time);
  if (ms < 1000) return "now";
  return duration(Math.floor(ms / 1000) * 1000).replace(".0s", "s");
}

const exactFormat = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** exact formats the time in the user's time zone, with milliseconds and the name of the zone. */
export function exact(time: string): string {
  const date = new Date(time);
  return `${exactFormat.format(date)}.${String(date.getMilliseconds()).padStart(3, "0")} (${zone})`;
}

/** clock formats the time of day, for axes. */
export function clock(ms: number): string {
  return new Date(ms).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

/** span formats how long something took, or has taken until now. */
export function span(start: string | undefined, end: string | undefined, now: number): string {
  if (!start) return "";
  return duration((end ? Date.parse(end) : now) - Date.parse(start));
}

/** fromLocal converts the value of a datetime-local input into the API's format. */
export function fromLocal(value: string | null): string | undefined {
  if (!value) return undefined;
  const date = new Date(value);
  return Number.isNaN(date.getTime()) ? undefined : date.toISOString();
}

const dayFormat = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const minuteFormat = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });

/** momentSpan formats the times between which something was, such as 14:02–15:31, with the days if they differ. */
export function momentSpan(from: string | undefined, to: string | undefined): string {
  const [start, end] = [from, to].map((time) => time && new Date(time));
  const isOneDay = start && end && start.toDateString() === end.toDateString();
  const format = (at: Date | "" | undefined, withDay: boolean) =>
    at ? `${withDay ? `${dayFormat.format(at)} ` : ""}${minuteFormat.format(at)}` : "?";
  return `${format(start, !isOneDay)}–${format(end, !isOneDay)}`;
}
