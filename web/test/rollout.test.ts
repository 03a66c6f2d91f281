// What a user sees of a Rollout, and does with it. It has its own generated data, because it approves a wave.
import { describe, expect, it } from "vitest";
import { changeableConsole } from "./browser.ts";

const at = changeableConsole();
const open = (path: string) => at.open(path);
const wave = (name: string) => at.page.getByRole("listitem", { name: `Wave ${name}` });
const units = () => at.page.getByRole("region", { name: "Units" });
const dialog = () => at.page.getByRole("dialog");

describe("a Rollout", () => {
  it("is found in the list, with what it changes", async () => {
    await open("/rollouts");
    const line = at.page.locator(".line", { hasText: "survey-5" });
    await line.getByText("WaitingForApproval").waitFor();
    await line.getByText("3 → 5").waitFor();
    await line.getByRole("link", { name: "survey", exact: true }).waitFor();
    await line.getByRole("link", { name: "survey-5" }).click();
    await at.page.getByRole("heading", { level: 1, name: "survey-5" }).waitFor();
    await at.page.getByRole("list", { name: "Why" }).getByText("wave fleet needs an approval").waitFor();
  });

  it("shows its waves as bars with all states of their units", async () => {
    await open("/rollouts/default/survey-5");
    await wave("canary").getByText("healthy for 10m").waitFor();
    const bar = wave("hall").getByRole("img");
    expect(await bar.getAttribute("aria-label")).toBe(
      "31 updated, 12 updating, 7 failed, 4 out of contact, 3 outside their window, 2 held at the robot, 1 waiting",
    );
    const box = await bar.boundingBox();
    const failed = await bar.locator(".unit-failed").boundingBox();
    expect((failed?.width ?? 0) / (box?.width ?? 1)).toBeCloseTo(7 / 60, 2);
    expect(await wave("fleet").getByRole("img").count()).toBe(0);
  });

  it("lists failed units first, with the reason and the log", async () => {
    await open("/rollouts/default/survey-5");
    const first = units().getByRole("row").nth(1);
    await first.getByText("Exited: exit code 3").waitFor();
    await units().getByText("200 units").waitFor();
    await first.getByRole("link", { name: /^Log of survey-cells-1-measure/ }).click();
    await at.page.getByRole("heading", { level: 1, name: "survey-cells-1-measure" }).waitFor();
    await expect.poll(() => at.page.locator(".xterm-rows").textContent()).toMatch(/cell 300/);
  });

  it("filters its units, and keeps the filter in the address", async () => {
    await open("/rollouts/default/survey-5");
    await units().getByRole("button", { name: "updating" }).click();
    await units().getByText("12 units").waitFor();
    await units().getByRole("combobox", { name: "Wave" }).selectOption("fleet");
    await units().getByText("0 units").waitFor();
    expect(new URL(at.page.url()).search).toBe("?units=updating&wave=fleet");
    await at.page.goBack();
    await units().getByText("12 units").waitFor();
  });

  it("shows recorded failures alone after its end", async () => {
    await open("/rollouts/default/survey-4");
    await units().getByText("7 units, only failures that the Rollout has recorded").waitFor();
    expect(await at.page.getByRole("button", { name: "Pause" }).count()).toBe(0);
  });

  it("belongs to a job, which lists it and its revisions", async () => {
    await open("/rollouts/default/survey-5");
    await at.page.getByRole("navigation", { name: "Where this is" }).getByRole("link", { name: "survey" }).click();
    await at.page.getByRole("heading", { level: 1, name: "survey", exact: true }).waitFor();
    await at.page.getByRole("navigation", { name: "Parts of survey" }).getByRole("link", { name: "Revisions" }).click();
    const current = at.page.getByRole("group", { name: "Revisions" }).getByRole("row", { name: /^3 / });
    await current.getByText("tasks that no Rollout has changed").waitFor();
    await at.page.getByRole("navigation", { name: "Parts of survey" }).getByRole("link", { name: "Rollouts" }).click();
    await at.page.locator(".line", { hasText: "survey-5" }).waitFor();
    await at.page.locator(".line", { hasText: "survey-4" }).waitFor();
  });

  it("is paused from its page", async () => {
    await open("/rollouts/field/patrol-2");
    await at.page.getByRole("button", { name: "Pause" }).click();
    await dialog().getByText("pause requested").waitFor();
    await dialog().getByRole("button", { name: "Pause", exact: true }).click();
    await dialog().getByRole("button", { name: "Close" }).click();
    await at.page.getByRole("button", { name: "Resume" }).waitFor();
    await at.page.locator("main .title .state", { hasText: "Paused" }).waitFor();
  });

  it("gets a wave approved by the keyboard", async () => {
    await open("/rollouts/default/survey-5");
    await wave("fleet").getByText("needs approval").waitFor();
    await at.page.getByRole("button", { name: "Approve wave fleet" }).focus();
    await at.page.keyboard.press("Enter");
    await at.page.getByRole("dialog", { name: "Approve wave fleet?" }).getByText("approved: fleet").waitFor();
    await dialog().getByRole("button", { name: "Approve", exact: true }).press("Enter");
    await dialog().getByRole("button", { name: "Close" }).press("Enter");
    await wave("fleet").getByText("not started").waitFor();
    await wave("fleet").getByText("approved", { exact: true }).waitFor();
    expect(await at.page.getByRole("button", { name: /^Approve/ }).count()).toBe(0);
  });

  it("can be seen without the right to approve it", async () => {
    const message = "spec.approvedWaves: starts waves, and you may not approve rollouts.robot.k8s4r.io";
    const refused = { kind: "rollouts", namespace: "field", name: "patrol-2", ok: false, message };
    await at.page.route("**/api/v1/actions", (route) => route.fulfill({ json: { results: [refused] } }));
    await open("/rollouts/field/patrol-2");
    await at.page.getByRole("button", { name: "Approve wave fleet" }).click();
    await dialog().getByText(message).waitFor();
    expect(
      await dialog()
        .getByRole("button", { name: /^Approve/ })
        .isDisabled(),
    ).toBe(true);
    await at.page.unroute("**/api/v1/actions");
    expect(at.faults()).toEqual([]);
  });
});
