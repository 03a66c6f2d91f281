import { expect, it } from "vitest";
import { hasRestarts, resultOf, runsTitle } from "./runs.ts";

it("a process ends with an exit code or a signal", () => {
  expect(resultOf({})).toBe("");
  expect(resultOf({ exitCode: 0 })).toBe("exit 0");
  expect(resultOf({ exitCode: 137, signal: 9 })).toBe("signal 9");
});

it("the second run is a restart", () => {
  expect([undefined, 0, 1, 2].map((runCount) => hasRestarts({ runCount }))).toEqual([false, false, false, true]);
});

it("the title has the number of runs if some are not listed", () => {
  const runs = [{ number: 13 }, { number: 14 }];
  expect(runsTitle({ number: 2, runCount: 2, runs })).toBe("Runs of attempt 2");
  expect(runsTitle({ number: 2, runCount: 14, runs })).toBe("Runs of attempt 2, the last 2 of 14");
  expect(runsTitle({ number: 2, runs })).toBe("Runs of attempt 2");
});
