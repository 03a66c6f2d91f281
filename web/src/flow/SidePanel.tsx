// The details of one step, beside the graph.
import { lazy, type ReactNode, Suspense, useState } from "react";
import { api, type Row, type Step } from "../api.ts";
import { useList } from "../data/useList.ts";
import { useLoad } from "../data/useLoad.ts";
import { kindNames } from "../kindNames.ts";
import { Manifest } from "../pages/Manifest.tsx";
import { ActionBar } from "../ui/ActionBar.tsx";
import { ErrorNote, Loading, ObjectLink, ProgressBar, State, Took } from "../ui/basics.tsx";
import { useWhy, WhyNote } from "../ui/Why.tsx";

const LogView = lazy(() => import("../logs/LogView.tsx"));

type Part = "state" | "logs" | "manifest";
const parts: [Part, string][] = [
  ["state", "State"],
  ["logs", "Logs"],
  ["manifest", "Manifest"],
];

export function SidePanel({ step, namespace, close }: { step: Step; namespace: string; close: () => void }) {
  const [part, setPart] = useState<Part>("state");
  const job = step.jobs.at(-1);
  return (
    <aside className="side" aria-label={`Step ${step.name}`}>
      <div className="title">
        <h2>{step.name}</h2>
        <State severity={step.severity}>{step.state}</State>
        <span className="space" />
        <button type="button" aria-label="Close" onClick={close}>
          ×
        </button>
      </div>
      <div className="tabs">
        {parts.map(([id, title]) => (
          <button key={id} type="button" aria-pressed={part === id} onClick={() => setPart(id)}>
            {title}
          </button>
        ))}
      </div>
      <div className="body" key={`${step.name} ${part}`}>
        {part === "state" && <StepState step={step} />}
        {part === "logs" &&
          (job ? <StepLog job={job} namespace={namespace} /> : <p className="quiet">The step has no Job yet.</p>)}
        {part === "manifest" && (job ? <JobManifest job={job} /> : <p className="quiet">The step has no Job yet.</p>)}
      </div>
    </aside>
  );
}

function StepState({ step }: { step: Step }) {
  const job = step.jobs.at(-1);
  const why = useWhy(job?.archived ? undefined : job);
  if (why.loading) return <Loading />; // without this, the panel would jump when the reason arrives
  return (
    <>
      {step.message && <p className={step.severity === "bad" ? "note bad" : "note"}>{step.message}</p>}
      {job && why.data?.waiting && <WhyNote of={why.data} namespace={job.namespace} />}
      <Section title="Waits for" show={step.waitingFor.length > 0}>
        <ul>
          {step.waitingFor.map((what) => (
            <li key={what}>{what}</li>
          ))}
        </ul>
      </Section>
      <Section title="Jobs" show={step.jobs.length > 0}>
        {step.jobs.map((row) => (
          <div key={row.uid} className="job">
            <small>{kindNames[row.kind].one}</small> <ObjectLink of={row} />{" "}
            <State severity={row.severity}>{row.state}</State>
            <ProgressBar of={row.progress} /> <Took start={row.started} end={row.finished} />
          </div>
        ))}
        <JobActions job={job} />
      </Section>
      <Values title="Params" of={step.params} />
      <Values title="Outputs" of={step.outputs} />
      <Section title="Template" show>
        {step.template}
      </Section>
    </>
  );
}

function Section({ title, show, children }: { title: string; show: boolean; children: ReactNode }) {
  return show ? (
    <section aria-label={title}>
      <h3>{title}</h3>
      {children}
    </section>
  ) : null;
}

function Values({ title, of = {} }: { title: string; of?: Record<string, string> }) {
  return (
    <Section title={title} show={Object.keys(of).length > 0}>
      <dl className="values">
        {Object.entries(of).map(([key, value]) => (
          <div key={key}>
            <dt>{key}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </Section>
  );
}

const useDetail = (row: Row) =>
  useLoad(
    `side ${row.uid}`,
    (signal) => api.detail(row.kind, row.namespace, row.name, row.archived ? row.uid : undefined, signal),
    (change) => change.uid === row.uid,
  );

function JobActions({ job }: { job?: Row }) {
  return job && !job.archived ? <LiveJobActions job={job} /> : null;
}

function LiveJobActions({ job }: { job: Row }) {
  const { data, reload } = useDetail(job);
  return <p className="buttons">{data && <ActionBar rows={[data.row]} actions={data.actions} done={reload} />}</p>;
}

function JobManifest({ job }: { job: Row }) {
  const { data, error } = useDetail(job);
  if (!data) return error ? <ErrorNote error={error} /> : <Loading />;
  return <Manifest of={data.object} />;
}

function StepLog({ job, namespace }: { job: Row; namespace: string }) {
  const kind = job.kind === "vcjobs" ? "pods" : "tasks";
  const { rows, loading, error } = useList(
    kind,
    { namespace, job: job.name, scope: job.archived ? "all" : undefined },
    "name",
  );
  const [chosen, setChosen] = useState("");
  const row = rows.find((r) => r.name === chosen) ?? rows[0];
  if (error) return <ErrorNote error={error} />;
  if (!row) return loading ? <Loading /> : <p className="quiet">The Job has no {kind} yet.</p>;
  return (
    <Suspense fallback={<Loading />}>
      <LogView of={{ kind, namespace, name: row.name }} live={!row.archived}>
        <select aria-label={kindNames[kind].one} value={row.name} onChange={(event) => setChosen(event.target.value)}>
          {rows.map((r) => (
            <option key={r.uid}>{r.name}</option>
          ))}
        </select>
      </LogView>
    </Suspense>
  );
}
