// Which rows belong to a list, and in which order. Pure functions, because they run for every event.
import type { Query, Row, Sort } from "../api.ts";

/** newer reports whether version a is after version b. Versions may be too large for a double. */
export function newer(a: string, b: string): boolean {
  if (a.length !== b.length) return a.length > b.length;
  return a > b;
}

const collator = new Intl.Collator("en", { numeric: true });

type Field = (row: Row) => string | number;
const age = (time?: string) => (time ? Date.parse(time) : 0);

const fields: Record<string, Field> = {
  name: (r) => r.name,
  namespace: (r) => r.namespace,
  state: (r) => r.state,
  job: (r) => r.job ?? "",
  flow: (r) => r.flow ?? "",
  group: (r) => r.group ?? "",
  step: (r) => r.step ?? "",
  template: (r) => r.template ?? "",
  robot: (r) => r.robot ?? r.node ?? "",
  reason: (r) => r.reason ?? "",
  attempt: (r) => r.attempt ?? 0,
  priority: (r) => r.priority ?? 0,
  revision: (r) => r.revision ?? 0,
  failed: (r) => r.progress?.failed ?? 0,
  created: (r) => age(r.created),
  started: (r) => age(r.started),
  finished: (r) => age(r.finished),
  heartbeat: (r) => age(r.heartbeat),
  tasks: (r) => r.runningTasks ?? 0,
  progress: (r) => (r.progress?.total ? r.progress.done / r.progress.total : 0),
};

const served: readonly Sort[] = [
  "name",
  "-name",
  "created",
  "-created",
  "started",
  "-started",
  "finished",
  "-finished",
  "state",
  "-state",
  "robot",
  "-robot",
  "priority",
  "-priority",
];

/**
 * servedSort returns the order in which the server returns the pages of a list. Other orders are sorted
 * here.
 */
export function servedSort(sort: string, scope: Query["scope"] = "live"): Sort {
  if (scope !== "live") return "-created";
  return served.find((known) => known === sort) ?? "name";
}

export type Order = (a: Row, b: Row) => number;

/** orderBy turns "name" or "-created" into a total order. */
export function orderBy(sort: string): Order {
  const sign = sort.startsWith("-") ? -1 : 1;
  const field = fields[sort.replace(/^-/, "")] ?? fields.name;
  return (a, b) => {
    const x = (field as Field)(a);
    const y = (field as Field)(b);
    const by = typeof x === "number" ? x - (y as number) : collator.compare(x, y as string);
    return sign * by || collator.compare(a.name, b.name) || (a.uid < b.uid ? -1 : a.uid > b.uid ? 1 : 0);
  };
}

const one = (wanted: string | undefined, is: string | undefined) => !wanted || wanted.split(",").includes(is ?? "");

function hasLabel(label: string | undefined, labels: Record<string, string> = {}): boolean {
  if (!label) return true;
  const [key = "", value] = label.split("=", 2);
  return value === undefined ? key in labels : labels[key] === value;
}

const mentions = (row: Row, text: string) =>
  [row.name, row.message, row.reason, row.robot, row.job, row.flow, row.node].some((v) =>
    v?.toLowerCase().includes(text),
  );

/** matches applies the server's filter to a row from an event. */
export function matches(q: Query, row: Row): boolean {
  return (
    q.scope !== "archived" &&
    one(q.namespace, row.namespace) &&
    one(q.state, row.state) &&
    one(q.severity, row.severity) &&
    one(q.job, row.job) &&
    one(q.flow, row.flow) &&
    one(q.group, row.group) &&
    one(q.robot, row.robot) &&
    one(q.template, row.template) &&
    hasLabel(q.label, row.labels) &&
    (!q.q || mentions(row, q.q.toLowerCase()))
  );
}

/** placeOf returns the index of a row in a sorted list, searching from an index. */
function placeOf(row: Row, list: readonly Row[], from: number, order: Order): number {
  let low = from;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (order(list[middle] as Row, row) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * merge applies changed rows to a sorted list; null removes a row. It takes one pass over the list and few
 * comparisons per change, so that a stream of events does not sort ten thousand rows again and again.
 */
export function merge(list: readonly Row[], changes: ReadonlyMap<string, Row | null>, order: Order): Row[] {
  const fresh = [...changes.values()].filter((row) => row !== null).sort(order);
  const stay = list.filter((row) => !changes.has(row.uid));
  const merged: Row[] = [];
  let from = 0;
  for (const row of fresh) {
    const to = placeOf(row, stay, from, order);
    for (let i = from; i < to; i++) merged.push(stay[i] as Row);
    merged.push(row);
    from = to;
  }
  for (let i = from; i < stay.length; i++) merged.push(stay[i] as Row);
  return merged;
}
