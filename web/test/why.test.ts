// How pages show why tasks and jobs are waiting. It has its own generated data, because other tests cancel
// jobs.
import { describe, expect, it } from "vitest";
import { changeableConsole, session, settled } from "./browser.ts";

const at = changeableConsole();
const open = (path: string) => at.open(path);

describe("why something waits", () => {
  const why = () => at.page.getByRole("group", { name: "Why" });
  const lacks = () => why().getByRole("list", { name: "Why robots were rejected" });
  const act = async (action: string, kind: string, namespace: string, name: string) =>
    at.page.request.post(`${at.base}/api/v1/actions`, {
      headers: await session(at.page),
      failOnStatusCode: true,
      data: { action, items: [{ kind, namespace, name }] },
    });
  /** tabsAt returns the vertical position of the tabs, or undefined before they are shown. */
  const tabsAt = async () => (await at.page.getByRole("tablist").all())[0]?.boundingBox().then((box) => box?.y);
  /**
   * openLate opens a page, delays the response about the reason, and returns where the tabs were before it
   * arrived.
   */
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
    await why().getByText("it does not start until its job is resumed").waitFor();
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
