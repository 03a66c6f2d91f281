// The console's API: its types and every request that the pages make. The types are written by hand until the server
// publishes its OpenAPI document; from then on they come from api.gen.ts and only the requests stay here.

export const kinds = [
  "jobs",
  "taskgroups",
  "tasks",
  "robots",
  "jobflows",
  "cronjobflows",
  "vcjobs",
  "rayclusters",
  "pods",
] as const;
export type Kind = (typeof kinds)[number];

export type Tone = "waiting" | "running" | "good" | "bad" | "paused" | "gone";

export type Progress = { total: number; waiting: number; running: number; done: number; failed: number };

export type Row = {
  kind: Kind;
  namespace: string;
  name: string;
  uid: string;
  /** Empty when the object stands only in the archive. */
  resourceVersion: string;
  state: string;
  tone: Tone;
  reason?: string;
  message?: string;
  created: string;
  started?: string;
  finished?: string;
  owner?: { kind: string; name: string };
  job?: string;
  group?: string;
  flow?: string;
  step?: string;
  template?: string;
  robot?: string;
  node?: string;
  attempt?: number;
  progress?: Progress;
  priority?: number;
  labels?: Record<string, string>;
  archived?: boolean;
  heartbeat?: string;
  cordoned?: boolean;
  capacity?: Record<string, string>;
  used?: Record<string, string>;
  runningTasks?: number;
};

/** A part of a list. The archive does not count, so its total is not known. */
export type Page = { items: Row[]; total?: number; continue?: string; resourceVersion: string };

export type Me = { user: string; groups: string[]; namespaces: string[]; version: string; archive: boolean };

export type Counts = Record<string, number>;

export type Overview = {
  counts: Partial<Record<Kind, Counts>>;
  tones: Partial<Record<Kind, Partial<Record<Tone, number>>>>;
  failed: Row[];
  running: Row[];
  robots: Counts;
};

export type Attempt = {
  task: string;
  namespace: string;
  job?: string;
  step?: string;
  number: number;
  robot?: string;
  state: string;
  tone: Tone;
  reason?: string;
  exitCode?: number;
  signal?: number;
  started?: string;
  finished?: string;
  log?: string;
};

export type Verb = "pause" | "resume" | "cancel" | "requeue" | "priority" | "cordon" | "drain" | "uncordon" | "delete";
export type Action = { action: Verb; label: string; danger: boolean };
export type ActionItem = Pick<Row, "kind" | "namespace" | "name" | "uid">;
export type ActionResult = Omit<ActionItem, "uid"> & { ok: boolean; message: string };

export type Condition = { type: string; status: string; reason?: string; message?: string; time?: string };

export type Detail = {
  row: Row;
  object: unknown;
  archived: boolean;
  conditions: Condition[];
  attempts?: Attempt[];
  children: { kind: Kind; count: number; tones: Partial<Record<Tone, number>> }[];
  why: string[];
  actions: Action[];
};

export type Step = {
  name: string;
  tone: Tone;
  state: string;
  reason?: string;
  message?: string;
  waitsFor: string[];
  jobs: Row[];
  params?: Record<string, string>;
  outputs?: Record<string, string>;
  template?: string;
};
export type Graph = { nodes: Step[]; edges: { from: string; to: string; label?: string }[] };

export type Bar = {
  task: string;
  attempt?: number;
  step?: string;
  start: string;
  end?: string;
  tone: Tone;
  state: string;
  reason?: string;
};
/** From and to are not there while nothing has run. */
export type Timeline = { from?: string; to?: string; lanes: { name: string; bars: Bar[] }[] };

export type Failure = { template: string; step: string; attempts: number; failed: number; last?: string };
export type StepTime = {
  template: string;
  step: string;
  count: number;
  p50Seconds: number;
  p95Seconds: number;
  maxSeconds: number;
};
export type Transition = { at: string; from: string; to: string; reason?: string };

export type Change = {
  seq: string;
  type: "added" | "changed" | "removed";
  kind: Kind;
  namespace: string;
  name: string;
  uid: string;
  from?: string;
  to?: string;
  reason?: string;
  message?: string;
  time: string;
  row?: Row;
};

/** What a list asks of the server; the same words stand in the page's address. */
export type Query = {
  namespace?: string;
  state?: string;
  tone?: string;
  q?: string;
  job?: string;
  flow?: string;
  group?: string;
  robot?: string;
  template?: string;
  label?: string;
  scope?: "live" | "archived" | "all";
  since?: string;
  until?: string;
};

/** An answer that is no success, in the words of the server. */
export class ApiError extends Error {
  readonly code: number;
  readonly reason: string;
  constructor(code: number, reason: string, message: string) {
    super(message);
    this.code = code;
    this.reason = reason;
  }
}

