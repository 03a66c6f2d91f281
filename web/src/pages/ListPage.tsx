import { useEffect, useMemo, useRef } from "react";
import { archivable, type Kind, type Query } from "../api.ts";
import { useParams, withParams } from "../data/route.ts";
import { useList } from "../data/useList.ts";
import { kindNames } from "../kindNames.ts";
import { useSession } from "../session.tsx";
import { ActionBar, actionsOf } from "../ui/ActionBar.tsx";
import { Empty, ErrorNote, Link, Loading, useTitle } from "../ui/basics.tsx";
import { columnsOf } from "../ui/columns.tsx";
import { RowTable } from "../ui/RowTable.tsx";
import { useSelection } from "../ui/selection.ts";
import { byState, Fleet } from "./Fleet.tsx";

/** filters are the parameters of the address that filter a list, with the names of the API. */
const filters = ["state", "severity", "q", "job", "flow", "group", "robot", "template", "label", "scope"] as const;

export function queryOf(params: URLSearchParams): Query {
  const query: Record<string, string> = {};
  for (const name of filters) {
    const value = params.get(name);
    const half = name === "label" && !value?.includes("="); // the user is still typing it
    if (value && !half) query[name] = value;
  }
  const namespace = params.get("ns");
  return namespace ? { ...query, namespace } : query;
}

export function ListPage({ kind }: { kind: Kind }) {
  const [params] = useParams();
  const grid = kind === "robots" && params.get("view") !== "table";
  useTitle(kindNames[kind].many);
  return (
    <div className="page full">
      <div className="title">
        <h1>{kindNames[kind].many}</h1>
        {kind === "robots" && (
          <nav aria-label="View">
            <Link
              to={withParams("/robots", location.search, { view: undefined })}
              aria-current={grid ? "page" : undefined}
            >
              Grid
            </Link>
            <Link
              to={withParams("/robots", location.search, { view: "table" })}
              aria-current={grid ? undefined : "page"}
            >
              Table
            </Link>
          </nav>
        )}
      </div>
      <Filters kind={kind} />
      <Listed kind={kind} fixed={{}} grid={grid} />
    </div>
  );
}

/** Listed is a list with its toolbar. On an object's page, fixed is the filter for this object. */
export function Listed(props: { kind: Kind; fixed: Query; without?: string[]; grid?: boolean }) {
  const { kind, fixed, without, grid } = props;
  const [params, change] = useParams();
  const sort = params.get("sort") ?? (kind === "robots" || kind === "taskgroups" ? "name" : "-created");
  const list = useList(kind, { ...queryOf(params), ...fixed }, sort);
  const rows = useMemo(() => (grid ? byState(list.rows) : list.rows), [grid, list.rows]);
  const select = useSelection(rows);
  const { chosen } = select.selection;
  const hidden = without?.join();
  const columns = useMemo(() => columnsOf(kind, hidden?.split(",")), [kind, hidden]);
  const what = kindNames[kind].many.toLowerCase();
  const filtered = filters.some((name) => params.has(name)) || params.has("ns");
  return (
    <>
      <div className="toolbar" role="toolbar" aria-label="Actions on what is selected">
        <output>
          {chosen.size > 0 ? `${chosen.size} of ${list.total.toLocaleString()}` : list.total.toLocaleString()} {what}
          {list.cut ? ", the first of more: narrow them" : ""}
          {list.loading && list.rows.length < list.total ? `, ${list.rows.length.toLocaleString()} loaded` : ""}
        </output>
        {chosen.size > 0 && (
          <>
            <ActionBar rows={select.chosenRows} actions={actionsOf(kind)} done={select.clear} />
            <button type="button" onClick={select.clear}>
              Select nothing
            </button>
          </>
        )}
      </div>
      <ErrorNote error={list.error} retry={list.reload} />
      {list.rows.length === 0 && list.loading && <Loading />}
      {list.rows.length === 0 && !list.loading && !list.error && <NoRows kind={kind} filtered={filtered} />}
      {list.rows.length > 0 &&
        (grid ? (
          <Fleet rows={rows} chosen={chosen} choose={select.choose} />
        ) : (
          <RowTable
            label={kindNames[kind].many}
            listKey={list.key}
            rows={rows}
            total={list.total}
            columns={columns}
            sort={sort}
            onSort={(to) => change({ sort: to })}
            select={select}
          />
        ))}
    </>
  );
}

function NoRows({ kind, filtered }: { kind: Kind; filtered: boolean }) {
  const [, change] = useParams();
  const { many, does, first } = kindNames[kind];
  if (!filtered) {
    return (
      <Empty title={`No ${many.toLowerCase()} yet`} command={first}>
        {does}
      </Empty>
    );
  }
  return (
    <Empty title={`No ${many.toLowerCase()} match`}>
      <button
        type="button"
        onClick={() => change(Object.fromEntries([...filters, "ns"].map((name) => [name, undefined])))}
      >
        Show all
      </button>
    </Empty>
  );
}

const chips = ["job", "flow", "group", "robot", "template", "severity"] as const;

function Filters({ kind }: { kind: Kind }) {
  const [params, change] = useParams();
  const { archive } = useSession();
  const states = (params.get("state") ?? "").split(",").filter(Boolean);
  const toggle = (state: string) => {
    const now = states.includes(state) ? states.filter((s) => s !== state) : [...states, state];
    change({ state: now.join(",") });
  };
  return (
    <search className="filters" aria-label="Filters">
      <Typed name="q" label="Search" kind={kind} />
      <Typed name="label" label="Label, as key=value" kind={kind} />
      {archive && archivable.includes(kind) && (
        <label>
          <span className="hidden">Live or archived</span>
          <select value={params.get("scope") ?? ""} onChange={(event) => change({ scope: event.target.value })}>
            <option value="">live</option>
            <option value="archived">archived</option>
            <option value="all">live and archived</option>
          </select>
        </label>
      )}
      <fieldset>
        <legend className="hidden">State</legend>
        {kindNames[kind].states.map((state) => (
          <button
            key={state}
            type="button"
            className="chip"
            aria-pressed={states.includes(state)}
            onClick={() => toggle(state)}
          >
            {state}
          </button>
        ))}
      </fieldset>
      {chips
        .filter((name) => params.get(name))
        .map((name) => (
          <button
            key={name}
            type="button"
            className="chip"
            aria-pressed="true"
            onClick={() => change({ [name]: undefined })}
          >
            {name}: {params.get(name)} ×
          </button>
        ))}
    </search>
  );
}

const typingPause = 250;

function Typed({ name, label, kind }: { name: "q" | "label"; label: string; kind: Kind }) {
  const [params, change] = useParams();
  const input = useRef<HTMLInputElement>(null);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const value = params.get(name) ?? "";
  // "Back" changes the address without an input event.
  useEffect(() => {
    if (input.current && document.activeElement !== input.current) input.current.value = value;
  }, [value]);
  return (
    <input
      ref={input}
      type={name === "q" ? "search" : "text"}
      defaultValue={value}
      placeholder={name === "q" ? `Search ${kindNames[kind].many.toLowerCase()}` : "label=value"}
      aria-label={label}
      onKeyDown={(event) => event.key === "Escape" && event.currentTarget.blur()}
      onChange={(event) => {
        const typed = event.currentTarget.value;
        clearTimeout(timer.current);
        timer.current = setTimeout(() => change({ [name]: typed }, "replace"), typingPause);
      }}
    />
  );
}
