// Generated data to develop and measure the console: 200 robots, 10,000 tasks, flows of 7 and of 1,000
// steps. It is the same each time except for the times, and keeps changing while a client listens.

import type { UnitList } from "../src/api.gen.ts";
import type {
  Attempt,
  Change,
  Detail,
  Graph,
  JobRevision,
  Kind,
  RolloutUnit,
  Row,
  Run,
  RunPage,
  Severity,
  Step,
  Timeline,
  UnitState,
  Verb,
  Why,
} from "../src/api.ts";

export type SampleData = ReturnType<typeof makeSampleData>;

const severityOf: Record<string, Severity> = {
  running: "running",
  dispatching: "running",
  Running: "running",
  completed: "good",
  Completed: "good",
  Succeed: "good",
  Succeeded: "good",
  Online: "good",
  ready: "good",
  failed: "bad",
  Failed: "bad",
  Offline: "bad",
  "soft-failed": "bad",
  paused: "paused",
  Unknown: "paused",
  canceled: "gone",
  Progressing: "running",
  WaitingForApproval: "paused",
  Paused: "paused",
  Complete: "good",
  Aborted: "bad",
  Superseded: "gone",
  suspended: "paused",
};
export const severity = (state: string): Severity => severityOf[state] ?? "waiting";

function random(seed: number) {
  let s = seed;
  return (below: number) => {
    s = (Math.imul(s, 1664525) + 1013904223) >>> 0;
    return Math.floor((s / 2 ** 32) * below);
  };
}

// Node 20 has no Map.groupBy.
function groupBy<T, K>(items: T[], key: (item: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const item of items) groups.set(key(item), [...(groups.get(key(item)) ?? []), item]);
  return groups;
}

// The robot that is in maintenance, and at which tasks were stopped.
const lockedRobot = "robot-005";

const sizes = { robots: 200, tasks: 10_000, steps: 1_000 };
const smallFlow: [string, string[]][] = [
  ["inspect", []],
  ["preprocess", ["inspect"]],
  ["train-arms", ["preprocess"]],
  ["train-legs", ["preprocess"]],
  ["evaluate", ["train-arms", "train-legs"]],
  ["load-model", ["evaluate"]],
  ["verify", ["load-model"]],
];