const base = "/api/v1";

/** doubts tells when an answer makes one doubt that the session still counts. */
export const doubts = new EventTarget();
export const doubt = () => doubts.dispatchEvent(new Event("doubt"));

export function query(params: Record<string, string | number | boolean | undefined>): string {
  const given = Object.entries(params).filter(([, v]) => v !== undefined && v !== "" && v !== false);
  const text = new URLSearchParams(given.map(([k, v]) => [k, String(v)])).toString();
  return text && `?${text}`;
}

async function failure(answer: Response): Promise<ApiError> {
  const status = await answer.json().catch(() => ({}));
  const message = status.message || `the server answered ${answer.status} ${answer.statusText}`.trim();
  return new ApiError(answer.status, status.reason ?? "", message);
}

async function request(path: string, init?: RequestInit): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(base + path, { credentials: "same-origin", ...init });
  } catch (err) {
    if (init?.signal?.aborted) throw err;
    throw new ApiError(0, "Unreachable", "the console's server does not answer; is k8s4r still running?");
  }
  if (answer.status === 401 && path !== "/me") doubt();
  if (!answer.ok) throw await failure(answer);
  return answer;
}

const get = async <T>(path: string, signal?: AbortSignal): Promise<T> => (await request(path, { signal })).json();

// The header tells the server that the request comes from these pages: another site's page cannot set it.
const send = (method: string, path: string, body?: unknown) =>
  request(path, {
    method,
    headers: { "Content-Type": "application/json", "X-K8s4r-Csrf": "1" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });

const address = (kind: Kind, namespace: string, name: string) =>
  `/objects/${kind}/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;

export const api = {
  me: () => get<Me>("/me"),
  signIn: (token: string) => send("POST", "/session", { token }),
  signOut: () => send("DELETE", "/session"),
  overview: (namespace: string, signal?: AbortSignal) => get<Overview>(`/overview${query({ namespace })}`, signal),
  list: (kind: Kind, q: Query, page: { sort?: string; limit: number; continue?: string }, signal?: AbortSignal) =>
    get<Page>(`/objects/${kind}${query({ ...q, ...page })}`, signal),
  detail: (kind: Kind, namespace: string, name: string, uid?: string, signal?: AbortSignal) =>
    get<Detail>(`${address(kind, namespace, name)}${query({ uid })}`, signal),
  graph: (namespace: string, name: string, signal?: AbortSignal) =>
    get<Graph>(`${address("jobflows", namespace, name)}/graph`, signal),
  timeline: (kind: Kind, namespace: string, name: string, signal?: AbortSignal) =>
    get<Timeline>(`${address(kind, namespace, name)}/timeline`, signal),
  ranOn: (robot: string, q: { since?: string; until?: string; continue?: string }, signal?: AbortSignal) =>
    get<{ items: Attempt[]; continue?: string }>(`/history/robots/${encodeURIComponent(robot)}${query(q)}`, signal),
  failures: (q: Query, signal?: AbortSignal) => get<{ items: Failure[] }>(`/history/failures${query(q)}`, signal),
  stepTimes: (q: Query & { kind: string }, signal?: AbortSignal) =>
    get<{ items: StepTime[] }>(`/history/steps${query(q)}`, signal),
  transitions: (uid: string, signal?: AbortSignal) =>
    get<{ items: Transition[] }>(`/history/transitions/${encodeURIComponent(uid)}`, signal),
  act: async (body: { action: Verb; items: ActionItem[]; priority?: number; dryRun?: boolean }) =>
    (await send("POST", "/actions", body)).json() as Promise<{ results: ActionResult[] }>,
};

export type LogOf =
  | { kind: "tasks"; namespace: string; name: string; attempt?: number }
  | { kind: "pods"; namespace: string; name: string; container?: string };

export function logAddress(of: LogOf, options: { tail?: number; follow?: boolean } = {}): string {
  const which = of.kind === "tasks" ? { attempt: of.attempt } : { container: of.container };
  const path = `/${of.kind}/${encodeURIComponent(of.namespace)}/${encodeURIComponent(of.name)}/logs`;
  return base + path + query({ ...which, ...options });
}

/** Hands on a log piece by piece until it ends; one that is followed ends with its task. */
export async function readLog(
  of: LogOf,
  options: { tail?: number; follow?: boolean; signal: AbortSignal },
  piece: (bytes: Uint8Array) => void,
) {
  const { signal, ...rest } = options;
  const answer = await request(logAddress(of, rest).slice(base.length), { signal });
  const reader = answer.body?.getReader();
  for (;;) {
    const part = await reader?.read();
    if (!part || part.done) return;
    piece(part.value);
  }
}

export const eventsAddress = (since: string) => `${base}/events${query({ since })}`;
