// What a person does with the console, on made-up data.
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { type Console, madeUp, openConsole, settled, signIn } from "./browser.ts";

let at: Console;
beforeAll(async () => {
  if (!madeUp) throw new Error("these tests change things: they are for made-up data only");
  at = await openConsole();
});
afterAll(() => at.close());
beforeEach(() => at.faults());

const open = async (path: string) => {
  await at.page.goto(at.base + path);
  await settled(at.page);
};
const line = (name: string) => at.page.locator(".line", { has: at.page.getByRole("link", { name, exact: true }) });
const selected = () => at.page.locator('.line[aria-selected="true"]').count();

describe("a table", () => {
  it("keeps its filters in the address, and back leads to the ones before", async () => {
    await open("/jobs");
    await at.page.getByRole("button", { name: "failed", exact: true }).click();
    await expect.poll(() => new URL(at.page.url()).search).toBe("?state=failed");
    await expect.poll(() => at.page.locator(".line .state.tone-good").count()).toBe(0);
    await at.page.reload();
    await settled(at.page);
    expect(await at.page.getByRole("button", { name: "failed", exact: true }).getAttribute("aria-pressed")).toBe(
      "true",
    );
    await at.page.goBack();
    await expect.poll(() => at.page.locator(".line .state.tone-good").count()).toBeGreaterThan(0);
  });

  it("is worked with by the keyboard", async () => {
    await open("/jobs?ns=field&sort=name");
    await line("patrol-00").waitFor();
    for (const key of ["j", "x", "j", "j", "x"]) await at.page.keyboard.press(key);
    await expect.poll(selected).toBe(2);
    await at.page.keyboard.press("Escape");
    await expect.poll(selected).toBe(0);
    await at.page.keyboard.press("k");
    await at.page.keyboard.press("Enter");
    await at.page.getByRole("heading", { name: "patrol-01" }).waitFor();
    await at.page.keyboard.press("?");
    await at.page.getByRole("dialog", { name: "Keys" }).waitFor();
    await at.page.keyboard.press("Escape");
    await at.page.getByRole("dialog").waitFor({ state: "detached" });
    await at.page.keyboard.press("/");
    expect(await at.page.evaluate(() => document.activeElement?.getAttribute("type"))).toBe("search");
  });

  it("selects ranges with shift and single rows with ctrl", async () => {
    await open("/jobs?ns=field&sort=name");
    await line("patrol-02").click({ modifiers: ["Control"] });
    await line("patrol-05").click({ modifiers: ["Shift"] });
    await expect.poll(selected).toBe(4);
    await line("patrol-03").click({ modifiers: ["Control"] });
    await expect.poll(selected).toBe(3);
  });
});

describe("an action", () => {
  it("says first what will happen to each, and is carried out only then", async () => {
    await open("/jobs?ns=field&sort=name");
    await line("patrol-07").click({ modifiers: ["Control"] }); // running
    await line("patrol-08").click({ modifiers: ["Control"] }); // completed
    await at.page.getByRole("button", { name: "Pause", exact: true }).click();
    const dialog = at.page.getByRole("dialog");
    await dialog.getByText("running; will be paused").waitFor();
    await dialog.getByText("it is completed, and only what waits or runs can be paused").waitFor();
    expect(await line("patrol-07").locator(".state").textContent()).toBe("running");
    await dialog.getByRole("button", { name: "Pause 1 of 2" }).click();
    await dialog.getByText("running; is paused").waitFor();
    await expect.poll(() => line("patrol-07").locator(".state").textContent()).toBe("paused");
    await dialog.getByRole("button", { name: "Close" }).click();
  });

  it("changes nothing when the dialog is left", async () => {
    await open("/jobs/field/patrol-14");
    await at.page.getByRole("button", { name: "Cancel" }).click();
    await at.page.getByText("running; will be canceled").waitFor();
    await at.page.keyboard.press("Escape");
    await at.page.getByRole("dialog").waitFor({ state: "detached" });
    expect((await at.rows("jobs", "q=patrol-14"))[0]?.state).toBe("running");
  });

  it("is seen by another browser without a reload", async () => {
    await open("/jobs/field/patrol-21");
    const other = await at.another();
    await other.goto(`${at.base}/jobs?ns=field&q=patrol-21`);
    await other.locator(".line .state.tone-running").first().waitFor();
    await at.page.getByRole("button", { name: "Cancel" }).click();
    await at.page.getByRole("dialog").getByRole("button", { name: "Cancel", exact: true }).click();
    await other.locator(".line", { hasText: "canceled" }).waitFor();
    await other.close();
  });

  it("sets a priority", async () => {
    await open("/jobs?ns=field&sort=name");
    await line("patrol-01").click({ modifiers: ["Control"] });
    await at.page.getByRole("toolbar").getByRole("button", { name: "Priority" }).click();
    await at.page.getByLabel("Priority, 0 to 100").fill("80");
    await at.page.getByRole("dialog").getByRole("button", { name: "Priority", exact: true }).click();
    await at.page.getByRole("dialog").getByRole("button", { name: "Close" }).click();
    await expect.poll(() => line("patrol-01").textContent()).toContain("80");
  });
});