export function makeSampleData(now = Date.now()) {
  const pick = random(7);
  let version = 1000;
  let count = 0;
  const rows = new Map<string, Row>();
  const ago = (seconds: number) => new Date(now - seconds * 1000).toISOString().replace("Z", "000Z");

  function add(kind: Kind, name: string, state: string, more: Partial<Row> = {}): Row {
    const row: Row = {
      kind,
      namespace: "default",
      name,
      uid: `${kind}-${String(count++).padStart(6, "0")}`,
      resourceVersion: String(version++),
      state,
      severity: severity(state),
      created: ago(7200),
      ...more,
    };
    rows.set(row.uid, row);
    return row;
  }

  const robotName = (i: number) => `robot-${String(i).padStart(3, "0")}`;
  const robotStates = [
    "Online",
    "Online",
    "Online",
    "Online",
    "Online",
    "Online",
    "Online",
    "Unknown",
    "Offline",
    "Pending",
  ];
  for (let i = 1; i <= sizes.robots; i++) {
    const drawn = robotStates[pick(robotStates.length)] as string;
    const locked = robotName(i) === lockedRobot;
    const state = locked ? "Online" : drawn;
    add("robots", robotName(i), state, {
      heartbeat: ago(state === "Offline" ? 900 + pick(4000) : pick(12)),
      cordoned: pick(15) === 0,
      capacity: { cpu: "4", memory: "8Gi", disk: "64G", tasks: "64", arm: "1" },
      used: {
        cpu: `${pick(38) * 100}m`,
        memory: `${pick(7000)}Mi`,
        disk: `${pick(60)}G`,
        tasks: String(pick(40)),
        arm: String(pick(2)),
      },
      runningTasks: state === "Online" ? pick(9) : 0,
      reason: state === "Offline" ? "Unresponsive" : undefined,
      message: state === "Offline" ? "nothing came for 5m" : undefined,
      ...(locked && { reason: "MaintenanceOn", message: "In maintenance by bob (uid 1001): a broken arm" }),
    });
  }

  const taskStates = [..."ccccccccccccrrrppd"].map(
    (c) => ({ c: "completed", r: "running", p: "pending", d: "dispatching" })[c] as string,
  );
  const addTask = (job: string, name: string, i: number, more: Partial<Row> = {}) => {
    const state = i % 97 === 13 ? "failed" : (taskStates[pick(taskStates.length)] as string);
    const began = 30 + pick(6000);
    const ended = state === "completed" || state === "failed";
    add("tasks", name, state, {
      job,
      group: `${job}-cells`,
      owner: { kind: "taskgroups", name: `${job}-cells` },
      created: ago(began + 20),
      started: state === "pending" ? undefined : ago(began),
      finished: ended ? ago(Math.max(1, began - 5 - pick(90))) : undefined,
      robot: state === "pending" ? undefined : robotName(1 + pick(sizes.robots)),
      attempt: state === "pending" ? 0 : 1 + (i % 31 === 0 ? 1 : 0),
      reason: state === "failed" ? "Exited" : state === "pending" ? "NoRobotFits" : undefined,
      message:
        state === "failed"
          ? "exit code 3"
          : state === "pending"
            ? "0 of 200 robots: 12: label env=prod missing; 188: arm in use"
            : undefined,
      template: "survey",
      ...more,
    });
  };
  for (let i = 0; i < sizes.tasks; i++) addTask("survey", `survey-cells-${i}-measure`, i);
  addJob("survey", "running");
  const jobStates = ["running", "completed", "completed", "failed", "paused", "pending", "canceled"];
  for (let i = 0; i < 40; i++) {
    const state = jobStates[i % jobStates.length] as string;
    const name = `patrol-${String(i).padStart(2, "0")}`;
    for (let t = 0; t < 4; t++)
      addTask(name, `${name}-cells-${t}-walk`, 500 + t, { namespace: "field", template: "patrol" });
    addJob(name, state, { namespace: "field" });
  }

  function addJob(name: string, state: string, more: Partial<Row> = {}) {
    const of = [...rows.values()].filter((r) => r.kind === "tasks" && r.job === name);
    const has = (t: Severity) => of.filter((r) => r.severity === t).length;
    const progress = {
      total: of.length,
      waiting: has("waiting"),
      running: has("running"),
      done: has("good"),
      failed: has("bad"),
    };
    const job = add("jobs", name, state, {
      progress,
      priority: 50,
      revision: name === "survey" ? 3 : undefined,
      started: ago(6100),
      finished: state === "completed" || state === "failed" ? ago(300 + pick(3000)) : undefined,
      reason: state === "failed" ? "TaskFailed" : undefined,
      message: state === "failed" ? "1 of 4 tasks has failed for good" : undefined,
      template: name.split("-")[0],
      ...more,
    });
    if (of.length > 0)
      add("taskgroups", `${name}-cells`, state, {
        ...more,
        progress,
        job: name,
        group: `${name}-cells`,
        started: job.started,
      });
    return job;
  }

  // Flows with their steps in order. The state of each step follows from the progress of the flow.
  const flows = new Map<string, { steps: [string, string[]][]; doneTo: number }>();
  function addFlow(name: string, steps: [string, string[]][], doneTo: number) {
    flows.set(name, { steps, doneTo });
    steps.forEach(([step], i) => {
      if (i > doneTo + 2) return;
      const state = i < doneTo ? "completed" : "running";
      const pods = step.startsWith("train") || step === "evaluate";
      const more = { flow: name, step, owner: { kind: "jobflows", name }, started: ago(3000 - i * 3), template: step };
      if (!pods) {
        addTask(`${name}-${step}`, `${name}-${step}-0`, i * 97 + 14, {
          flow: name,
          step,
          state,
          severity: severity(state),
        });
        addJob(`${name}-${step}`, state, more);
      } else {
        const word = state === "completed" ? "Completed" : "Running";
        add("vcjobs", `${name}-${step}`, word, {
          ...more,
          progress: { total: 2, waiting: 0, running: 0, done: 2, failed: 0 },
        });
        for (let p = 0; p < 2; p++) {
          add("pods", `${name}-${step}-worker-${p}`, state === "completed" ? "Succeeded" : "Running", {
            ...more,
            job: `${name}-${step}`,
            node: "this-machine",
          });
        }
      }
    });
    const progress = { total: steps.length, waiting: steps.length - doneTo - 3, running: 3, done: doneTo, failed: 0 };
    add("jobflows", name, "Running", {
      template: "nightly-inspection",
      progress,
      started: ago(3100),
      created: ago(3200),
    });
  }
  addFlow("inspection", smallFlow, 3);
  const bigFlow = Array.from({ length: sizes.steps }, (_, i): [string, string[]] => {
    const width = 25;
    if (i < width) return [`cell-${i}`, i === 0 ? [] : ["cell-0"]];
    const above = i - width;
    return [
      `cell-${i}`,
      i % 3 === 0 && i % width !== (i * 7) % width
        ? [`cell-${above}`, `cell-${above - (above % width) + ((i * 7) % width)}`]
        : [`cell-${above}`],
    ];
  });
  addFlow("harvest", bigFlow, 420);
  add("cronjobflows", "nightly-inspection", "Active", {
    reason: "Scheduled",
    message: "next at 02:00",
    started: ago(40_000),
  });
  for (const [name, state, ready] of [
    ["vision", "ready", 4],
    ["planner", "pending", 2],
  ] as const) {
    add("rayclusters", name, state, {
      reason: state === "ready" ? undefined : "RayClusterPodsProvisioning",
      progress: { total: 4, waiting: 4 - ready, running: ready, done: ready, failed: 0 },
    });
    for (let p = 0; p < 4; p++) {
      add("pods", `${name}-${p === 0 ? "head" : `workers-${p}`}`, p < ready ? "Running" : "Pending", {
        labels: { "ray.io/cluster": name },
        node: p < ready ? "this-machine" : undefined,
        started: p < ready ? ago(2000) : undefined,
      });
    }
  }
  for (let i = 0; i < 60; i++) {
    add("jobs", `old-${i}`, i % 5 === 0 ? "failed" : "completed", {
      archived: true,
      resourceVersion: "",
      created: ago(90_000 + i * 3000),
      started: ago(89_990 + i * 3000),
      finished: ago(89_000 + i * 3000),
      template: "patrol",
      progress: { total: 4, waiting: 0, running: 0, done: i % 5 === 0 ? 3 : 4, failed: i % 5 === 0 ? 1 : 0 },
    });
  }

  add("tasks", "beacon-lamps-0-blink", "running", {
    robot: "robot-018",
    attempt: 2,
    restarts: 14,
    reason: "Restarting",
    message: "exit code 1",
    started: ago(40),
  });

  addRollouts();
  function addRollouts() {
    const counts = { total: 200, waiting: 149, running: 12, done: 32, failed: 7 };
    const of = { job: "survey", started: ago(5000), progress: counts, fromRevision: 3, revision: 5 };
    const message = "wave fleet needs an approval";
    add("rollouts", "survey-5", "WaitingForApproval", { ...of, created: ago(5060), message });
    add("rollouts", "survey-4", "Superseded", { ...of, created: ago(90_000), finished: ago(5000), revision: 4 });
    const patrol = { job: "patrol-07", namespace: "field", fromRevision: 1, revision: 2, started: ago(800) };
    add("rollouts", "patrol-2", "Progressing", { ...patrol, created: ago(800), progress: counts });
  }

  addArray();
  function addArray() {
    const progress = { total: 1000, waiting: 595, running: 3, done: 400, failed: 2 };
    add("jobs", "sweep", "running", { progress, priority: 50, started: ago(600), template: "sweep" });
    add("taskgroups", "sweep-fields", "running", { progress, job: "sweep", group: "fields", started: ago(600) });
    const of = { job: "sweep", group: "fields", owner: { kind: "taskgroups", name: "sweep-fields" } };
    const range = { total: 100, waiting: 47, running: 1, done: 50, failed: 2 };
    add("tasks", "sweep-fields-0-scan", "running", { ...of, progress: range, robot: "robot-017", attempt: 1 });
    add("tasks", "sweep-fields-index-3-scan", "completed", { ...of, robot: "robot-018", attempt: 2 });
    add("tasks", "sweep-fields-index-4-scan", "soft-failed", { ...of, robot: "robot-017", attempt: 1 });
  }

  const listeners = new Set<(change: Change) => void>();
  const notify = (type: Change["type"], row: Row, from: string) => {
    const change: Change = {
      seq: row.resourceVersion,
      type,
      kind: row.kind,
      namespace: row.namespace,
      name: row.name,
      uid: row.uid,
      from,
      to: row.state,
      time: new Date().toISOString(),
      row,
    };
    for (const listener of listeners) listener(change);
  };

  /** move changes the state of a row, as a controller would. */
  function move(row: Row, state: string, more: Partial<Row> = {}): Row {
    const next = {
      ...row,
      reason: undefined,
      message: undefined,
      ...more,
      state,
      severity: severity(state),
      resourceVersion: String(version++),
    };
    rows.set(row.uid, next);
    notify("changed", next, row.state);
    return next;
  }

  const nextOf: Record<string, string> = {
    pending: "dispatching",
    dispatching: "running",
    running: "completed",
    completed: "pending",
  };
  const survey = [...rows.values()].filter((r) => r.job === "survey" && r.kind === "tasks").map((r) => r.uid);
  /** stir advances some tasks to their next state. */
  function stir(howMany: number) {
    for (let i = 0; i < howMany; i++) {
      const row = rows.get(survey[pick(survey.length)] as string) as Row;
      const time = new Date().toISOString();
      const to = nextOf[row.state];
      if (!to) continue;
      move(row, to, {
        robot: to === "pending" ? undefined : (row.robot ?? robotName(1 + pick(sizes.robots))),
        started: to === "running" ? time : to === "pending" ? undefined : row.started,
        finished: to === "completed" ? time : undefined,
        attempt: to === "dispatching" ? (row.attempt ?? 0) + 1 : row.attempt,
      });
    }
  }
  setInterval(() => {
    if (listeners.size > 0) stir(4);
  }, 100).unref();
  setInterval(() => {
    for (const row of rows.values()) {
      if (listeners.size > 0 && row.kind === "robots" && row.state === "Online" && pick(8) === 0) {
        move(row, row.state, { heartbeat: new Date().toISOString(), reason: row.reason, message: row.message });
      }
    }
  }, 2000).unref();

  const find = (kind: string, namespace: string, name: string, uid?: string | null) =>
    [...rows.values()].find(
      (r) => r.kind === kind && r.namespace === namespace && r.name === name && (!uid || r.uid === uid),
    );

  const approved = new Set<string>(); // the UIDs of Rollouts whose wave is approved

  return { rows, approved, flows, listeners, find, move, stir, add, position: () => String(version) };
}

