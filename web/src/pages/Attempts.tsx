import type { Attempt } from "../api.ts";
import { ObjectLink, State, Took, When } from "../ui/basics.tsx";

function ended(attempt: Attempt): string {
  if (attempt.signal) return `signal ${attempt.signal}`;
  return attempt.exitCode === undefined ? "" : `exit ${attempt.exitCode}`;
}

/** Attempts lists attempts of tasks. With names it shows the task of each. */
export function Attempts({ of, names }: { of: Attempt[]; names?: boolean }) {
  if (of.length === 0) return <p className="quiet">No attempts yet.</p>;
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label="Attempts">
      <table>
        <thead>
          <tr>
            {names && <th>Task</th>}
            <th>Attempt</th>
            <th>State</th>
            <th>Robot</th>
            <th>Reason</th>
            <th>Result</th>
            <th>Began</th>
            <th>Took</th>
          </tr>
        </thead>
        <tbody>
          {of.map((attempt) => (
            <tr key={`${attempt.namespace}/${attempt.task}/${attempt.number}/${attempt.started}`}>
              {names && (
                <td>
                  <ObjectLink of={{ kind: "tasks", namespace: attempt.namespace, name: attempt.task }} />
                </td>
              )}
              <td>{attempt.number}</td>
              <td>
                <State severity={attempt.severity}>{attempt.state}</State>
              </td>
              <td>{attempt.robot}</td>
              <td>{attempt.reason}</td>
              <td>{ended(attempt)}</td>
              <td>
                <When time={attempt.started} />
              </td>
              <td>
                <Took start={attempt.started} end={attempt.finished} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