describe("live", () => {
  it("a log grows, and follows its end until one scrolls up", async () => {
    const [task] = await at.rows("tasks", "state=running&flow=inspection");
    await open(`/tasks/default/${task?.name}`);
    const lines = () => at.page.locator(".xterm-rows").textContent();
    await expect.poll(lines).toMatch(/cell 300/);
    await expect.poll(lines).toMatch(/cell 304/);
    const box = await at.page.locator(".screen").boundingBox();
    await at.page.mouse.move((box?.x ?? 0) + 200, (box?.y ?? 0) + 200);
    await at.page.mouse.wheel(0, -2000);
    await expect.poll(() => at.page.getByLabel("Follow").isChecked()).toBe(false);
  });

  it("a log is searched", async () => {
    const [task] = await at.rows("tasks", "state=completed&flow=inspection");
    await open(`/tasks/default/${task?.name}`);
    await expect.poll(() => at.page.locator(".xterm-rows").textContent()).toMatch(/cell 300/);
    await at.page.getByLabel(/Search the log/).fill("cell 17:");
    await expect.poll(() => at.page.locator(".xterm-rows").textContent()).toMatch(/cell 17:/);
  });

  it("a graph opens its steps in a panel, which the address names", async () => {
    await open("/jobflows/default/inspection");
    await expect.poll(() => at.page.locator(".react-flow__edge-path").count()).toBe(7);
    await at.page.locator(".step", { hasText: "verify" }).click();
    const panel = at.page.getByRole("complementary", { name: "Step verify" });
    await panel.getByRole("region", { name: "Waits for" }).getByText("load-model", { exact: true }).waitFor();
    await at.page.reload();
    await panel.waitFor();
    await at.page.goBack();
    await panel.waitFor({ state: "detached" });
  });
});

describe("why something waits", () => {
  const why = () => at.page.getByRole("group", { name: "Why" });
  const lacks = () => why().getByRole("list", { name: "What the robots lack" });
  const act = (action: string, kind: string, namespace: string, name: string) =>
    at.page.request.post(`${at.base}/api/v1/actions`, {
      headers: { "X-K8s4r-Csrf": "1" },
      data: { action, items: [{ kind, namespace, name }] },
    });
  /** tabsAt is how far down the tabs are. Undefined: they are not there yet. */
  const tabsAt = async () => (await at.page.getByRole("tablist").all())[0]?.boundingBox().then((box) => box?.y);
  /** openLate opens a page to which the answer comes last, and returns where its tabs were when all else could be drawn. */
  async function openLate(path: string) {
    let release = () => {};
    const held = new Promise<void>((then) => {
      release = then;
    });
    await at.page.route("**/why", (route) => held.then(() => route.continue()));
    const detail = at.page.waitForResponse((answer) => answer.url().includes("/objects/"));
    await at.page.goto(at.base + path);
    await (await detail).finished();
    for (const _ of "12") await at.page.evaluate(() => new Promise((then) => requestAnimationFrame(then)));
    const before = await tabsAt();
    release();
    await settled(at.page);
    await at.page.unroute("**/why");
    return before;
  }

  it("stands on the task's page with what the robots lack, moves nothing, and follows the task", async () => {
    const [task] = await at.rows("tasks", "state=pending&namespace=field&limit=1");
    const before = await openLate(`/tasks/field/${task?.name}`);
    await why().getByText("it waits for a robot").waitFor();
    expect(await lacks().getByRole("listitem").allTextContents()).toEqual([
      "188 of 200 robots: arm in use",
      "12 of 200 robots: label env=prod missing",
    ]);
    expect(await why().getByText("0 of 200 robots").count()).toBe(0);
    const after = await tabsAt();
    expect(before ?? after).toBe(after);
    await act("pause", "tasks", "field", task?.name ?? "");
    await why().getByText("it is held back until its job is resumed").waitFor();
    await lacks().waitFor({ state: "detached" });
    await act("cancel", "tasks", "field", task?.name ?? "");
    await why().waitFor({ state: "detached" });
  });

  it("stands on the job's page, task by task, and is left by the keyboard", async () => {
    const running = (await at.rows("jobs", "state=running&namespace=field")).map((job) => job.name);
    const task = (await at.rows("tasks", "state=pending&namespace=field")).find((t) => running.includes(t.job ?? ""));
    await open(`/jobs/field/${task?.job}`);
    await why().getByText("it waits for a robot").waitFor();
    await lacks().getByText("188 of 200").waitFor();
    const first = (await why().getByRole("link").first().textContent()) ?? "";
    await why().focus();
    await at.page.keyboard.press("Tab");
    await at.page.keyboard.press("Enter");
    await at.page.getByRole("heading", { level: 1, name: first }).waitFor();
  });

  it("stands in the panel of a flow's step, once a task of its job waits", async () => {
    await open("/jobflows/default/inspection?step=load-model");
    const panel = at.page.getByRole("complementary", { name: "Step load-model" });
    await panel.getByRole("region", { name: "Jobs" }).waitFor();
    expect(await why().count()).toBe(0);
    await act("requeue", "tasks", "default", "inspection-load-model-0");
    await panel.getByText("one of its tasks waits").waitFor();
    await why().getByRole("link", { name: "inspection-load-model-0" }).waitFor();
  });
});

describe("a session", () => {
  it("that has ended leads to the sign-in page, and a wrong token is told", async () => {
    await open("/jobs");
    await at.page.context().clearCookies();
    await at.page.getByRole("button", { name: "failed", exact: true }).click();
    await at.page.getByLabel("Token").fill("wrong");
    await at.page.getByRole("button", { name: "Sign in" }).click();
    await at.page.getByRole("alert").getByText("the API server does not know this token").waitFor();
    await signIn(at.page, at.base);
  });
});