export function attemptsOf(row: Row): Attempt[] {
  return Array.from({ length: row.attempt ?? 0 }, (_, i): Attempt => {
    const last = i + 1 === row.attempt;
    return {
      task: row.name,
      namespace: row.namespace,
      job: row.job,
      number: i + 1,
      robot: last ? row.robot : "robot-017",
      state: last ? row.state : "failed",
      severity: last ? row.severity : "bad",
      reason: last ? row.reason : "Exited",
      exitCode: last ? (row.state === "completed" ? 0 : row.state === "failed" ? 3 : undefined) : 1,
      started: last ? row.started : row.created,
      finished: last ? row.finished : row.started,
      ...(last && row.restarts ? runsOf(row.restarts) : {}),
    };
  });
}

/** runsOf returns the runs of an attempt that a robot has restarted: the last ten. */
function runsOf(count: number): Pick<Attempt, "runCount" | "runs"> {
  return { runCount: count + 1, runs: lastRuns(count + 1, 10) };
}

/** lastRuns returns the last runs of some, half a minute each. */
function lastRuns(count: number, limit: number): Run[] {
  const runs = Array.from({ length: Math.min(limit, count) }, (_, i) => ({ number: count - i, ago: 40 * (i + 1) }));
  return runs.reverse().map(({ number, ago }) => ({
    number,
    started: secondsAgo(ago),
    finished: secondsAgo(ago - 30),
    ...(number % 3 ? { reason: "Exited", exitCode: 1 } : { reason: "OOMKilled", exitCode: 137, signal: 9 }),
  }));
}

