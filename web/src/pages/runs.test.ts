import { expect, it } from "vitest";
import { gapText, hasRestarts, placeGaps, resultOf, runsTitle } from "./runs.ts";

it("a process ends with an exit code or a signal", () => {
  expect(resultOf({})).toBe("");
  expect(resultOf({ exitCode: 0 })).toBe("exit 0");
  expect(resultOf({ exitCode: -1 })).toBe("");
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

it("a gap is before its first run", () => {
  const runs = [3, 4, 8].map((number) => ({ number }));
  const gaps = [
    { reason: "OutOfContact" as const, first: 1, last: 4 },
    { reason: "NotRecorded" as const, first: 5, last: 7 },
    { reason: "NotReceived" as const, first: 9, last: 9 },
  ];
  const [contact, lost, late] = gaps.map((gap) => ({ gap }));
  expect(placeGaps(runs, gaps)).toEqual([
    contact,
    { run: { number: 3 } },
    { run: { number: 4 } },
    lost,
    { run: { number: 8 } },
    late,
  ]);
});

it("a gap has its times and its runs", () => {
  const at = (minute: number, day = 21) => new Date(2026, 10, day, 14, minute).toISOString();
  const times = (from?: string, to?: string) => gapText({ reason: "OutOfContact", first: 3, last: 39, from, to });
  expect(times(at(2), at(31))).toMatch(/^out of contact \S*\d+:02\S*( PM)?–\S*\d+:31\S*( PM)?, 37 runs$/);
  expect(times(at(2), at(31, 22))).toMatch(/21.*–.*22.*, 37 runs$/);
  expect(times(at(2))).toMatch(/–\?, 37 runs$/);
  expect(gapText({ reason: "NotRecorded", first: 3, last: 3 })).toBe("no records of 1 run, ?–?");
  expect(gapText({ reason: "NotReceived", first: 3, last: 4 })).toMatch(/^2 runs whose records have not arrived yet/);
});
