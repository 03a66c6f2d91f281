import { Fragment } from "react";
import type { Attempt } from "../api.ts";
import { ObjectLink, State, Took, When } from "../ui/basics.tsx";
import { hasRestarts, resultOf, runsTitle } from "./runs.ts";

/** Attempts lists attempts of tasks, each with its last runs. With names it shows the task of each. */
export function Attempts({ of, names }: { of: Attempt[]; names?: boolean }) {
  if (of.length === 0) return <p className="quiet">No attempts yet.</p>;
  const counts = of.some(hasRestarts);
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
            {counts && <th>Runs</th>}
            <th>Began</th>
            <th>Took</th>
          </tr>
        </thead>
        <tbody>
          {of.map((attempt) => (
            <Fragment key={`${attempt.namespace}/${attempt.task}/${attempt.number}/${attempt.started}`}>
              <tr>
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
                <td>{resultOf(attempt)}</td>
                {counts && <td>{attempt.runCount}</td>}
                <td>
                  <When time={attempt.started} />
                </td>
                <td>
                  <Took start={attempt.started} end={attempt.finished} />
                </td>
              </tr>
              {attempt.runs && (
                <tr className="runs">
                  <td colSpan={7 + Number(counts) + Number(names ?? false)}>
                    <Runs of={attempt} />
                  </td>
                </tr>
              )}
            </Fragment>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Runs lists the last runs of an attempt. */
function Runs({ of }: { of: Attempt }) {
  return (
    <table>
      <caption>{runsTitle(of)}</caption>
      <thead>
        <tr>
          <th>Run</th>
          <th>Reason</th>
          <th>Result</th>
          <th>Began</th>
          <th>Took</th>
        </tr>
      </thead>
      <tbody>
        {of.runs?.map((run) => (
          <tr key={run.number}>
            <td>{run.number}</td>
            <td>{run.reason}</td>
            <td>{resultOf(run)}</td>
            <td>
              <When time={run.started} />
            </td>
            <td>
              <Took start={run.started} end={run.finished ?? of.finished} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