const secondsAgo = (seconds: number) => new Date(Date.now() - seconds * 1000).toISOString();

/** runPageOf returns the runs of a task as records have them: without contact from the third to the seventh one. */
export function runPageOf(row: Row, limit: number): RunPage {
  const count = (row.restarts ?? 0) + 1;
  const all = lastRuns(count, count);
  const gap = { reason: "OutOfContact" as const, first: 3, last: 7, from: all[1]?.finished, to: all[6]?.finished };
  const items = all
    .slice(-limit)
    .map((run) => ({ ...run, withoutContact: run.number >= gap.first && run.number <= gap.last }));
  return {
    attempt: 2,
    runCount: count,
    items,
    gaps: [gap],
    before: items[0] && items[0].number > 1 ? items[0].number : undefined,
  };
}

export function graphOf(sample: SampleData, name: string): Graph | undefined {
  const flow = sample.flows.get(name);
  if (!flow) return undefined;
  const jobs = groupBy(
    [...sample.rows.values()].filter((r) => r.flow === name && (r.kind === "jobs" || r.kind === "vcjobs")),
    (r) => r.step,
  );
  const nodes = flow.steps.map(([step, after]): Step => {
    const of = jobs.get(step) ?? [];
    const state = of.at(-1)?.state ?? "waiting";
    return {
      name: step,
      state,
      severity: severity(state),
      waitingFor: of.length ? [] : after,
      jobs: of,
      template: step,
      params: { rate: "0.5", source: `{{steps.${after[0] ?? "none"}.outputs.path}}` },
      outputs: state.toLowerCase() === "completed" ? { path: `/data/${step}`, frames: "1204" } : undefined,
    };
  });
  const edges = flow.steps.flatMap(([to, after]) => after.map((from) => ({ from, to })));
  return { nodes, edges };
}

