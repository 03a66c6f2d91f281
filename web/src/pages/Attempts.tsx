import { Fragment, useState } from "react";
import { type Attempt, api, type RunPage } from "../api.ts";
import { useLoad } from "../data/useLoad.ts";
import { ObjectLink, State, Took, When } from "../ui/basics.tsx";
import { gapText, hasRestarts, placeGaps, resultOf, runsTitle } from "./runs.ts";

/**
 * Attempts lists attempts of tasks, each with its last runs. With names it shows the task of each. If the task
 * is live, it loads the runs that the status does not have.
 */
export function Attempts({ of, names, live }: { of: Attempt[]; names?: boolean; live?: boolean }) {
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
                    {live ? <AllRuns of={attempt} /> : <Runs of={attempt} />}
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

// How many runs are loaded at first, and after the button was pressed. A table of more would be slow.
const few = 100;
const many = 2000;
// A robot may restart a task each second.
const pause = 5000;

/**
 * AllRuns lists the runs of an attempt that have records, also those without contact. If k8s4r-server does not
 * serve them, it lists those of the status.
 */
function AllRuns({ of }: { of: Attempt }) {
  const [limit, setLimit] = useState(few);
  const { data } = useLoad(
    `${of.namespace}/${of.task}/${of.number}/${limit}`,
    (signal) => api.runs(of, limit, signal),
    (c) => c.kind === "tasks" && c.namespace === of.namespace && c.name === of.task,
    pause,
  );
  return (
    <>
      <Runs of={of} page={data} />
      {data?.before && limit < many && (
        <button type="button" onClick={() => setLimit(many)}>
          Earlier runs
        </button>
      )}
    </>
  );
}

/** Runs lists runs of an attempt: of the page, or the last ones of its status. */
function Runs({ of, page }: { of: Attempt; page?: RunPage }) {
  const runs = page?.items ?? of.runs ?? [];
  const runCount = page ? Math.max(page.runCount, of.runCount ?? 0) : of.runCount;
  return (
    <table>
      <caption>{runsTitle({ number: of.number, runCount, runs })}</caption>
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
        {placeGaps(runs, page?.gaps ?? []).map((line) =>
          "gap" in line ? (
            <tr key={`${line.gap.reason}${line.gap.first}`} className="gap">
              <td colSpan={5}>{gapText(line.gap)}</td>
            </tr>
          ) : (
            <tr key={line.run.number}>
              <td>{line.run.number}</td>
              <td>{line.run.reason}</td>
              <td>{resultOf(line.run)}</td>
              <td>
                <When time={line.run.started} />
              </td>
              <td>
                <Took start={line.run.started} end={line.run.finished ?? of.finished} />
              </td>
            </tr>
          ),
        )}
      </tbody>
    </table>
  );
}
