// The columns of each kind, in the order of importance: name, state, place, time.
import type { Kind, Row } from "../api.ts";
import { ObjectLink, ProgressBar, State, Took, When } from "./basics.tsx";
import type { Column } from "./RowTable.tsx";
import { revisionText } from "./revision.ts";

type Show = (row: Row) => React.ReactNode;

const column = (id: string, header: string, [least, grow]: [number, number?], show: Show, sort = true): Column => ({
  id,
  header,
  meta: { least, grow, sort },
  cell: ({ row }) => show(row.original),
});

const cut = (text?: string) => <span title={text}>{text}</span>;

const all: Record<string, Column> = {
  name: column("name", "Name", [180, 2.2], (r) => <ObjectLink of={r} />),
  namespace: column("namespace", "Namespace", [110], (r) => r.namespace),
  state: column("state", "State", [148], (r) => <State severity={r.severity}>{r.state}</State>),
  phase: column("state", "Phase", [176], (r) => <State severity={r.severity}>{r.state}</State>),
  progress: column("progress", "Done", [150], (r) => <ProgressBar of={r.progress} />),
  reason: column("reason", "Reason", [110, 1.2], (r) =>
    cut(r.message ? `${r.reason ?? ""} ${r.message}`.trim() : r.reason),
  ),
  job: column("job", "Job", [100, 1], (r) =>
    r.job ? <ObjectLink of={{ kind: "jobs", namespace: r.namespace, name: r.job }} /> : null,
  ),
  target: column("job", "Job", [120, 1.2], (r) =>
    r.job ? <ObjectLink of={{ kind: "jobs", namespace: r.namespace, name: r.job }} /> : null,
  ),
  revision: column("revision", "Revision", [84], revisionText),
  failed: column("failed", "Failed", [64], (r) => r.progress?.failed),
  flow: column("flow", "Flow", [90, 1], (r) =>
    r.flow ? <ObjectLink of={{ kind: "jobflows", namespace: r.namespace, name: r.flow }} /> : null,
  ),
  step: column("step", "Step", [80, 0.8], (r) => cut(r.step)),
  group: column("group", "Group", [80, 0.8], (r) => cut(r.group)),
  robot: column("robot", "Robot", [110], (r) => cut(r.robot)),
  node: column("robot", "Node", [120], (r) => cut(r.node)),
  attempt: column("attempt", "Attempt", [78], (r) => r.attempt),
  priority: column("priority", "Priority", [76], (r) => r.priority),
  created: column("created", "Age", [84], (r) => <When time={r.created} />),
  took: column("started", "Took", [90], (r) => <Took start={r.started} end={r.finished} />),
  finished: column("finished", "Ended", [84], (r) => <When time={r.finished} />),
  heartbeat: column("heartbeat", "Heartbeat", [96], (r) => <When time={r.heartbeat} />),
  tasks: column("tasks", "Tasks", [64], (r) => r.runningTasks ?? 0),
  cordoned: column("cordoned", "Schedulable", [96], (r) => (r.cordoned ? "cordoned" : "yes"), false),
};

const of: Record<Kind, string[]> = {
  jobs: ["name", "namespace", "state", "progress", "priority", "flow", "reason", "created", "took"],
  rollouts: ["name", "namespace", "phase", "target", "revision", "progress", "failed", "reason", "created", "took"],
  taskgroups: ["name", "namespace", "state", "progress", "job", "reason", "created", "took"],
  tasks: ["name", "namespace", "state", "progress", "robot", "job", "attempt", "reason", "created", "took"],
  robots: ["name", "namespace", "state", "heartbeat", "tasks", "cordoned", "reason", "created"],
  jobflows: ["name", "namespace", "state", "progress", "reason", "created", "took"],
  cronjobflows: ["name", "namespace", "state", "reason", "created"],
  vcjobs: ["name", "namespace", "state", "progress", "flow", "reason", "created", "took"],
  rayclusters: ["name", "namespace", "state", "progress", "reason", "created"],
  pods: ["name", "namespace", "state", "node", "reason", "created", "took"],
};

// Only ranges of arrays have a progress among tasks.
const unusual = (kind: Kind) => (kind === "tasks" ? ["progress"] : []);

export function columnsOf(kind: Kind, without: readonly string[] = unusual(kind)): Column[] {
  return of[kind].filter((id) => !without.includes(id)).map((id) => all[id] as Column);
}
