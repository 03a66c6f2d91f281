// Prints one line of JSON for each task that the console's table shows as completed: its name and the time
// of the change. test/bench/events runs it with K8S4R_CONSOLE_URL and K8S4R_TOKEN; it exits when its
// standard input ends.
import { chromium } from "playwright-core";

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
  ],
});
const page = await browser.newPage({ viewport: { width: 1280, height: 1600 } });
const base = process.env.K8S4R_CONSOLE_URL;
await page.exposeFunction("seen", (name, at) => console.log(JSON.stringify({ name, at })));
await page.goto(base);
await page.getByLabel("Token").fill(process.env.K8S4R_TOKEN);
await page.getByRole("button", { name: "Sign in" }).click();
await page.getByRole("heading", { name: "Overview" }).waitFor();
await page.goto(`${base}/tasks?sort=-created`);
await page.locator("main h1").waitFor();
await page.evaluate(() => {
  const known = new Set();
  const look = () => {
    const at = Date.now();
    for (const line of document.querySelectorAll(".line")) {
      const name = line.querySelector("a")?.textContent;
      if (line.querySelector(".state")?.textContent === "completed" && name && !known.has(name)) {
        known.add(name);
        window.seen(name, at);
      }
    }
  };
  new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
});
console.log(JSON.stringify({ ready: true }));
process.stdin.resume();
process.stdin.on("end", async () => {
  await browser.close();
  process.exit(0);
});