export function timelineOf(sample: SampleData, row: Row): Timeline {
  const of = [...sample.rows.values()].filter(
    (r) => (r.kind === "tasks" || r.kind === "pods") && r.started && (r.job === row.name || r.flow === row.name),
  );
  const lanes = groupBy(of, (r) => (r.kind === "pods" ? r.name : (r.robot ?? "no robot")));
  const from = of.reduce((min, r) => (r.started && r.started < min ? r.started : min), new Date().toISOString());
  return {
    from,
    to: new Date().toISOString(),
    lanes: [...lanes].sort().map(([name, rows]) => ({
      name,
      bars: rows.map((r) => ({
        task: r.name,
        attempt: r.attempt ?? 1,
        step: r.step,
        start: r.started as string,
        end: r.finished,
        severity: r.severity,
        state: r.state,
        reason: r.reason,
      })),
    })),
  };
}

const restarts = (row: Row) => row.reason === "Restarting";
const waits = (row: Row) => row.severity === "waiting" || row.severity === "paused" || restarts(row);
const gistOf = (row: Row) => {
  if (restarts(row)) return "its last run has ended, and its robot starts it again";
  return row.severity === "paused" ? "it does not start until its job is resumed" : "it waits for a robot";
};
const rejectionsOf = (row: Row) =>
  row.message?.startsWith("0 of 200 robots")
    ? {
        robots: 200,
        checks: [
          { check: "FreeDevices", robots: 188, want: "arm", text: "arm in use" },
          { check: "Label", robots: 12, want: "env=prod", text: "label env=prod missing" },
        ],
      }
    : undefined;

/** whyOf returns why a task, or the tasks of a job, are waiting. */
export function whyOf(sample: SampleData, row: Row): Why {
  const facts: Why["facts"] = row.message ? [{ name: restarts(row) ? "message" : "placement", text: row.message }] : [];
  if (row.kind === "tasks") {
    if (restarts(row)) facts.push({ name: "next run", text: "", at: new Date(Date.now() + 90_500).toISOString() });
    if (row.severity === "waiting") facts.push({ name: "job", text: `${row.job} is running` });
    return { state: row.state, waiting: waits(row), summary: gistOf(row), facts, rejections: rejectionsOf(row) };
  }
  const of = [...sample.rows.values()].filter(
    (r) => r.kind === "tasks" && r.namespace === row.namespace && r.job === row.name && waits(r),
  );
  const tasks = [...groupBy(of, gistOf)].map(([summary, some]) => ({
    count: some.length,
    tasks: some.slice(0, 5).map((r) => r.name),
    summary,
    rejections: some.map(rejectionsOf).find(Boolean),
  }));
  const summary = of.length === 1 ? "one of its tasks waits" : `${of.length} of its tasks wait`;
  return { state: row.state, waiting: of.length > 0, summary, facts: [], tasks };
}

