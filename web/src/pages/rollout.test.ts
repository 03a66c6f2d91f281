import { expect, it } from "vitest";
import type { Change, Row, UnitCounts } from "../api.ts";
import { barParts, concernsUnits, countsText, revisionUse, waveNotes } from "./rollout.ts";

const none: UnitCounts = {
  total: 0,
  updated: 0,
  updating: 0,
  failed: 0,
  waiting: 0,
  outOfContact: 0,
  outsideWindow: 0,
  held: 0,
};

it("has a part of the bar for each state of units", () => {
  expect(barParts.map(({ key }) => key).sort()).toEqual(
    Object.keys(none)
      .filter((key) => key !== "total")
      .sort(),
  );
});

it("describes the states that units have", () => {
  expect(countsText({ ...none, total: 5, waiting: 2, failed: 1, outOfContact: 2 })).toBe(
    "1 failed, 2 out of contact, 2 waiting",
  );
  expect(countsText(none)).toBe("no units");
});

it("describes what a wave requires", () => {
  const wave = { name: "a", includes: "1", state: "Finished", canApprove: false } as const;
  expect(waveNotes(wave)).toEqual([]);
  expect(waveNotes({ ...wave, approved: true, healthyFor: "10m", pause: "1h", retries: 1 })).toEqual([
    "approved",
    "healthy for 10m",
    "pause of 1h after it",
    "1 retry",
  ]);
});

it("loads units again after changes of its tasks, of itself, and of the contact with robots", () => {
  const of = { namespace: "n", name: "r", job: "j" } as Row;
  const change = (part: object) => ({ namespace: "n", name: "x", ...part }) as Change;
  expect(concernsUnits(change({ kind: "tasks", row: { job: "j" } }), of)).toBe(true);
  expect(concernsUnits(change({ kind: "tasks", refresh: true, job: "j" }), of)).toBe(true);
  expect(concernsUnits(change({ kind: "tasks", row: { job: "other" } }), of)).toBe(false);
  expect(concernsUnits(change({ kind: "rollouts", name: "r" }), of)).toBe(true);
  expect(concernsUnits(change({ kind: "rollouts", name: "other" }), of)).toBe(false);
  expect(concernsUnits(change({ kind: "robots", from: "Online", to: "Online" }), of)).toBe(false);
  expect(concernsUnits(change({ kind: "robots", namespace: "shared", from: "Online", to: "Offline" }), of)).toBe(true);
});

it("names what has a revision", () => {
  const revision = { revision: 1, created: "", current: false, update: false };
  expect(revisionUse(revision)).toBe("");
  expect(revisionUse({ ...revision, current: true, update: true })).toBe(
    "tasks that no Rollout has changed, the definition of the job",
  );
});
