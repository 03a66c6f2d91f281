import { lazy, type ReactNode, Suspense } from "react";
import { api, type Detail, type Kind, type Why } from "../api.ts";
import { navigate, useParams } from "../data/route.ts";
import { useLoad } from "../data/useLoad.ts";
import { kindNames } from "../kindNames.ts";
import { useSession } from "../session.tsx";
import { ActionBar } from "../ui/ActionBar.tsx";
import {
  Empty,
  ErrorNote,
  Fact,
  Facts,
  Link,
  Loading,
  ObjectLink,
  ProgressBar,
  State,
  Took,
  useTitle,
  When,
} from "../ui/basics.tsx";
import { revisionText } from "../ui/revision.ts";
import { type Tab, Tabs } from "../ui/Tabs.tsx";
import { useWhy, WhyNote } from "../ui/Why.tsx";
import { Arrays } from "./Arrays.tsx";
import { Attempts } from "./Attempts.tsx";
import { Conditions } from "./Conditions.tsx";
import { Indexes } from "./Indexes.tsx";
import { Listed } from "./ListPage.tsx";
import { Manifest } from "./Manifest.tsx";
import { ContainerLog } from "./PodLog.tsx";
import { Resources } from "./Resources.tsx";
import { Revisions } from "./Revisions.tsx";
import { RobotHistory } from "./RobotHistory.tsx";
import { StoppedTasks } from "./StoppedTasks.tsx";
import { Transitions } from "./Transitions.tsx";

const LogView = lazy(() => import("../logs/LogView.tsx"));
const FlowGraph = lazy(() => import("../flow/FlowGraph.tsx"));
const RolloutView = lazy(() => import("./RolloutView.tsx"));
const TimelineView = lazy(() => import("./TimelineView.tsx"));

type Name = { kind: Kind; namespace: string; name: string };

export default function ObjectPage({ kind, namespace, name }: Name) {
  useTitle(name);
  const [params] = useParams();
  const uid = params.get("uid") ?? undefined;
  const { data, error, reload } = useLoad(
    `${kind}/${namespace}/${name}/${uid}`,
    (signal) => api.detail(kind, namespace, name, uid, signal),
    (c) => c.kind === kind && c.namespace === namespace && c.name === name,
  );
  const why = useWhy({ kind, namespace, name });
  if (!data && error?.code === 404) return <Missing kind={kind} namespace={namespace} name={name} />;
  if (!data) return error ? <ErrorNote error={error} retry={reload} /> : <Loading />;
  if (why.loading) return <Loading />; // without this, the page would jump when the reason arrives
  return (
    <div className="page full">
      <Head of={data} reload={reload} />
      <ErrorNote error={error} retry={reload} />
      <Note of={data} why={why.data} />
      {data.arrays && <Arrays of={data.arrays} namespace={namespace} />}
      <Suspense fallback={<Loading />}>
        <ObjectTabs of={data} reload={reload} />
      </Suspense>
    </div>
  );
}

function Note({ of, why }: { of: Detail; why?: Why }) {
  if (why?.waiting && !of.archived && !of.row.finished) return <WhyNote of={why} namespace={of.row.namespace} />;
  if (of.why.length === 0) return null;
  return (
    <ul className={`note ${of.row.severity === "bad" ? "bad" : ""}`} aria-label="Why">
      {of.why.map((sentence) => (
        <li key={sentence}>{sentence}</li>
      ))}
    </ul>
  );
}

function ObjectTabs({ of, reload }: { of: Detail; reload: () => void }) {
  const { archive } = useSession();
  const tabs = tabsOf(of, reload);
  if (archive && of.row.kind !== "pods" && of.row.kind !== "rollouts") {
    tabs.push({ id: "changes", title: "Changes", show: () => <Transitions uid={of.row.uid} /> });
  }
  if (of.conditions.length > 0) {
    tabs.push({ id: "conditions", title: "Conditions", show: () => <Conditions of={of.conditions} /> });
  }
  tabs.push({ id: "manifest", title: "Manifest", show: () => <Manifest of={of.object} /> });
  return <Tabs tabs={tabs} label={`Parts of ${of.row.name}`} />;
}

const scope = (of: Detail) => (of.archived ? ("all" as const) : undefined);

