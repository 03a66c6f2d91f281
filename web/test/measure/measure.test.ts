// Measures how smooth big lists and graphs are; make web-measure prints one line of JSON. The limits hold
// for an idle machine.
import { afterAll, beforeAll, expect, it } from "vitest";
import { type Console, openConsole, settled } from "../browser.ts";

let at: Console;
beforeAll(async () => {
  at = await openConsole();
});
afterAll(() => at.close());

const report = (name: string, figures: object) => console.log(JSON.stringify({ name, ...figures }));
const part = (sorted: number[], p: number) =>
  Math.round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * p))] ?? 0);

const longer = 50; // ms

function figures(frames: number[]) {
  const sorted = frames.toSorted((a, b) => a - b);
  const long = sorted.filter((ms) => ms > longer).length / sorted.length;
  return {
    frames: sorted.length,
    p50_ms: part(sorted, 0.5),
    p99_ms: part(sorted, 0.99),
    long_share: Number(long.toFixed(3)),
  };
}

/**
 * frames scrolls an element from top to bottom and back, one step per frame, and returns the duration of
 * each frame.
 */
const frames = (selector: string, perFrame: number, howMany: number) =>
  at.page.evaluate(
    ({ selector, perFrame, howMany }) =>
      new Promise<number[]>((resolve) => {
        const place = document.querySelector(selector) as Element;
        const took: number[] = [];
        let last = performance.now();
        let by = perFrame;
        const next = (now: number) => {
          took.push(now - last);
          last = now;
          if (place.scrollTop + place.clientHeight >= place.scrollHeight - 1) by = -perFrame;
          place.scrollTop += by;
          if (took.length < howMany) requestAnimationFrame(next);
          else resolve(took.slice(1));
        };
        requestAnimationFrame(next);
      }),
    { selector, perFrame, howMany },
  );

it("scrolls 10,000 tasks without long frames while events come", async () => {
  await at.page.goto(`${at.base}/tasks?job=survey`);
  await settled(at.page);
  await expect.poll(() => at.page.locator(".toolbar output").textContent(), { timeout: 30_000 }).toBe("10,000 tasks");
  // Other load on the machine lengthens frames, too: a table that does not scroll shows by how much.
  const still = figures(await frames(".rows", 0, 200));
  const moving = figures(await frames(".rows", 200, 300));
  report("table-scroll", { rows: 10_000, moving, still });
  expect(await at.page.locator(".line").count()).toBeLessThan(80);
  expect(moving.long_share - still.long_share).toBeLessThan(0.05);
});

it("draws a flow of 1,000 steps within a second", async () => {
  await at.page.goto(`${at.base}/jobflows/default/harvest?tab=manifest`);
  await settled(at.page);
  // The fastest of several runs: other load only adds time. The first run also loads the code.
  const all: number[] = [];
  for (let i = 0; i < 4; i++) {
    all.push(Math.round(await draw()));
    await at.page.getByRole("link", { name: "Manifest" }).click();
    await at.page.locator(".react-flow").waitFor({ state: "detached" });
  }
  const best = Math.min(...all);
  report("graph-draw", { steps: 1000, ms: best, all });
  expect(best).toBeLessThan(1000);
});

/** draw opens the flow's graph and returns after how many ms it is completely drawn. */
const draw = () =>
  at.page.evaluate(async () => {
    const tab = [...document.querySelectorAll<HTMLElement>(".tabs a")].find((a) => a.textContent === "Steps");
    const frame = () => new Promise(requestAnimationFrame);
    const begun = performance.now();
    tab?.click();
    while (document.querySelectorAll(".react-flow__node").length < 1000) await frame();
    while (!document.querySelector(".lines path")?.getAttribute("d")) await frame();
    await frame();
    return performance.now() - begun;
  });
