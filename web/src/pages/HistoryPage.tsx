import { lazy, type ReactNode, Suspense } from "react";
import { api, type Failure, type Kind, type Query, type Sample } from "../api.ts";
import { useParams } from "../data/route.ts";
import { useLoad } from "../data/useLoad.ts";
import { kindNames } from "../kindNames.ts";
import { useSession } from "../session.tsx";
import { fromLocal } from "../time.ts";
import { Empty, ErrorNote, Link, Loading, useTitle, When } from "../ui/basics.tsx";
import { AllHistory } from "./AllHistory.tsx";
import { Between } from "./Between.tsx";
import { RobotHistory } from "./RobotHistory.tsx";
import { TextFilter as Text } from "./TextFilter.tsx";

const StepTimes = lazy(() => import("../charts/StepTimes.tsx"));

const tabs: { id: string; title: string; show: () => ReactNode }[] = [
  { id: "search", title: "All", show: () => <AllHistory /> },
  { id: "robot", title: "On a robot", show: () => <OnRobot /> },
  { id: "failures", title: "Failures", show: () => <Failures /> },
  { id: "steps", title: "Step times", show: () => <Steps /> },
];

export default function HistoryPage({ tab }: { tab: string }) {
  useTitle("History");
  const { archive } = useSession();
  const chosen = tabs.find((t) => t.id === tab) ?? tabs[0];
  if (!archive) {
    return (
      <Empty title="There is no archive" command="k8s4r-manager --archive=sqlite:/var/lib/k8s4r/history.db">
        Start the manager with an archive to keep ended objects and to find them here.
      </Empty>
    );
  }
  return (
    <div className="page full">
      <h1>History</h1>
      <nav className="tabs" aria-label="Parts of the history">
        {tabs.map((t) => (
          <Link key={t.id} to={`/history/${t.id}`} aria-current={t === chosen ? "page" : undefined}>
            {t.title}
          </Link>
        ))}
      </nav>
      <section className="tab" key={chosen?.id} aria-label={chosen?.title}>
        <Suspense fallback={<Loading />}>{chosen?.show()}</Suspense>
      </section>
    </div>
  );
}

function KindChoice({ of }: { of: readonly Kind[] }) {
  const [params, change] = useParams();
  return (
    <select
      aria-label="Kind"
      value={params.get("kind") ?? of[0]}
      onChange={(event) => change({ kind: event.target.value })}
    >
      {of.map((kind) => (
        <option key={kind} value={kind}>
          {kindNames[kind].many}
        </option>
      ))}
    </select>
  );
}

const kindOf = (params: URLSearchParams, of: readonly Kind[]): Kind =>
  of.find((k) => k === params.get("kind")) ?? (of[0] as Kind);

/** when returns the range of time in the address. */
const when = (params: URLSearchParams): Pick<Query, "since" | "until"> => ({
  since: fromLocal(params.get("since")),
  until: fromLocal(params.get("until")),
});

function OnRobot() {
  const [params] = useParams();
  const robot = params.get("robot");
  return (
    <>
      <search className="filters">
        <Text name="robot" label="Robot" />
      </search>
      {robot ? (
        <RobotHistory robot={robot} />
      ) : (
        <Empty title="Choose a robot">Enter its name above to see the attempts that ran on it.</Empty>
      )}
    </>
  );
}

function Failures() {
  const [params] = useParams();
  const query = {
    namespace: params.get("ns") ?? undefined,
    template: params.get("template") ?? undefined,
    ...when(params),
  };
  const { data, error, reload } = useLoad(`failures ${JSON.stringify(query)}`, (signal) => api.failures(query, signal));
  return (
    <>
      <search className="filters">
        <Text name="template" label="Template" />
        <Between />
      </search>
      <ErrorNote error={error} retry={reload} />
      {!data && !error && <Loading />}
      {data &&
        (data.items.length > 0 ? <FailureTable of={data.items} /> : <Empty title="No failures in this time range" />)}
      {data && <Sampled of={data.of} />}
    </>
  );
}

// The server counts only the newest runs; the page must show that.
function Sampled({ of }: { of: Sample }) {
  if (!of.since) return null;
  return (
    <p>
      <small>
        Based on the last {of.runs.toLocaleString()} runs in this time range, since <When time={of.since} />. To include
        older runs, filter by template or shorten the range.
      </small>
    </p>
  );
}

function FailureTable({ of }: { of: Failure[] }) {
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label="Failures">
      <table>
        <thead>
          <tr>
            <th>Template</th>
            <th>Step</th>
            <th>Attempts</th>
            <th>Failed</th>
            <th>Share</th>
            <th>Last</th>
          </tr>
        </thead>
        <tbody>
          {of.map((item) => (
            <tr key={`${item.template} ${item.step}`}>
              <td>{item.template}</td>
              <td>{item.step}</td>
              <td>{item.attempts.toLocaleString()}</td>
              <td>{item.failed.toLocaleString()}</td>
              <td>
                <meter max={1} value={item.failed / Math.max(1, item.attempts)} aria-label="Failure rate" />{" "}
                {Math.round((100 * item.failed) / Math.max(1, item.attempts))} %
              </td>
              <td>
                <When time={item.last} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const timed: Kind[] = ["tasks", "jobs", "vcjobs"];

function Steps() {
  const [params] = useParams();
  const query = {
    kind: kindOf(params, timed),
    namespace: params.get("ns") ?? undefined,
    template: params.get("template") ?? undefined,
    ...when(params),
  };
  const { data, error, reload } = useLoad(`steps ${JSON.stringify(query)}`, (signal) => api.stepTimes(query, signal));
  return (
    <>
      <search className="filters">
        <KindChoice of={timed} />
        <Text name="template" label="Template" />
        <Between />
      </search>
      <ErrorNote error={error} retry={reload} />
      {!data && !error && <Loading />}
      {data &&
        (data.items.length > 0 ? <StepTimes of={data.items} /> : <Empty title="No finished runs in this time range" />)}
      {data && <Sampled of={data.of} />}
    </>
  );
}
