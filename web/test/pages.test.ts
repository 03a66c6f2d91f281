// Each page in light and dark: it loads, its scripts report no errors, and axe finds no serious problem.
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Kind, kinds } from "../src/api.ts";
import { type Console, openConsole, settled } from "./browser.ts";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const shots = process.env.K8S4R_SHOTS;

let at: Console;
beforeAll(async () => {
  at = await openConsole();
  if (shots) mkdirSync(shots, { recursive: true });
});
afterAll(() => at.close());

type Finding = { id: string; impact: string | null; nodes: { html: string; failureSummary?: string }[] };
declare const window: { axe: { run: (root: unknown, options: object) => Promise<{ violations: Finding[] }> } };

async function faultsOfAxe(): Promise<string[]> {
  await at.page.evaluate(axe);
  const { violations } = await at.page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return violations
    .filter((v) => v.impact === "serious" || v.impact === "critical")
    .flatMap((v) => v.nodes.slice(0, 3).map((n) => `${v.id}: ${n.html.slice(0, 200)} ${n.failureSummary ?? ""}`));
}

async function look(name: string, path: string) {
  for (const colorScheme of ["light", "dark"] as const) {
    await at.page.emulateMedia({ colorScheme });
    await at.page.goto(at.base + path);
    await settled(at.page);
    expect(await faultsOfAxe(), `axe, ${colorScheme}`).toEqual([]);
    if (shots) await at.page.screenshot({ path: `${shots}/${name}-${colorScheme}.png` });
  }
  expect(at.faults()).toEqual([]);
}

describe("pages", () => {
  it.each([
    ["overview", "/"],
    ["history", "/history"],
    ["history-robot", "/history/robot?robot=robot-017"],
    ["history-failures", "/history/failures"],
    ["history-steps", "/history/steps"],
    ["nowhere", "/there/is/no/such/page"],
    ["robots-table", "/robots?view=table"],
    ["no-rows", "/tasks?q=there-is-no-such-task"],
    ["not-found", "/tasks/default/there-is-no-such-task"],
  ])("%s", look);

  it.each(kinds)("list of %s", (kind) => look(kind, `/${kind}`));
});

const tabs: Record<Kind, string[]> = {
  jobs: ["tasks", "groups", "timeline", "changes", "conditions", "manifest"],
  rollouts: ["waves", "conditions", "manifest"],
  taskgroups: ["tasks"],
  tasks: ["log", "attempts"],
  robots: ["tasks", "resources", "history"],
  jobflows: ["graph", "timeline", "jobs"],
  cronjobflows: ["flows"],
  vcjobs: ["pods", "timeline"],
  rayclusters: ["pods"],
  pods: ["log"],
};

describe("objects", () => {
  it.each(kinds.flatMap((kind) => tabs[kind].map((tab): [Kind, string] => [kind, tab])))(
    "%s, %s",
    async (kind, tab) => {
      const [row] = await at.rows(kind, "limit=1&sort=name");
      if (!row) throw new Error(`there are no ${kind} to look at`);
      const step = tab === "graph" ? "&step=inspect" : "";
      await look(`${kind}-${tab}`, `/${kind}/${row.namespace}/${row.name}?tab=${tab}${step}`);
    },
  );
});

it.each([
  ["waiting", "/rollouts/default/survey-5"],
  ["failed units", "/rollouts/default/survey-5?units=failed&wave=hall"],
  ["of a job", "/jobs/default/survey?tab=rollouts"],
  ["revisions", "/jobs/default/survey?tab=revisions"],
])("rollout, %s", (name, path) => look(`rollout-${name.replaceAll(" ", "-")}`, path));

it.each([
  ["job", "/jobs/default/sweep"],
  ["range", "/tasks/default/sweep-fields-0-scan?tab=indexes"],
  ["log of an index", "/tasks/default/sweep-fields-0-scan?tab=log&index=17"],
  ["index", "/tasks/default/sweep-fields-index-4-scan"],
])("array, %s", (name, path) => look(`array-${name}`, path));

it("runs of a task that its robot restarts", async () => {
  await look("runs", "/tasks/default/beacon-lamps-0-blink?tab=attempts");
  await at.page.getByRole("group", { name: "Why" }).getByText("in 1m").waitFor();
  const runs = at.page.getByRole("table", { name: "Runs of attempt 2", exact: true });
  expect(await runs.getByRole("row").count()).toBe(1 + 15 + 1);
  const gap = runs.getByRole("row").nth(3); // before run 3
  expect(await gap.textContent()).toMatch(/^out of contact .*–.*, 5 runs$/);
  expect(await runs.getByRole("row").nth(4).getByRole("cell").first().textContent()).toBe("3");
  expect(await runs.getByRole("row").last().getByRole("cell").allTextContents()).toContain("signal 9");
});

it("runs of the status if the server has no others", async () => {
  await at.page.route("**/api/v1/tasks/default/beacon-lamps-0-blink/runs*", (route) => route.fulfill({ status: 403 }));
  await at.page.goto(`${at.base}/tasks/default/beacon-lamps-0-blink?tab=attempts`);
  const runs = at.page.getByRole("table", { name: "Runs of attempt 2, the last 10 of 15" });
  await expect.poll(() => runs.getByRole("row").count()).toBe(11);
  await at.page.unroute("**/api/v1/tasks/default/beacon-lamps-0-blink/runs*");
});

it("a robot in maintenance, at which tasks were stopped", async () => {
  await look("robot-locked", "/robots/default/robot-005?tab=stopped");
  await at.page.getByRole("list", { name: "Why" }).getByText("by bob (uid 1001): a broken arm").waitFor();
  const stopped = at.page.getByRole("group", { name: "Tasks stopped at the robot" });
  const row = stopped.getByRole("row", { name: /alice \(uid 1000\)/ });
  await row.getByRole("link", { name: "survey-cells-0-measure" }).waitFor();
  await row.getByText("3d").waitFor();
  await stopped.getByRole("row", { name: /task-of-a-deleted-job/ }).waitFor();
  await at.page.getByRole("link", { name: "Conditions" }).click();
  await at.page.getByRole("row", { name: /^Maintenance True MaintenanceOn .*a broken arm/ }).waitFor();
});

it.each(["tasks", "jobs"] as const)("why one of %s waits", async (kind) => {
  const [task] = await at.rows("tasks", "state=pending&namespace=field&limit=1");
  if (!task) throw new Error("no task waits");
  await look(`${kind}-why`, `/${kind}/field/${kind === "tasks" ? task.name : task.job}`);
  await at.page.getByRole("group", { name: "Why" }).waitFor();
});

it("sign-in", async () => {
  await at.page.getByRole("button", { name: "Sign out" }).click();
  await at.page.getByLabel("Token").waitFor();
  expect(await faultsOfAxe()).toEqual([]);
  if (shots) await at.page.screenshot({ path: `${shots}/sign-in.png` });
});
