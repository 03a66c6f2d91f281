// What the page of a Rollout shows: the parts of its bars, and texts for the states of the API.
import type { Change, JobRevision, Row, Severity, UnitCounts, UnitState, WaveDetails, WaveState } from "../api.ts";

type BarPart = { key: keyof Omit<UnitCounts, "total">; text: string; title: string };

/** barParts are the parts of the bar of a wave, from left to right. The style of each is .unit-KEY. */
export const barParts: readonly BarPart[] = [
  { key: "updated", text: "updated", title: "Healthy with the new revision" },
  { key: "updating", text: "updating", title: "Being changed, or not healthy yet" },
  { key: "failed", text: "failed", title: "Failed with the new revision, or not healthy within the deadline" },
  { key: "outOfContact", text: "out of contact", title: "The robot is out of contact, or takes no new tasks" },
  { key: "outsideWindow", text: "outside their window", title: "Waits for a maintenance window of the robot" },
  { key: "held", text: "held at the robot", title: "People at the robot do not want its tasks to be interrupted" },
  { key: "waiting", text: "waiting", title: "Has the old revision, and is not changed yet" },
];

/** unitsText returns a number of units, such as 1 unit. */
export const unitsText = (count: number) => `${count.toLocaleString()} ${count === 1 ? "unit" : "units"}`;

/** countsText describes the units of a wave, without those states that no unit has. */
export function countsText(counts: UnitCounts): string {
  const present = barParts.filter(({ key }) => counts[key] > 0).map(({ key, text }) => `${counts[key]} ${text}`);
  return present.join(", ") || "no units";
}

export const waveStates: Record<WaveState, { text: string; severity: Severity }> = {
  NotStarted: { text: "not started", severity: "waiting" },
  NeedsApproval: { text: "needs approval", severity: "paused" },
  Running: { text: "running", severity: "running" },
  WaitsForContact: { text: "waits for contact", severity: "gone" },
  WaitsForHolds: { text: "waits for holds", severity: "paused" },
  WaitsForWindows: { text: "waits for windows", severity: "waiting" },
  Stopped: { text: "stopped", severity: "bad" },
  Finished: { text: "finished", severity: "good" },
};

/** waveNotes describes what a wave requires, and what has happened to it, besides its state. */
export function waveNotes(wave: WaveDetails): string[] {
  const notes: [unknown, string][] = [
    [wave.approved, "approved"],
    [wave.healthyFor, `healthy for ${wave.healthyFor}`],
    [wave.pause, `pause of ${wave.pause} after it`],
    [wave.retries, wave.retries === 1 ? "1 retry" : `${wave.retries} retries`],
  ];
  return notes.filter(([is]) => is).map(([, text]) => text);
}

/** unitStates are the filters of the list of units, in the order of the list. */
export const unitStates: readonly { state: UnitState; text: string }[] = [
  { state: "failed", text: "failed" },
  { state: "updating", text: "updating" },
  { state: "outOfContact", text: "out of contact" },
  { state: "waiting", text: "waiting" },
  { state: "updated", text: "updated" },
];

export const unitStateText = (state: UnitState) => unitStates.find((one) => one.state === state)?.text ?? state;

/** concernsUnits reports whether units of the Rollout may have changed. */
export function concernsUnits(change: Change, { namespace, name, job }: Row): boolean {
  switch (change.kind) {
    case "robots":
      return change.from !== change.to;
    case "tasks":
      return change.namespace === namespace && (change.row?.job ?? change.job) === job;
  }
  return change.kind === "rollouts" && change.namespace === namespace && change.name === name;
}

/** revisionUse describes what has a revision of a job. */
export function revisionUse({ current, update }: JobRevision): string {
  const by = [current && "tasks that no Rollout has changed", update && "the definition of the job"];
  return by.filter(Boolean).join(", ");
}
