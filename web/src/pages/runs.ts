// Runs of an attempt: how often a robot has started the process of a task.
import type { Attempt, Run, RunGap } from "../api.ts";
import { momentSpan } from "../time.ts";

/** resultOf formats how a process ended. It is empty while the process runs, and if nothing has seen its end. */
export function resultOf(ended: Pick<Run, "exitCode" | "signal">): string {
  if (ended.signal) return `signal ${ended.signal}`;
  return ended.exitCode === undefined || ended.exitCode < 0 ? "" : `exit ${ended.exitCode}`;
}

/** hasRestarts reports whether the robot has restarted the task. */
export function hasRestarts(attempt: Pick<Attempt, "runCount">): boolean {
  return (attempt.runCount ?? 0) > 1;
}

/** runsTitle names the listed runs of an attempt, the last ones if there were more. */
export function runsTitle(attempt: Pick<Attempt, "number" | "runCount" | "runs">): string {
  const listed = attempt.runs?.length ?? 0;
  const count = attempt.runCount ?? listed;
  return `Runs of attempt ${attempt.number}${count > listed ? `, the last ${listed} of ${count}` : ""}`;
}

/** Listed is a line of the table of runs: a run, or a gap before it. */
export type Listed = { run: Run } | { gap: RunGap };

/** placeGaps returns the runs with each gap before its first one, or at the end. */
export function placeGaps(runs: Run[], gaps: RunGap[]): Listed[] {
  const listed: Listed[] = [];
  const rest = [...gaps];
  for (const run of runs) {
    while (rest[0] && rest[0].first <= run.number) listed.push({ gap: rest.shift() as RunGap });
    listed.push({ run });
  }
  return [...listed, ...rest.map((gap) => ({ gap }))];
}

/** gapText describes runs that the server did not see as they happened. */
export function gapText(gap: RunGap): string {
  const count = gap.last - gap.first + 1;
  const runs = count === 1 ? "1 run" : `${count} runs`;
  const times = momentSpan(gap.from, gap.to);
  switch (gap.reason) {
    case "OutOfContact":
      return `out of contact ${times}, ${runs}`;
    case "NotReceived":
      return `${runs} whose records have not arrived yet, ${times}`;
    default:
      return `no records of ${runs}, ${times}`;
  }
}