/** arraysOf returns what a detail has about arrays: of their jobs, groups, ranges and indexes. */
function arraysOf(row: Row): Pick<Detail, "array" | "arrays"> {
  const taskOf = (index: number) => `sweep-fields-index-${index}-scan`;
  const none = { succeeded: 0, failed: 0, left: 0 };
  if (row.progress && (row.name === "sweep" || row.name === "sweep-fields")) {
    const ranges = { running: 3, completed: 4, pending: 3 };
    const names = { group: "fields", taskGroup: "sweep-fields", task: "scan" };
    return { arrays: [{ ...names, indexes: "0-999", progress: row.progress, ranges }] };
  }
  if (row.name === "sweep-fields-0-scan") {
    const failures = [3, 4].map((index) => ({ index, task: taskOf(index), robot: "robot-017", exitCode: 7 }));
    const durations = [0, 0, 0, 4, 30, 15, 3];
    return {
      array: {
        indexes: "0-99",
        hasTask: true,
        succeeded: 50,
        failed: 2,
        left: 48,
        failedIndexes: "3-4",
        failures,
        durations,
      },
    };
  }
  const index = /^sweep-fields-index-(\d+)-scan$/.exec(row.name)?.[1];
  if (!index) return {};
  return { array: { index: Number(index), range: "sweep-fields-0-scan", hasTask: row.name === taskOf(3), ...none } };
}

const stoppedTasks: Detail["stoppedTasks"] = [
  {
    uid: "u1",
    namespace: "default",
    name: "survey-cells-0-measure",
    by: "alice (uid 1000)",
    since: new Date(Date.now() - 75 * 3_600_000).toISOString(),
  },
  { uid: "task-of-a-deleted-job", by: "bob (uid 1001)" },
];

/** rolloutOf returns the waves of a Rollout. */
function rolloutOf(row: Row, approved: ReadonlySet<string>): Detail["rollout"] {
  if (row.kind !== "rollouts") return undefined;
  const none = { updated: 0, updating: 0, failed: 0, waiting: 0, outOfContact: 0, outsideWindow: 0, held: 0 };
  const hall = { ...none, total: 60, updated: 31, updating: 12, failed: 7, outOfContact: 4, outsideWindow: 3, held: 2 };
  const isApproved = approved.has(row.uid);
  return {
    counts: { ...hall, total: 200, updated: 32, waiting: 140 },
    waves: [
      {
        name: "canary",
        includes: "1",
        state: "Finished",
        canApprove: false,
        healthyFor: "10m",
        started: secondsAgo(5000),
        finished: secondsAgo(4200),
        counts: { ...none, total: 1, updated: 1 },
      },
      {
        name: "hall",
        includes: "site=hall",
        state: "Running",
        canApprove: false,
        pause: "1h",
        retries: 1,
        started: secondsAgo(4100),
        counts: { ...hall, waiting: 1 },
      },
      {
        name: "fleet",
        includes: "100%",
        state: isApproved ? "NotStarted" : "NeedsApproval",
        canApprove: !isApproved,
        approved: isApproved,
      },
    ],
  };
}