/** tabsOf returns the tabs of a kind; the tabs of all kinds follow them. */
function tabsOf(of: Detail, reload: () => void): Tab[] {
  const { row } = of;
  const { kind, namespace, name } = row;
  const listed = (id: string, list: Kind, fixed: object, without: string[]): Tab => ({
    id,
    title: kindNames[list].many,
    show: () => (
      <Listed
        kind={list}
        fixed={{ namespace, scope: scope(of), ...fixed }}
        without={["namespace", ...without, ...(list === "tasks" && !of.arrays ? ["progress"] : [])]}
      />
    ),
  });
  const timeline: Tab = {
    id: "timeline",
    title: "Timeline",
    show: () => <TimelineView kind={kind} namespace={namespace} name={name} />,
  };
  switch (kind) {
    case "jobs":
      return [
        listed("tasks", "tasks", { job: name }, ["job"]),
        listed("groups", "taskgroups", { job: name }, ["job"]),
        timeline,
        ...(row.revision && !of.archived
          ? [
              listed("rollouts", "rollouts", { job: name }, ["target"]),
              { id: "revisions", title: "Revisions", show: () => <Revisions namespace={namespace} name={name} /> },
            ]
          : []),
      ];
    case "rollouts":
      return [{ id: "waves", title: "Waves", show: () => <RolloutView of={of} reload={reload} /> }];
    case "taskgroups":
      return [listed("tasks", "tasks", { job: row.job, group: row.group ?? name }, ["job"])];
    case "tasks":
      return [
        {
          id: "log",
          title: "Log",
          show: () => (
            <LogView
              of={{ kind: "tasks", namespace, name }}
              attempts={of.attempts}
              indexes={of.array?.indexes}
              live={!of.archived}
            />
          ),
        },
        ...indexesOf(of),
        { id: "attempts", title: "Attempts", show: () => <Attempts of={of.attempts ?? []} live={!of.archived} /> },
      ];
    case "jobflows":
      return [
        { id: "graph", title: "Steps", show: () => <FlowGraph namespace={namespace} name={name} /> },
        timeline,
        listed("jobs", "jobs", { flow: name }, ["flow"]),
        listed("vcjobs", "vcjobs", { flow: name }, ["flow"]),
      ];
    case "cronjobflows":
      return [listed("flows", "jobflows", { template: name }, [])];
    case "vcjobs":
      return [listed("pods", "pods", { job: name }, []), timeline];
    case "rayclusters":
      return [listed("pods", "pods", { label: `ray.io/cluster=${name}` }, [])];
    case "robots":
      return [
        // Tasks on this robot may come from any namespace that the robot is shared with.
        listed("tasks", "tasks", { robot: name, namespace: undefined, severity: "running" }, ["robot"]),
        ...stoppedOf(of),
        { id: "resources", title: "Resources", show: () => <Resources of={row} /> },
        { id: "history", title: "History", show: () => <RobotHistory robot={name} /> },
      ];
    case "pods":
      return [{ id: "log", title: "Log", show: () => <ContainerLog of={of} /> }];
  }
}

function indexesOf(of: Detail): Tab[] {
  const { array, row } = of;
  if (!array?.indexes) return [];
  return [{ id: "indexes", title: "Indexes", show: () => <Indexes of={array} namespace={row.namespace} /> }];
}

function stoppedOf({ stoppedTasks }: Detail): Tab[] {
  if (!stoppedTasks) return [];
  return [{ id: "stopped", title: "Stopped at the robot", show: () => <StoppedTasks of={stoppedTasks} /> }];
}

function Head({ of, reload }: { of: Detail; reload: () => void }) {
  const { row } = of;
  return (
    <>
      <nav className="crumbs" aria-label="Where this is">
        <Link to={`/${row.kind}`}>{kindNames[row.kind].many}</Link> / {row.namespace}
        <Owner of={of} />
      </nav>
      <div className="title">
        <h1>{row.name}</h1>
        <State severity={row.severity}>{row.state}</State>
        {of.archived && <span className="chip">archived</span>}
        {of.array && !of.array.hasTask && (
          <span className="chip" title="The index is shown from what its range knows. A requeue makes a task of it.">
            no task of its own
          </span>
        )}
        {row.cordoned && <span className="chip">cordoned</span>}
        <ProgressBar of={row.progress} wide />
        <span className="space" />
        <ActionBar rows={[row]} actions={of.actions.filter((a) => a.action !== "approve")} done={reload} />
      </div>
      <Facts>
        <Fact name="Reason">{row.reason && <span title={row.message}>{row.reason}</span>}</Fact>
        <Fact name="Robot">{linkTo(row.robot, "robots", row.namespace)}</Fact>
        <Fact name="Node">{row.node}</Fact>
        <Fact name="Heartbeat">{row.heartbeat && <When time={row.heartbeat} />}</Fact>
        <Fact name="Attempt">{row.attempt}</Fact>
        <Fact name="Restarts">{row.restarts}</Fact>
        <Fact name="Index">{of.array?.index}</Fact>
        <Fact name="Range">{linkTo(of.array?.range, "tasks", row.namespace)}</Fact>
        <Fact name="Priority">{row.priority}</Fact>
        <Fact name="Revision">{revisionText(row)}</Fact>
        <Fact name="Step">{row.step}</Fact>
        <Fact name="Created">
          <When time={row.created} />
        </Fact>
        <Fact name="Took">{row.started && <Took start={row.started} end={row.finished} />}</Fact>
        <Fact name="Ended">{row.finished && <When time={row.finished} />}</Fact>
      </Facts>
    </>
  );
}

const linkTo = (name: string | undefined, kind: Kind, namespace: string): ReactNode =>
  name && <ObjectLink of={{ kind, namespace, name }} />;

function Owner({ of }: { of: Detail }) {
  const { flow, job, namespace, kind } = of.row;
  const jobKind = kind === "pods" ? "vcjobs" : "jobs";
  return (
    <>
      {flow && <> / {linkTo(flow, "jobflows", namespace)}</>}
      {job && <> / {linkTo(job, jobKind, namespace)}</>}
    </>
  );
}

function Missing({ kind, namespace, name }: Name) {
  const { one, many } = kindNames[kind];
  return (
    <Empty title={`${one} ${name} not found in ${namespace}`} command={`k8s4r kubectl get ${kind} -n ${namespace}`}>
      It was deleted, or you may not see it. Show existing <Link to={`/${kind}`}>{many.toLowerCase()}</Link>, or{" "}
      <button type="button" onClick={() => navigate(`/history?kind=${kind}&q=${encodeURIComponent(name)}`)}>
        search the history
      </button>
    </Empty>
  );
}
