// Why a task, or the tasks of a job, are waiting. Used by the pages of both and by the panel of a step.
import { Fragment } from "react";
import { api, type Kind, type Rejections, type Why } from "../api.ts";
import { type Loaded, useLoad } from "../data/useLoad.ts";
import { duration, exact } from "../time.ts";
import { ObjectLink } from "./basics.tsx";
import { useNow } from "./now.ts";

type Of = { kind: Kind; namespace: string; name: string };

// The tasks of a busy job change all the time.
const pause = { tasks: 500, jobs: 2000 };

/**
 * useWhy loads why a task or job is waiting, and loads it again when the object or a task of the job
 * changes. For other kinds it loads nothing.
 */
export function useWhy(of?: Of): Loaded<Why | undefined> {
  const kind = of?.kind === "tasks" || of?.kind === "jobs" ? of.kind : undefined;
  const loaded = useLoad(
    kind && of ? `why ${kind}/${of.namespace}/${of.name}` : "why nothing",
    async (signal) => (kind && of ? api.why(kind, of.namespace, of.name, signal) : undefined),
    (c) =>
      c.namespace === of?.namespace &&
      ((c.kind === kind && c.name === of.name) || (kind === "jobs" && c.kind === "tasks" && c.row?.job === of.name)),
    kind ? pause[kind] : undefined,
  );
  return kind ? loaded : { ...loaded, loading: false };
}

export function WhyNote({ of, namespace }: { of: Why; namespace: string }) {
  return (
    // The list of a job's tasks has a fixed height, so that the content below it does not move.
    <div className={of.tasks ? "note why steady" : "note why"} tabIndex={0} role="group" aria-label="Why">
      <p>{of.summary ?? of.state}</p>
      <RejectionList of={of.rejections} />
      {of.tasks && (
        <ul>
          {of.tasks.map((some) => (
            <li key={some.tasks[0]}>
              {some.count} × {some.summary}
              {some.text && !some.rejections && `: ${some.text}`} <Names of={some} namespace={namespace} />
              <RejectionList of={some.rejections} />
            </li>
          ))}
          {of.more && <li>{of.more} more wait for other reasons.</li>}
        </ul>
      )}
      <dl>
        {of.facts.map((fact) =>
          of.rejections && fact.name === "placement" ? null : (
            <div key={fact.name}>
              <dt>{fact.name}</dt>
              <dd>{fact.at ? <Until time={fact.at} /> : fact.text}</dd>
            </div>
          ),
        )}
      </dl>
    </div>
  );
}

function RejectionList({ of }: { of?: Rejections }) {
  if (!of) return null;
  return (
    <>
      {of.gang && <p>{of.gang}:</p>}
      <ul aria-label="Why robots were rejected">
        {of.checks.map((one) => (
          <li key={one.text}>
            <b>
              {one.robots} of {of.robots}
            </b>{" "}
            {of.robots === 1 ? "robot" : "robots"}: {one.text}
          </li>
        ))}
        {of.omitted && (
          <li>
            and {of.omitted} more {of.omitted === 1 ? "reason" : "reasons"}
          </li>
        )}
      </ul>
    </>
  );
}

function Names({ of, namespace }: { of: { count: number; tasks: string[] }; namespace: string }) {
  const more = of.count - of.tasks.length;
  return (
    <small>
      {of.tasks.map((name, i) => (
        <Fragment key={name}>
          {i > 0 && ", "}
          <ObjectLink of={{ kind: "tasks", namespace, name }} />
        </Fragment>
      ))}
      {more > 0 && ` and ${more} more`}
    </small>
  );
}

function Until({ time }: { time: string }) {
  const left = Date.parse(time) - useNow();
  return (
    <time dateTime={time}>
      {left > 0 ? `in ${duration(Math.ceil(left / 1000) * 1000)}` : "now"}, at {exact(time)}
    </time>
  );
}
