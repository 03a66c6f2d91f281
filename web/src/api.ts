// The console's API: every request that the pages send. Requests and responses have the types of the
// server's document, docs/reference/console-openapi.json: `make generate` writes them.
import type { ActionsInBody, Attempt, Change, Hello, Kind, operations, SignInBody, Status } from "./api.gen.ts";
import { checkSession, currentSession, keepSession } from "./credential.ts";

export type {
  Action,
  ArraySummary,
  Attempt,
  Bar,
  Change,
  Condition,
  Details as Detail,
  Explanation as Why,
  Failures as Failure,
  Graph,
  JobRevision,
  Kind,
  Me,
  Node as Step,
  Overview,
  Page,
  Progress,
  Rejections,
  Result as ActionResult,
  RolloutDetails,
  RolloutUnit,
  Row,
  Run,
  RunGap,
  RunPage,
  Sample,
  Severity,
  StepTimes as StepTime,
  StoppedTask,
  Target,
  TaskIndexes,
  Timeline,
  Transition,
  UnitCounts,
  UnitState,
  Verb,
  WaveDetails,
  WaveState,
} from "./api.gen.ts";

/** Answer is the response of an operation, by the operation's id in the document. */
export type Answer<Name extends keyof operations> = operations[Name] extends {
  responses: { 200: { content: { "application/json": infer Body } } };
}
  ? Body
  : never;

/** Asked is the query parameters of an operation. */
type Asked<Name extends keyof operations> = {
  [Word in keyof NonNullable<operations[Name]["parameters"]["query"]>]?: string;
};

type Listing = NonNullable<operations["list-objects"]["parameters"]["query"]>;
export type Sort = NonNullable<Listing["sort"]>;

/** Query is the filter of a list. The page's address uses the same parameters. */
export type Query = Omit<Asked<"list-objects">, "scope" | "sort" | "limit" | "continue"> & Pick<Listing, "scope">;

/** HistoryQuery is the filter of the history. */
export type HistoryQuery = Omit<NonNullable<operations["history"]["parameters"]["query"]>, "limit" | "continue">;

/** Part selects a page of a list and its order. */
export type Part = { sort?: Sort; limit: number; continue?: string };

// The type makes a missing kind a compile error.
const all: Record<Kind, true> = {
  jobs: true,
  rollouts: true,
  taskgroups: true,
  tasks: true,
  robots: true,
  jobflows: true,
  cronjobflows: true,
  vcjobs: true,
  rayclusters: true,
  pods: true,
};
export const kinds = Object.keys(all) as Kind[];

/**
 * The kinds whose lists include archived objects. Rollouts, schedules and pods are not archived; for robots,
 * the archive has the attempts that ran on them.
 */
export const archivable: readonly Kind[] = kinds.filter(
  (kind) => kind !== "robots" && kind !== "pods" && kind !== "cronjobflows" && kind !== "rollouts",
);

/** ApiError is a failed response with the message of the server. */
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

export function query(params: Record<string, string | number | boolean | undefined>): string {
  const given = Object.entries(params).filter(([, v]) => v !== undefined && v !== "" && v !== false);
  const text = new URLSearchParams(given.map(([k, v]) => [k, String(v)])).toString();
  return text && `?${text}`;
}

async function failure(answer: Response): Promise<ApiError> {
  const status: Partial<Status> = await answer.json().catch(() => ({}));
  const message = status.message || `the server answered ${answer.status} ${answer.statusText}`.trim();
  return new ApiError(answer.status, status.reason ?? "", message);
}

async function request(path: string, init?: RequestInit): Promise<Response> {
  const session = currentSession();
  const headers = { ...init?.headers, ...(session && { "X-K8s4r-Session": session }) };
  let answer: Response;
  try {
    answer = await fetch(base + path, { credentials: "same-origin", ...init, headers });
  } catch (err) {
    if (init?.signal?.aborted) throw err;
    throw new ApiError(0, "Unreachable", "the console cannot be reached; check that it is running");
  }
  if (answer.status === 401 && path !== "/me" && path !== "/session") checkSession();
  if (!answer.ok) throw await failure(answer);
  return answer;
}

const get = async <Name extends keyof operations>(path: string, signal?: AbortSignal): Promise<Answer<Name>> =>
  (await request(path, { signal })).json();

