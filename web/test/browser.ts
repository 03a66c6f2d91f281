// A browser on the console: on the one at K8S4R_CONSOLE_URL, signed in with K8S4R_TOKEN, or on the built
// pages with generated data. A page with script errors or violations of its Content-Security-Policy fails
// its test.
import { type Browser, chromium, type Page } from "playwright-core";
import { preview } from "vite";
import { afterAll, beforeAll, beforeEach, expect } from "vitest";
import type { Kind, Row } from "../src/api.ts";

export const flags = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export type Console = {
  base: string;
  page: Page;
  /** open opens a page and waits until its data is shown. */
  open: (path: string) => Promise<void>;
  /** rows loads objects of a kind from the API, for tests that use existing objects. */
  rows: (kind: Kind, query?: string) => Promise<Row[]>;
  /** faults returns the errors of the page's scripts since the last call. */
  faults: () => string[];
  another: () => Promise<Page>;
  close: () => Promise<void>;
};

const madeUp = !process.env.K8S4R_CONSOLE_URL;
const token = process.env.K8S4R_TOKEN ?? "made-up";

async function serve(): Promise<{ base: string; stop: () => Promise<void> }> {
  if (process.env.K8S4R_CONSOLE_URL) return { base: process.env.K8S4R_CONSOLE_URL, stop: async () => {} };
  const server = await preview({ preview: { host: "127.0.0.1", port: 0 }, logLevel: "warn" });
  const address = server.httpServer.address();
  if (!address || typeof address === "string") throw new Error("the preview has no port");
  return { base: `http://127.0.0.1:${address.port}`, stop: () => server.close() };
}

// The browser's message about a failed response that the test expects.
const expected = /Failed to load resource: the server responded with a status of 4\d\d/;

export function watch(page: Page, faults: string[]) {
  page.on("pageerror", (err) => faults.push(String(err)));
  page.on("console", (message) => {
    if (message.type() === "error" && !expected.test(message.text())) faults.push(message.text());
  });
}

export async function signIn(page: Page, base: string) {
  await page.goto(base);
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
}

/** session returns the header with the session of a page. */
export const session = async (page: Page) => ({
  "X-K8s4r-Session": await page.evaluate(() => sessionStorage.getItem("k8s4r-session") ?? ""),
});

export async function openConsole(): Promise<Console> {
  const { base, stop } = await serve();
  const browser: Browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: flags,
  });
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ignoreHTTPSErrors: true });
  context.setDefaultTimeout(15_000); // shorter than the timeout of a test, so that the error names what it waited for
  const faults: string[] = [];
  context.on("page", (page) => watch(page, faults));
  const page = await context.newPage();
  await signIn(page, base);
  return {
    base,
    page,
    open: async (path) => {
      await page.goto(base + path);
      await settled(page);
    },
    rows: async (kind, query = "") =>
      (
        await (
          await page.request.get(`${base}/api/v1/objects/${kind}?${query}`, { headers: await session(page) })
        ).json()
      ).items,
    faults: () => faults.splice(0),
    another: () => context.newPage(),
    close: async () => {
      await browser.close();
      await stop();
    },
  };
}

/** settled waits until the page's data is shown. */
export async function settled(page: Page) {
  await page.waitForFunction(() => document.querySelector("main h1, main h2") && !document.querySelector(".loading"));
  await expect.poll(() => page.evaluate(() => document.fonts.status)).toBe("loaded");
}

/** changeableConsole returns a console for the tests of one file, which may change its data. */
export function changeableConsole(): Console {
  const at = {} as Console;
  beforeAll(async () => {
    if (!madeUp) throw new Error("these tests change things: they are for made-up data only");
    Object.assign(at, await openConsole());
  });
  afterAll(() => at.close());
  beforeEach(() => at.faults());
  return at;
}