/** unitsOf returns the units of a Rollout, failed ones first. */
export function unitsOf(row: Row, state: string, wave: string, limit: number): UnitList {
  const sizes: [UnitState, string, number][] = [
    ["failed", "hall", 7],
    ["updating", "hall", 12],
    ["outOfContact", "hall", 4],
    ["waiting", "", 145],
    ["updated", "hall", 32],
  ];
  let n = 0;
  const all = sizes.flatMap(([is, of, count]) =>
    Array.from({ length: count }, (): RolloutUnit => {
      const robot = `robot-${String(++n).padStart(3, "0")}`;
      const failure = { task: `survey-cells-${n}-measure`, reason: "Exited", message: "exit code 3" };
      const names = { unit: robot, robot, robotNamespace: "default", wave: of || undefined };
      return { ...names, state: is, severity: unitSeverity[is], ...(is === "failed" && failure) };
    }),
  );
  const fits = all.filter((u) => (!state || state.split(",").includes(u.state)) && (!wave || u.wave === wave));
  const ended = row.state === "Superseded";
  const shown = ended ? fits.filter((u) => u.state === "failed") : fits;
  return { items: shown.slice(0, limit), total: shown.length, complete: !ended };
}

const unitSeverity: Record<UnitState, Severity> = {
  failed: "bad",
  updating: "running",
  outOfContact: "gone",
  waiting: "waiting",
  updated: "good",
};

export const revisionsOf = (): JobRevision[] => [
  { revision: 5, current: false, update: true, created: secondsAgo(5100), changeCause: "release 5" },
  { revision: 4, current: false, update: false, created: secondsAgo(91_000) },
  { revision: 3, current: true, update: false, created: secondsAgo(200_000), changeCause: "release 3" },
];

/** rolloutActions returns what the state of a Rollout allows. */
function rolloutActions({ state }: Row): Detail["actions"] {
  const verb = (action: Verb, label: string, destructive = false) => ({ action, label, destructive });
  const end = [verb("abort", "Abort", true), verb("revert", "Revert", true), verb("delete", "Delete", true)];
  if (state === "Superseded" || state === "Complete") return end.slice(2);
  if (state === "Aborted") return end.slice(1);
  const first = state === "Paused" ? verb("resume", "Resume") : verb("pause", "Pause");
  return [first, verb("approve", "Approve"), ...end];
}

export function detailOf(row: Row, approved: ReadonlySet<string>): Detail {
  const ended = row.severity === "good" || row.severity === "bad" || row.severity === "gone";
  const verbs: Detail["actions"] =
    row.kind === "robots"
      ? [
          {
            action: row.cordoned ? "uncordon" : "cordon",
            label: row.cordoned ? "Uncordon" : "Cordon",
            destructive: false,
          },
          ...(row.reason === "MaintenanceOn"
            ? [{ action: "unlock" as const, label: "Unlock", destructive: true }]
            : []),
        ]
      : row.kind === "rollouts"
        ? rolloutActions(row)
        : row.kind === "pods"
          ? []
          : ended
            ? [{ action: "requeue", label: "Requeue", destructive: false }]
            : [
                row.severity === "paused"
                  ? { action: "resume", label: "Resume", destructive: false }
                  : { action: "pause", label: "Pause", destructive: false },
                { action: "cancel", label: "Cancel", destructive: true },
              ];
  return {
    row,
    archived: row.archived ?? false,
    object: {
      apiVersion: "robot.k8s4r.io/v1alpha1",
      kind: row.kind,
      metadata: { name: row.name, namespace: row.namespace, uid: row.uid, labels: row.labels },
      spec:
        row.kind === "pods"
          ? { containers: [{ name: "main" }, { name: "sidecar" }] }
          : {
              template: row.template,
              command: "set -e\necho measuring\nexec /opt/bin/measure\n",
              args: ["--resolution", "4k"],
            },
      status: { state: row.state, message: row.message },
    },
    conditions: [
      {
        type: "Placed",
        status: row.robot ? "True" : "False",
        reason: row.reason ?? "Bound",
        message: row.message,
        time: row.created,
      },
      { type: "Archived", status: "False", reason: "Running", time: row.created },
      ...(row.reason === "MaintenanceOn"
        ? [{ type: "Maintenance", status: "True", reason: row.reason, message: row.message, time: row.created }]
        : []),
    ],
    stoppedTasks: row.name === lockedRobot ? stoppedTasks : undefined,
    attempts: row.kind === "tasks" ? attemptsOf(row) : undefined,
    ...arraysOf(row),
    rollout: rolloutOf(row, approved),
    children: [],
    why: row.message ? [row.message] : [],
    actions: row.archived ? [] : verbs,
  };
}