const send = <Body>(method: string, path: string, body?: Body) =>
  request(path, {
    method,
    headers: { "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });

const address = (kind: Kind, namespace: string, name: string) =>
  `/objects/${kind}/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;

export const api = {
  me: () => get<"whoami">("/me"),
  signIn: async (by: SignInBody) => {
    const answer: Answer<"sign-in"> = await (await send<SignInBody>("POST", "/session", by)).json();
    keepSession(answer.session);
  },
  overview: (namespace: string, signal?: AbortSignal) => get<"overview">(`/overview${query({ namespace })}`, signal),
  list: (kind: Kind, q: Query, part: Part, signal?: AbortSignal) =>
    get<"list-objects">(`/objects/${kind}${query({ ...q, ...part })}`, signal),
  detail: (kind: Kind, namespace: string, name: string, uid?: string, signal?: AbortSignal) =>
    get<"get-object">(`${address(kind, namespace, name)}${query({ uid })}`, signal),
  graph: (namespace: string, name: string, signal?: AbortSignal) =>
    get<"get-graph">(`${address("jobflows", namespace, name)}/graph`, signal),
  units: (namespace: string, name: string, q: Asked<"list-units">, signal?: AbortSignal) =>
    get<"list-units">(`${address("rollouts", namespace, name)}/units${query(q)}`, signal),
  revisions: (namespace: string, name: string, signal?: AbortSignal) =>
    get<"list-revisions">(`${address("jobs", namespace, name)}/revisions`, signal),
  why: (kind: "tasks" | "jobs", namespace: string, name: string, signal?: AbortSignal) =>
    get<"get-task-why" | "get-job-why">(
      `/${kind}/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}/why`,
      signal,
    ),
  runs: (of: Pick<Attempt, "namespace" | "task" | "number">, limit: number, signal?: AbortSignal) =>
    get<"task-runs">(
      `/tasks/${encodeURIComponent(of.namespace)}/${encodeURIComponent(of.task)}/runs${query({ attempt: of.number, limit })}`,
      signal,
    ),
  timeline: (kind: Kind, namespace: string, name: string, signal?: AbortSignal) =>
    get<"get-timeline">(`${address(kind, namespace, name)}/timeline`, signal),
  history: (q: HistoryQuery, limit: number, signal?: AbortSignal) =>
    get<"history">(`/history/objects${query({ ...q, limit })}`, signal),
  ranOn: (robot: string, q: Asked<"robot-history">, signal?: AbortSignal) =>
    get<"robot-history">(`/history/robots/${encodeURIComponent(robot)}${query(q)}`, signal),
  failures: (q: Asked<"most-failing">, signal?: AbortSignal) =>
    get<"most-failing">(`/history/failures${query(q)}`, signal),
  stepTimes: (q: Asked<"step-times">, signal?: AbortSignal) => get<"step-times">(`/history/steps${query(q)}`, signal),
  transitions: (uid: string, signal?: AbortSignal) =>
    get<"transitions">(`/history/transitions/${encodeURIComponent(uid)}`, signal),
  act: async (body: ActionsInBody): Promise<Answer<"act">> =>
    (await send<ActionsInBody>("POST", "/actions", body)).json(),
};

export type LogOf =
  | { kind: "tasks"; namespace: string; name: string; attempt?: number; index?: number }
  | { kind: "pods"; namespace: string; name: string; container?: string };

function logPath(of: LogOf, options: { tail?: number; follow?: boolean } = {}): string {
  const which = of.kind === "tasks" ? { attempt: of.attempt, index: of.index } : { container: of.container };
  const path = `/${of.kind}/${encodeURIComponent(of.namespace)}/${encodeURIComponent(of.name)}/logs`;
  return path + query({ ...which, ...options });
}

/** Reads a log chunk by chunk until it ends. A followed log ends with its task. */
export async function readLog(
  of: LogOf,
  options: { tail?: number; follow?: boolean; signal: AbortSignal },
  piece: (bytes: Uint8Array) => void,
) {
  const { signal, ...rest } = options;
  const answer = await request(logPath(of, rest), { signal });
  const reader = answer.body?.getReader();
  for (;;) {
    const part = await reader?.read();
    if (!part || part.done) return;
    piece(part.value);
  }
}

/** readLogText returns what a log has so far. */
export const readLogText = async (of: LogOf): Promise<Blob> => (await request(logPath(of))).blob();

/** openEvents opens the event stream after the event with the id `since`. */
export async function openEvents(since: string): Promise<ReadableStream<Uint8Array>> {
  const answer = await request(`/events${query({ since } satisfies Asked<"events">)}`);
  return answer.body ?? new ReadableStream();
}

/** decodeEvent decodes the data of each event type. */
export const decodeEvent = {
  hello: (data: string): Hello => JSON.parse(data),
  change: (data: string): Change => JSON.parse(data),
};
