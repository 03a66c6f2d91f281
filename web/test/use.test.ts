// What a user does with the console, on generated data.
import { describe, expect, it } from "vitest";
import { changeableConsole, settled, signIn } from "./browser.ts";

const at = changeableConsole();
const open = (path: string) => at.open(path);
const line = (name: string) => at.page.locator(".line", { has: at.page.getByRole("link", { name, exact: true }) });
const selected = () => at.page.locator('.line[aria-selected="true"]').count();

describe("a table", () => {
  it("keeps its filters in the address, and back leads to the ones before", async () => {
    await open("/jobs");
    await at.page.getByRole("button", { name: "failed", exact: true }).click();
    await expect.poll(() => new URL(at.page.url()).search).toBe("?state=failed");
    await expect.poll(() => at.page.locator(".line .state.severity-good").count()).toBe(0);
    await at.page.reload();
    await settled(at.page);
    expect(await at.page.getByRole("button", { name: "failed", exact: true }).getAttribute("aria-pressed")).toBe(
      "true",
    );
    await at.page.goBack();
    await expect.poll(() => at.page.locator(".line .state.severity-good").count()).toBeGreaterThan(0);
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

describe("an array", () => {
  it("leads from its job to an index, and from there to the range with the failures", async () => {
    await open("/jobs/default/sweep");
    const row = at.page.getByRole("group", { name: "Arrays" }).getByRole("row", { name: /fields/ });
    await row.getByText("3 running, 4 completed, 3 pending").waitFor();
    await row.getByRole("searchbox", { name: /Index of fields/ }).fill("4");
    await at.page.keyboard.press("Enter");
    await at.page.getByRole("heading", { level: 1, name: "sweep-fields-index-4-scan" }).waitFor();
    await at.page.getByText("no task of its own").waitFor();
    await at.page.getByRole("link", { name: "sweep-fields-0-scan" }).click();
    await at.page.getByRole("link", { name: "Indexes" }).click();
    const failed = at.page.getByRole("region", { name: "Failed indexes" });
    await failed.getByRole("link", { name: "sweep-fields-index-3-scan" }).waitFor();
    await at.page.getByRole("region", { name: "How long indexes took" }).getByText("< 16ms").waitFor();
  });

  it("has a log of which one index can be shown", async () => {
    await open("/tasks/default/sweep-fields-0-scan?tab=log");
    await at.page.getByRole("searchbox", { name: /only the output of this index/ }).fill("17");
    await at.page.keyboard.press("Enter");
    await at.page.getByText("output of index 17").waitFor();
    expect(new URL(at.page.url()).searchParams.get("index")).toBe("17");
  });
});

describe("an action", () => {
  it("shows the effect on each object before it is applied", async () => {
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
    await other.locator(".line .state.severity-running").first().waitFor();
    await at.page.getByRole("button", { name: "Cancel" }).click();
    await at.page.getByRole("dialog").getByRole("button", { name: "Cancel", exact: true }).click();
    await other.locator(".line", { hasText: "canceled" }).waitFor();
    await other.close();
  });

  it("that the user may not do can be read, but not confirmed", async () => {
    const message = 'robots "robot-005" is forbidden: a change of unlockMaintenance needs the verb unlock';
    const refused = { kind: "robots", namespace: "default", name: "robot-005", ok: false, message };
    await at.page.route("**/api/v1/actions", (route) => route.fulfill({ json: { results: [refused] } }));
    await open("/robots/default/robot-005");
    await at.page.getByRole("button", { name: "Unlock" }).click();
    await at.page.getByText(message).waitFor();
    expect(await at.page.getByRole("button", { name: "Unlock 0 of 1" }).isDisabled()).toBe(true);
    await at.page.getByRole("button", { name: "Do not change" }).click();
    await at.page.unroute("**/api/v1/actions");
  });

  it("ends the maintenance of a robot", async () => {
    await open("/robots/default/robot-005");
    await at.page.getByRole("button", { name: "Unlock" }).click();
    const dialog = at.page.getByRole("dialog");
    await dialog.getByText("unlock: will be done").waitFor();
    await dialog.getByRole("button", { name: "Unlock", exact: true }).click();
    await dialog.getByRole("button", { name: "Close" }).click();
    await at.page.getByRole("button", { name: "Unlock" }).waitFor({ state: "detached" });
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
  it("the stream begins where it stood before the page has loaded anything", async () => {
    const page = await at.another();
    const begins = page.waitForRequest(/\/events\b/);
    await page.goto(`${at.base}/jobs`);
    expect(new URL((await begins).url()).searchParams.get("since")).toBeTruthy();
    await page.close();
  });

  it("a log grows, and follows its end until one scrolls up", async () => {
    const [task] = await at.rows("tasks", "state=running&flow=inspection");
    await open(`/tasks/default/${task?.name}`);
    const lines = () => at.page.locator(".xterm-rows").textContent();
    const last = async () => Number([...((await lines()) ?? "").matchAll(/cell (\d+):/g)].at(-1)?.[1] ?? 0);
    await expect.poll(last).toBeGreaterThanOrEqual(300);
    await expect.poll(last).toBeGreaterThanOrEqual(304); // the log grows
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

describe("a session", () => {
  const end = () => at.page.request.delete(`${at.base}/api/v1/session`);

  it("that has ended is replaced without losing what the page shows", async () => {
    await open("/jobs?ns=field&sort=name");
    await line("patrol-02").click({ modifiers: ["Control"] });
    await end();
    const dialog = at.page.getByRole("dialog", { name: "Sign in again" });
    await dialog.waitFor(); // the event stream has ended
    expect(await line("patrol-02").count()).toBe(1);
    await dialog.getByLabel("Token").fill("wrong");
    await dialog.getByRole("button", { name: "Sign in" }).click();
    await dialog.getByRole("alert").getByText("the API server does not know this token").waitFor();
    await dialog.getByRole("button", { name: "Not now" }).click();
    await at.page.getByText("signed out").waitFor();
    await at.page.getByRole("button", { name: "Sign in again" }).click();
    await dialog.getByLabel("Token").fill("made-up");
    await dialog.getByRole("button", { name: "Sign in" }).click();
    await dialog.waitFor({ state: "detached" });
    await at.page.locator(".live.live").waitFor();
    expect(await selected()).toBe(1);
  });

  it("continues a log where the user signs in again", async () => {
    const [task] = await at.rows("tasks", "state=running&flow=inspection");
    await open(`/tasks/default/${task?.name}`);
    await expect.poll(() => at.page.locator(".xterm-rows").textContent()).toMatch(/cell 300/);
    await end();
    await at.page.getByLabel("Token").fill("made-up");
    await at.page.getByRole("dialog").getByRole("button", { name: "Sign in" }).click();
    await at.page.getByRole("dialog").waitFor({ state: "detached" });
    const saved = at.page.waitForEvent("download");
    await at.page.getByRole("button", { name: "Save as text" }).click();
    expect((await saved).suggestedFilename()).toBe(`${task?.name}.log`);
  });

  it("is handed to new tabs, and signing out ends it in all of them", async () => {
    await open("/jobs");
    const other = await at.another();
    await other.goto(`${at.base}/robots`);
    await settled(other);
    await other.getByRole("button", { name: "Sign out" }).click();
    await other.getByLabel("Token").waitFor();
    await at.page.getByLabel("Token").waitFor();
    await other.close();
    await signIn(at.page, at.base);
  });

  it("begins with the link, whose code leaves the address", async () => {
    await at.page.getByRole("button", { name: "Sign out" }).click();
    await at.page.getByLabel("Token").waitFor();
    await at.page.goto(`${at.base}/signin?code=used`);
    await at.page.getByRole("alert").getByText("the code was used").waitFor();
    await at.page.goto(`${at.base}/signin?code=made-up`);
    await at.page.getByRole("heading", { name: "Overview" }).waitFor();
    expect(at.page.url()).toBe(`${at.base}/`);
    expect(await at.page.context().cookies()).toEqual([]);
  });
});

describe("the history", () => {
  const rows = () => at.page.locator("tbody tr");
  const cells = (nth: number) => at.page.locator(`tbody tr td:nth-child(${nth})`).allInnerTexts();
  const names = () => cells(1);

  it("has everything that ran, live and deleted, the newest first", async () => {
    await open("/history");
    await rows().first().waitFor();
    const [job] = await at.rows("jobs", "limit=1&sort=-created");
    await at.page.getByRole("combobox", { name: "Kind" }).selectOption("Jobs");
    await expect.poll(async () => new Set(await cells(2))).toEqual(new Set(["Job"]));
    expect((await names())[0]).toBe(job?.name); // it is live
    await at.page.getByRole("combobox", { name: "Kind" }).selectOption("All kinds");
    await expect.poll(async () => (await cells(2)).includes("Task")).toBe(true);
    const [deleted] = await at.rows("jobs", "limit=1&scope=archived");
    await open(`/history?kind=jobs&q=${deleted?.name}`);
    await expect.poll(names).toContain(deleted?.name);
    expect((await cells(4))[0]).toContain("deleted");
  });

  it("is filtered by state, user, robot and name, and keeps the filters in the address", async () => {
    await open("/history?kind=jobs");
    await rows().first().waitFor();
    await at.page.getByRole("combobox", { name: "State" }).selectOption("completed");
    await expect
      .poll(async () => new Set(await cells(4).then((all) => all.map((s) => s.split(/\s/)[0]))))
      .toEqual(new Set(["completed"]));
    await at.page.getByRole("searchbox", { name: "User" }).fill("ada");
    await at.page.keyboard.press("Enter");
    await expect.poll(async () => new Set(await cells(5))).toEqual(new Set(["ada"]));
    expect(new URL(at.page.url()).search).toBe("?kind=jobs&state=completed&user=ada");
    await open("/history?robot=robot-017");
    await expect.poll(async () => new Set(await cells(6))).toEqual(new Set(["robot-017"]));
    await open("/history?q=there-is-no-such-name");
    await at.page.getByText("Nothing matches").waitFor();
    await at.page.getByRole("button", { name: "Show all" }).click();
    await rows().first().waitFor();
  });

  it("shows older ones page by page", async () => {
    await open("/history?kind=tasks");
    await expect.poll(() => rows().count()).toBe(100);
    await at.page.getByRole("button", { name: "Show older ones" }).click();
    await expect.poll(() => rows().count()).toBe(300);
  });
});
