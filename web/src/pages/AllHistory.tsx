import { useEffect, useState } from "react";
import { api, archivable, type HistoryQuery, type Kind, type Row } from "../api.ts";
import { useParams } from "../data/route.ts";
import { useLoad } from "../data/useLoad.ts";
import { kindNames } from "../kindNames.ts";
import { fromLocal } from "../time.ts";
import { Empty, ErrorNote, Loading, ObjectLink, State, Took, When } from "../ui/basics.tsx";
import { Between } from "./Between.tsx";
import { TextFilter } from "./TextFilter.tsx";

const pageSize = 100;
const most = 1000; // the server returns no more at once
const pause = 2000; // a reload reads the archive

const filters = ["kind", "state", "q", "robot", "template", "user", "since", "until", "ns"] as const;

/** historyQuery returns the filter in the address. */
export function historyQuery(params: URLSearchParams): HistoryQuery {
  const text = (name: (typeof filters)[number]) => params.get(name) || undefined;
  return {
    kind: archivable.find((kind) => kind === params.get("kind")) as HistoryQuery["kind"],
    namespace: text("ns"),
    state: text("state"),
    q: text("q"),
    robot: text("robot"),
    template: text("template"),
    user: text("user"),
    since: fromLocal(params.get("since")),
    until: fromLocal(params.get("until")),
  };
}

/** statesOf returns the states of a kind, or those of all kinds without repetition. */
export const statesOf = (kind?: Kind): string[] => [
  ...new Set((kind ? [kind] : archivable).flatMap((each) => kindNames[each].states)),
];

/** AllHistory lists everything that ran, live or gone, the last created first. */
export function AllHistory() {
  const [params, change] = useParams();
  const query = historyQuery(params);
  const key = `history ${JSON.stringify(query)}`;
  const [wanted, setWanted] = useState({ key, limit: pageSize });
  const limit = wanted.key === key ? wanted.limit : pageSize;
  const { data, error, reload } = useLoad(
    key,
    (signal) => api.history(query, limit, signal),
    (changed) => archivable.includes(changed.kind),
    pause,
  );
  // biome-ignore lint/correctness/useExhaustiveDependencies: the first page is loaded with the key
  useEffect(() => {
    if (limit > pageSize) reload();
  }, [limit]);
  const filtered = filters.some((name) => params.get(name));
  return (
    <>
      <Filters kind={query.kind} />
      <ErrorNote error={error} retry={reload} />
      {!data && !error && <Loading />}
      {data?.items.length === 0 && (
        <Empty
          title={filtered ? "Nothing matches" : "Nothing has run yet"}
          command={filtered ? undefined : kindNames.jobs.first}
        >
          {filtered ? (
            <button type="button" onClick={() => change(Object.fromEntries(filters.map((name) => [name, undefined])))}>
              Show all
            </button>
          ) : (
            "What runs is listed here, and stays when it is deleted."
          )}
        </Empty>
      )}
      {data && data.items.length > 0 && <HistoryTable rows={data.items} />}
      {data?.continue &&
        (limit < most ? (
          <button type="button" onClick={() => setWanted({ key, limit: Math.min(most, limit * 2 + pageSize) })}>
            Show older ones
          </button>
        ) : (
          <p>
            <small>Older ones are not shown: filter by name, template or time.</small>
          </p>
        ))}
    </>
  );
}

function Filters({ kind }: { kind?: Kind }) {
  const [params, change] = useParams();
  const choice = (name: "kind" | "state", label: string, all: string, values: readonly [string, string][]) => (
    <select
      aria-label={label}
      value={params.get(name) ?? ""}
      onChange={(event) => change({ [name]: event.target.value })}
    >
      <option value="">{all}</option>
      {values.map(([value, title]) => (
        <option key={value} value={value}>
          {title}
        </option>
      ))}
    </select>
  );
  return (
    <search className="filters">
      {choice(
        "kind",
        "Kind",
        "All kinds",
        archivable.map((each) => [each, kindNames[each].many]),
      )}
      {choice(
        "state",
        "State",
        "Any state",
        statesOf(kind).map((state) => [state, state]),
      )}
      <TextFilter name="q" label="Beginning of the name" />
      <TextFilter name="robot" label="Robot" />
      <TextFilter name="template" label="Template" />
      <TextFilter name="user" label="User" />
      <Between />
    </search>
  );
}

function HistoryTable({ rows }: { rows: readonly Row[] }) {
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label="History">
      <table>
        <thead>
          <tr>
            <th>Name</th>
            <th>Kind</th>
            <th>Namespace</th>
            <th>State</th>
            <th>User</th>
            <th>Robot</th>
            <th>Template</th>
            <th>Created</th>
            <th>Took</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.uid}>
              <td>
                <ObjectLink of={row} />
              </td>
              <td>{kindNames[row.kind].one}</td>
              <td>{row.namespace}</td>
              <td>
                <State severity={row.severity}>{row.state}</State>
                {row.archived && <small> deleted</small>}
              </td>
              <td>{row.user}</td>
              <td>{row.robot}</td>
              <td>{row.template}</td>
              <td>
                <When time={row.created} />
              </td>
              <td>
                <Took start={row.started} end={row.finished} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
