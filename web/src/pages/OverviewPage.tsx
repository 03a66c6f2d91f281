import { api, type Kind, type Overview, type Row } from "../api.ts";
import { useParams } from "../data/route.ts";
import { useLoad } from "../data/useLoad.ts";
import { kindNames } from "../kindNames.ts";
import {
  Command,
  ErrorNote,
  Link,
  Loading,
  ObjectLink,
  ProgressBar,
  SeverityBar,
  State,
  useTitle,
  When,
} from "../ui/basics.tsx";

const tiles: Kind[] = ["robots", "jobs", "tasks", "jobflows", "vcjobs", "rayclusters"];
// There are always changes, and counting everything is expensive for the server.
const calm = 2000; // ms

const sum = (counts: Record<string, number> = {}) => Object.values(counts).reduce((a, b) => a + b, 0);

export function OverviewPage() {
  useTitle("Overview");
  const [params] = useParams();
  const namespace = params.get("ns") ?? "";
  const { data, error, reload } = useLoad(
    `overview ${namespace}`,
    (signal) => api.overview(namespace, signal),
    (change) => !namespace || change.namespace === namespace,
    calm,
  );
  if (!data) return error ? <ErrorNote error={error} retry={reload} /> : <Loading />;
  const tail = namespace ? `&ns=${encodeURIComponent(namespace)}` : "";
  return (
    <div className="page">
      <h1>Overview</h1>
      <ErrorNote error={error} retry={reload} />
      <div className="tiles">
        {tiles.map((kind) => (
          <Tile key={kind} kind={kind} of={data} tail={tail} />
        ))}
      </div>
      {sum(data.counts.robots) === 0 && (
        <p className="note">
          No robot has joined yet. This prints the command to run on a robot:{" "}
          <Command>{kindNames.robots.first}</Command>
        </p>
      )}
      <div className="columns">
        <section aria-labelledby="running">
          <h2 id="running">Running</h2>
          <Short rows={data.running} none="Nothing is running. Start a job:" command={kindNames.jobs.first} />
        </section>
        <section aria-labelledby="failed">
          <h2 id="failed">Recent failures</h2>
          <Short rows={data.failed} none="No failures." />
        </section>
      </div>
    </div>
  );
}

function Tile({ kind, of, tail }: { kind: Kind; of: Overview; tail: string }) {
  const counts = Object.entries(kind === "robots" ? of.robots : (of.counts[kind] ?? {})).filter(([, n]) => n > 0);
  return (
    <section className="tile" aria-label={kindNames[kind].many}>
      <Link to={`/${kind}?${tail.slice(1)}`} className="big">
        <strong>{sum(of.counts[kind]).toLocaleString()}</strong> {kindNames[kind].many}
      </Link>
      <SeverityBar of={of.severities[kind] ?? {}} />
      <ul>
        {counts.map(([state, n]) => (
          <li key={state}>
            <Link to={`/${kind}?state=${encodeURIComponent(state)}${tail}`}>
              {n.toLocaleString()} {state}
            </Link>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Short({ rows, none, command }: { rows: Row[]; none: string; command?: string }) {
  if (rows.length === 0) {
    return (
      <p className="quiet">
        {none} {command && <Command>{command}</Command>}
      </p>
    );
  }
  return (
    <table className="short">
      <thead className="hidden">
        <tr>
          <th>Name</th>
          <th>State</th>
          <th>Progress or reason</th>
          <th>Since</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={row.uid}>
            <td>
              <small>{kindNames[row.kind].one}</small> <ObjectLink of={row} />
            </td>
            <td>
              <State severity={row.severity}>{row.state}</State>
            </td>
            <td>
              {row.severity === "bad" ? (
                <span title={row.message}>{row.reason}</span>
              ) : (
                <ProgressBar of={row.progress} />
              )}
            </td>
            <td>
              <When time={row.finished ?? row.started ?? row.created} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
