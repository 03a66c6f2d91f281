// The console's API with generated data, as part of Vite's server: for development, and for tests of the
// pages.
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Plugin } from "vite";
import type { ActionsInBody, Change, Hello, operations, SignInBody, Status } from "../src/api.gen.ts";
import { type Answer, archivable, type Kind, kinds, type Query, type Row, type Verb } from "../src/api.ts";
import { matches, orderBy } from "../src/data/order.ts";
import {
  attemptsOf,
  detailOf,
  graphOf,
  makeSampleData,
  revisionsOf,
  runPageOf,
  type SampleData,
  timelineOf,
  unitsOf,
  whyOf,
} from "./sampleData.ts";

// The same policy as the server's, so that tests find violations. xterm.js creates style elements, which
// need unsafe-inline.
export const policy =
  "default-src 'self'; style-src 'self' 'unsafe-inline'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'";

class Refused extends Error {
  constructor(
    readonly code: number,
    readonly reason: string,
    message: string,
  ) {
    super(message);
  }
}

type Call = { sample: SampleData; req: IncomingMessage; res: ServerResponse; path: string[]; q: URLSearchParams };

function json(res: ServerResponse, body: unknown, code = 200) {
  res
    .writeHead(code, { "Content-Type": "application/json", "Content-Security-Policy": policy })
    .end(JSON.stringify(body));
}

/** answers sends the response of an operation. */
const answers = <Name extends keyof operations>(res: ServerResponse, body: Answer<Name>) => json(res, body);

async function bodyOf<Body>(req: IncomingMessage): Promise<Partial<Body>> {
  let text = "";
  for await (const chunk of req) text += chunk;
  return JSON.parse(text || "{}");
}

function known(call: Call): Row {
  const [kind = "", namespace = "", name = ""] = call.path[0] === "objects" ? call.path.slice(1) : call.path;
  const row = call.sample.find(kind, namespace, name, call.q.get("uid"));
  if (!row) throw new Refused(404, "NotFound", `${kind} "${name}" not found`);
  return row;
}

function list({ sample, res, path, q }: Call) {
  const kind = kinds.find((k) => k === path[1]);
  if (!kind) throw new Refused(404, "NotFound", `there is no kind ${path[1]}`);
  const query = { ...Object.fromEntries(q), scope: undefined } as Query;
  const scope = q.get("scope") ?? "live";
  const items = [...sample.rows.values()]
    .filter(
      (r) =>
        r.kind === kind && (scope === "all" || Boolean(r.archived) === (scope === "archived")) && matches(query, r),
    )
    .sort(orderBy(q.get("sort") ?? "name"));
  const from = Number(q.get("continue") ?? 0);
  const to = from + Number(q.get("limit") ?? 500);
  answers<"list-objects">(res, {
    items: items.slice(from, to),
    total: items.length,
    continue: to < items.length ? String(to) : undefined,
    resourceVersion: sample.position(),
  });
}

function object(call: Call) {
  const row = known(call);
  switch (call.path[4]) {
    case "graph":
      return answers<"get-graph">(call.res, graphOf(call.sample, row.name) ?? { nodes: [], edges: [] });
    case "units": {
      const { state = "", wave = "", limit = "500" } = Object.fromEntries(call.q);
      return answers<"list-units">(call.res, unitsOf(row, state, wave, Number(limit)));
    }
    case "revisions":
      return answers<"list-revisions">(call.res, { items: revisionsOf() });
    case "timeline":
      return answers<"get-timeline">(call.res, timelineOf(call.sample, row));
    default:
      return answers<"get-object">(call.res, detailOf(row, call.sample.approved));
  }
}

function overview({ sample, res, q }: Call) {
  const rows = [...sample.rows.values()].filter(
    (r) => !r.archived && (!q.get("namespace") || r.namespace === q.get("namespace")),
  );
  const count = (kind: Kind, by: (r: Row) => string) => {
    const counts: Record<string, number> = {};
    for (const row of rows) if (row.kind === kind) counts[by(row)] = (counts[by(row)] ?? 0) + 1;
    return counts;
  };
  const each = (by: (r: Row) => string) => Object.fromEntries(kinds.map((kind) => [kind, count(kind, by)]));
  const of = (list: Row[]) => list.slice(0, 10);
  answers<"overview">(res, {
    counts: each((r) => r.state),
    severities: each((r) => r.severity),
    failed: of(rows.filter((r) => r.severity === "bad" && r.kind !== "robots").sort(orderBy("-finished"))),
    running: of(rows.filter((r) => r.severity === "running" && (r.kind === "jobs" || r.kind === "jobflows"))),
    robots: count("robots", (r) => r.state),
  });
}

