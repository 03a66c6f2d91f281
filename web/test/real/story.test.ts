// What a user does with the console of a real `k8s4r up` (hack/console-story), from the sign-in link to the
// logs of real processes.
import { execFileSync } from "node:child_process";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { type BrowserContext, chromium, type Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { flags, settled, signIn, watch } from "../browser.ts";

const must = (name: string) => {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: hack/console-story does`);
  return value;
};
const base = must("K8S4R_CONSOLE_URL");
const k8s4r = (...args: string[]) => execFileSync(must("K8S4R"), args, { encoding: "utf8" });
const apply = (manifest: object) =>
  execFileSync(must("K8S4R"), ["kubectl", "apply", "-f", "-"], { input: JSON.stringify(manifest) });

// Each task continues when its file exists, so that the test does not depend on timing.
const gate = must("K8S4R_GATES");
const step = (name: string, script: string) => ({
  apiVersion: "robot.k8s4r.io/v1alpha1",
  kind: "JobTemplate",
  metadata: { name },
  spec: {
    taskGroups: [
      {
        name: "main",
        tasks: [{ name: "main", driver: "raw_exec", config: { execConfig: { command: "sh", args: ["-c", script] } } }],
      },
    ],
  },
});
const waiting = (file: string) => `until [ -e ${gate}/${file} ]; do sleep 0.1; done`;
const open = (file: string) => execFileSync("touch", [`${gate}/${file}`]);
const ref = (name: string) => ({ name, templateRef: { apiGroup: "robot.k8s4r.io", name } });

let context: BrowserContext;
let page: Page;
const faults: string[] = [];

beforeAll(async () => {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: flags });
  context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  context.on("page", (p) => watch(p, faults));
  page = await context.newPage();
  await page.goto(must("K8S4R_LINK"));
  await page.getByRole("heading", { name: "Overview" }).waitFor();
});
afterAll(() => context.browser()?.close());

/** otherPort serves an empty page at another port of the console's host and returns what it has received. */
async function otherPort() {
  const received: IncomingHttpHeaders[] = [];
  const server = createServer((req, res) => {
    received.push(req.headers);
    res.setHeader("Content-Type", "text/html").end("<title>other</title>");
  });
  await new Promise<void>((ready) => server.listen(0, "127.0.0.1", ready));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, received, close: () => server.close() };
}

const state = (name: string) => page.locator(".step", { hasText: name }).locator(".state");

describe("a real system", () => {
  it("shows a newly submitted flow, and its graph as it changes", async () => {
    await page.goto(`${base}/jobflows`);
    await settled(page);
    apply(step("look", `echo the first line; ${waiting("second")}; echo the second line; ${waiting("look")}`));
    apply(step("think", waiting("think")));
    apply({
      apiVersion: "flow.volcano.sh/v1alpha1",
      kind: "JobFlow",
      metadata: { name: "story" },
      spec: { flows: [ref("look"), { ...ref("think"), dependsOn: { targets: ["look"] } }] },
    });
    await page.getByRole("link", { name: "story", exact: true }).click();
    await expect.poll(() => state("look").textContent()).toBe("Running");
    expect(await state("think").textContent()).toBe("Waiting");
  });

  it("shows a log that grows", async () => {
    await page.goto(`${base}/tasks/default/story-look-main-0-main`);
    const lines = () => page.locator(".xterm-rows").textContent();
    await expect.poll(lines).toContain("the first line");
    expect(await lines()).not.toContain("the second line");
    open("second");
    await expect.poll(lines).toContain("the second line");
  });

  it("continues after a reload, and a second browser shows the same", async () => {
    await page.goto(`${base}/jobflows/default/story`);
    await expect.poll(() => state("look").textContent()).toBe("Running");
    await page.reload();
    const other = await (await context.browser()?.newContext())?.newPage();
    if (!other) throw new Error("no second browser");
    await signIn(other, base);
    await other.goto(`${base}/jobflows/default/story`);
    open("look");
    const seen = other.locator(".step", { hasText: "think" }).locator(".state");
    await expect.poll(() => state("look").textContent()).toBe("Completed");
    await expect.poll(() => state("think").textContent()).toBe("Running");
    await expect.poll(() => seen.textContent()).toBe("Running");
    await other.close();
  });

  it("shows the effect of cancel and requeue, then applies them", async () => {
    k8s4r("run", "--detach", "--driver=raw_exec", "--name=steered", "--", "/bin/sh", "-c", waiting("never"));
    await page.goto(`${base}/jobs/default/steered`);
    const phase = () => page.locator(".title .state").textContent();
    await expect.poll(phase).toBe("running");
    await page.getByRole("button", { name: "Cancel", exact: true }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("cancel requested; 1 running task will be stopped").waitFor();
    expect(await phase()).toBe("running");
    await dialog.getByRole("button", { name: "Cancel", exact: true }).click();
    await expect.poll(phase).toBe("canceled");
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Requeue", exact: true }).click();
    await dialog.getByText("requeue of all tasks requested").waitFor();
    await dialog.getByRole("button", { name: "Requeue", exact: true }).click();
    await expect.poll(phase).toBe("running");
    await page.keyboard.press("Escape");
    expect(faults).toEqual([]);
  });

  it("gives a page at another port of its host nothing", async () => {
    const other = await otherPort();
    const tab = await context.newPage();
    await tab.goto(other.url);
    const got = await tab.evaluate(async (console: string) => {
      const tries: [string, RequestInit][] = [
        ["/api/v1/me", { credentials: "include" }],
        ["/api/v1/me", { credentials: "include", headers: { "X-K8s4r-Session": "x" } }],
        ["/api/v1/events", { credentials: "include" }],
        ["/api/v1/actions", { method: "POST", body: "{}", credentials: "include" }],
      ];
      const outcomes = await Promise.all(
        tries.map(([path, init]) =>
          fetch(console + path, init).then(
            (answer) => `read ${path}: ${answer.status}`,
            () => "nothing",
          ),
        ),
      );
      return [...outcomes, `cookie ${document.cookie}`, `${sessionStorage.length} in the storage`];
    }, base);
    expect(got).toEqual(["nothing", "nothing", "nothing", "nothing", "cookie ", "0 in the storage"]);
    expect(other.received.length).toBeGreaterThan(0);
    for (const headers of other.received) {
      expect([headers.cookie, headers.authorization, headers["x-k8s4r-session"]]).toEqual([
        undefined,
        undefined,
        undefined,
      ]);
    }
    expect(await context.cookies()).toEqual([]);
    faults.splice(0); // the browser reports the requests that it has refused
    await tab.close();
    other.close();
  });

  it("keeps in the archive what is gone", async () => {
    open("think");
    await expect
      .poll(() => k8s4r("kubectl", "get", "jobflow", "story", "-o", "jsonpath={.status.state.phase}"))
      .toBe("Succeed");
    k8s4r("kubectl", "delete", "jobflow", "story");
    await expect
      .poll(async () => {
        await page.goto(`${base}/jobflows/default/story`);
        await settled(page);
        return page.locator(".title").textContent();
      })
      .toContain("archived");
  });
});
