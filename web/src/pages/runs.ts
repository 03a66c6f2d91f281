// Runs of an attempt: how often a robot has started the process of a task.
import type { Attempt, Run } from "../api.ts";

/** resultOf formats how a process ended. It is empty while the process runs. */
export function resultOf(ended: Pick<Run, "exitCode" | "signal">): string {
  if (ended.signal) return `signal ${ended.signal}`;
  return ended.exitCode === undefined ? "" : `exit ${ended.exitCode}`;
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