function log({ sample, req, res, path, q }: Call) {
  const row = sample.find(path[0] as string, path[1] as string, path[2] as string);
  if (!row) throw new Refused(404, "NotFound", `${path[0]} "${path[2]}" not found`);
  res.writeHead(200, { "Content-Type": "text/plain; charset=utf-8" });
  if (q.has("index")) {
    res.end(`output of index ${q.get("index")}\n`);
    return;
  }
  for (let i = 1; i <= 300; i++)
    res.write(
      `\x1b[90m${String(i).padStart(5)}\x1b[0m cell ${i}: ${i % 40 ? "measured" : "\x1b[31mslipped\x1b[0m, again"}\n`,
    );
  if (q.get("follow") !== "true" || row.severity !== "running") {
    res.end();
    return;
  }
  let i = 300;
  const timer = setInterval(() => res.write(`\x1b[90m${String(++i).padStart(5)}\x1b[0m cell ${i}: measured\n`), 250);
  req.on("close", () => clearInterval(timer));
}

function runs(call: Call) {
  const row = known({ ...call, path: call.path.slice(0, 3) });
  if (!row.restarts) throw new Refused(409, "NotStarted", `${row.name} has not started`);
  answers<"task-runs">(call.res, runPageOf(row, Number(call.q.get("limit"))));
}

const moves: Partial<Record<Verb, string>> = {
  pause: "paused",
  resume: "running",
  cancel: "canceled",
  requeue: "pending",
};

const rolloutMoves: Partial<Record<Verb, string>> = {
  pause: "Paused",
  resume: "Progressing",
  abort: "Aborted",
  approve: "Progressing",
};

/** actOnRollout changes the Rollout, unless it is a dry run, and returns the message. */
function actOnRollout(sample: SampleData, row: Row, { action, wave, dryRun }: ActionsInBody): string {
  if (!dryRun && action === "approve") sample.approved.add(row.uid);
  if (!dryRun) sample.move(row, rolloutMoves[action] ?? row.state);
  return action === "approve" ? `approved: ${wave}` : `${action} requested`;
}

async function actions({ sample, req, res }: Call) {
  const body = (await bodyOf<ActionsInBody>(req)) as ActionsInBody;
  const results = body.items.map((item) => {
    const row = sample.find(item.kind, item.namespace, item.name, item.uid);
    const { kind, namespace, name } = item;
    if (!row) return { kind, namespace, name, ok: false, message: "it is not there any more" };
    if (body.action === "pause" && row.severity !== "running" && row.severity !== "waiting") {
      return {
        kind,
        namespace,
        name,
        ok: false,
        message: `it is ${row.state}, and only what waits or runs can be paused`,
      };
    }
    if (kind === "rollouts") return { kind, namespace, name, ok: true, message: actOnRollout(sample, row, body) };
    const to = moves[body.action];
    if (!body.dryRun && to) sample.move(row, to);
    if (!body.dryRun && body.action === "priority") sample.move(row, row.state, { priority: body.priority });
    if (!body.dryRun && /cordon/.test(body.action)) sample.move(row, row.state, { cordoned: body.action === "cordon" });
    if (!body.dryRun && body.action === "unlock") sample.move(row, row.state);
    const will = body.dryRun ? "will be" : "is";
    return {
      kind,
      namespace,
      name,
      ok: true,
      message: to ? `${row.state}; ${will} ${to}` : `${body.action}: ${will} done`,
    };
  });
  answers<"act">(res, { results });
}

function events({ sample, req, res }: Call) {
  res.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-cache" });
  res.write(
    `id: ${sample.position()}\nevent: hello\ndata: ${JSON.stringify({ since: sample.position() } satisfies Hello)}\n\n`,
  );
  const listener = (change: Change) =>
    res.write(`id: ${change.seq}\nevent: change\ndata: ${JSON.stringify(change)}\n\n`);
  sample.listeners.add(listener);
  const timer = setInterval(() => sessions.size || res.destroy(), 100); // a stream ends with its session
  req.on("close", () => {
    clearInterval(timer);
    sample.listeners.delete(listener);
  });
}

function history({ sample, res, path, q }: Call) {
  const tasks = [...sample.rows.values()].filter((r) => r.kind === "tasks");
  switch (path[1]) {
    case "objects": {
      const { user, ...query } = Object.fromEntries(q) as Query & { user?: string };
      const items = [...sample.rows.values()]
        .filter((r) => archivable.includes(r.kind) && (!q.get("kind") || r.kind === q.get("kind")))
        .map((r) => (r.kind === "jobs" ? { ...r, user: r.archived ? "bob" : "ada" } : r))
        .filter((r) => (!user || r.user === user) && matches({ ...query, q: undefined }, r))
        .filter((r) => r.name.startsWith(q.get("q") ?? ""))
        .sort(orderBy("-created"));
      const limit = Number(q.get("limit"));
      return answers<"history">(res, {
        items: items.slice(0, limit),
        continue: items.length > limit ? "more" : undefined,
      });
    }
    case "robots":
      return answers<"robot-history">(res, {
        items: tasks
          .filter((r) => r.robot === path[2])
          .flatMap(attemptsOf)
          .slice(0, 100),
      });
    case "failures":
      return answers<"most-failing">(res, {
        of: { runs: 10_000, since: new Date(Date.now() - 3_600_000).toISOString() },
        items: ["survey", "patrol"].map((template, i) => ({
          template,
          step: "",
          attempts: tasks.filter((r) => r.template === template).length,
          failed: tasks.filter((r) => r.template === template && r.severity === "bad").length,
          last: new Date(Date.now() - 60_000 * (i + 1)).toISOString(),
        })),
      });
    case "steps":
      return answers<"step-times">(res, {
        of: { runs: 1234 },
        items: ["inspect", "preprocess", "train-arms", "train-legs", "evaluate", "load-model", "verify"].map(
          (step, i) => ({
            template: "inspection",
            step,
            count: 240 - i,
            p50Seconds: 2 + i * i * 3,
            p95Seconds: 5 + i * i * 7,
            maxSeconds: 20 + i * i * 20,
          }),
        ),
      });
    default:
      return answers<"transitions">(res, {
        items: ["pending", "dispatching", "running"].map((to, i, all) => ({
          at: new Date(q.has("none") ? 0 : Date.now() - (3 - i) * 40_000).toISOString(),
          from: all[i - 1] ?? "",
          to,
          reason: "",
        })),
      });
  }
}

// Sessions that POST /session returned and DELETE, which only this fake has, did not end.
const sessions = new Set<string>();

async function session({ req, res }: Call) {
  if (req.method === "DELETE") {
    sessions.clear();
    res.writeHead(204).end();
    return;
  }
  const { token = "", code = "" } = await bodyOf<SignInBody>(req);
  if (code ? code !== "made-up" : !token || token === "wrong")
    throw new Refused(401, "Unauthorized", code ? "the code was used" : "the API server does not know this token");
  const made = `made-up-${sessions.size}-${Date.now()}`;
  sessions.add(made);
  answers<"sign-in">(res, { session: made, until: new Date(Date.now() + 3_600_000).toISOString() });
}

const me = ({ sample, res }: Call) =>
  answers<"whoami">(res, {
    user: "ada@example.com",
    groups: ["operators"],
    namespaces: ["default", "field"],
    version: "made-up",
    archive: true,
    position: sample.position(),
  });

async function answer(call: Call) {
  const [first] = call.path;
  if (first === "session") return session(call);
  if (!sessions.has(String(call.req.headers["x-k8s4r-session"])))
    throw new Refused(401, "Unauthorized", "sign in first");
  if (first === "me") return me(call);
  if (first === "overview") return overview(call);
  if (first === "objects") return call.path.length > 2 ? object(call) : list(call);
  if (first === "actions") return actions(call);
  if (first === "events") return events(call);
  if (first === "history") return history(call);
  if (call.path[3] === "logs") return log(call);
  if (call.path[3] === "runs") return runs(call);
  if (call.path[3] === "why") return json(call.res, whyOf(call.sample, known(call)));
  throw new Refused(404, "NotFound", `there is no ${call.path.join("/")}`);
}

export function fakeConsole(): Plugin {
  let sample: SampleData | undefined;
  const handle = (req: IncomingMessage, res: ServerResponse, next: () => void) => {
    const url = new URL(req.url ?? "/", "http://here");
    if (!url.pathname.startsWith("/api/v1/")) return next();
    sample ??= makeSampleData();
    const path = url.pathname.slice("/api/v1/".length).split("/").map(decodeURIComponent);
    answer({ sample, req, res, path, q: url.searchParams }).catch((err) => {
      const code = err instanceof Refused ? err.code : 500;
      const refusal: Status = {
        kind: "Status",
        apiVersion: "v1",
        metadata: {},
        status: "Failure",
        code,
        reason: err.reason ?? "InternalError",
        message: err.message,
      };
      json(res, refusal, code);
    });
  };
  return {
    name: "fake-console",
    configureServer: (server) => {
      server.middlewares.use(handle);
    },
    configurePreviewServer: (server) => {
      server.middlewares.use((_, res, next) => {
        res.setHeader("Content-Security-Policy", policy);
        next();
      });
      server.middlewares.use(handle);
    },
  };
}
