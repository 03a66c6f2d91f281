import { lazy, Suspense, useState } from "react";
import {
  type Action,
  api,
  type Detail,
  type RolloutUnit,
  type Row,
  type UnitCounts,
  type WaveDetails,
} from "../api.ts";
import { useParams } from "../data/route.ts";
import { useLoad } from "../data/useLoad.ts";
import { ErrorNote, Link, Loading, ObjectLink, State, Took, When } from "../ui/basics.tsx";
import {
  barParts,
  concernsUnits,
  countsText,
  unitStates,
  unitStateText,
  unitsText,
  waveNotes,
  waveStates,
} from "./rollout.ts";

const ActionDialog = lazy(() => import("../ui/ActionDialog.tsx"));

/** RolloutView shows the waves of a Rollout as bars, and its units, failed ones first. */
export default function RolloutView({ of, reload }: { of: Detail; reload: () => void }) {
  if (!of.rollout) return null;
  return (
    <div className="rollout scroll" tabIndex={0} role="group" aria-label="Waves and units">
      <ol aria-label="Waves">
        {of.rollout.waves.map((wave) => (
          <Wave key={wave.name} of={wave} row={of.row} reload={reload} />
        ))}
      </ol>
      <Legend />
      <Units of={of.row} waves={of.rollout.waves} />
    </div>
  );
}

function Wave({ of, row, reload }: { of: WaveDetails; row: Row; reload: () => void }) {
  const { text, severity } = waveStates[of.state];
  return (
    <li aria-label={`Wave ${of.name}`}>
      <div className="head">
        <h2>{of.name}</h2>
        <span className="chip">{of.includes}</span>
        <State severity={severity}>{text}</State>
        {waveNotes(of).map((note) => (
          <small key={note}>{note}</small>
        ))}
        <span className="space" />
        <WaveTimes of={of} />
        {of.canApprove && <Approve wave={of.name} row={row} done={reload} />}
      </div>
      <UnitBar of={of.counts} />
    </li>
  );
}

function WaveTimes({ of }: { of: WaveDetails }) {
  return (
    <>
      {of.waitingSince && of.state.startsWith("WaitsFor") && (
        <small>
          for <Took start={of.waitingSince} />
        </small>
      )}
      {of.started && (
        <small>
          began <When time={of.started} /> ago
        </small>
      )}
      {of.started && of.finished && (
        <small>
          took <Took start={of.started} end={of.finished} />
        </small>
      )}
    </>
  );
}

const approval: Action = { action: "approve", label: "Approve", destructive: false };

function Approve({ wave, row, done }: { wave: string; row: Row; done: () => void }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" aria-label={`Approve wave ${wave}`} onClick={() => setOpen(true)}>
        Approve
      </button>
      {open && (
        <Suspense>
          <ActionDialog
            action={approval}
            rows={[row]}
            wave={wave}
            close={(acted) => {
              setOpen(false);
              if (acted) done();
            }}
          />
        </Suspense>
      )}
    </>
  );
}

/** UnitBar shows the units of a wave by their state. It is empty before the wave has started. */
function UnitBar({ of }: { of?: UnitCounts }) {
  if (!of) return <span className="track" aria-hidden="true" />;
  const text = countsText(of);
  return (
    <>
      <span className="track" role="img" aria-label={text}>
        {of.total > 0 &&
          barParts.map(({ key }) => (
            <span key={key} className={`unit-${key}`} style={{ width: `${(100 * of[key]) / of.total}%` }} />
          ))}
      </span>
      <p>
        {unitsText(of.total)}: {text}
      </p>
    </>
  );
}

function Legend() {
  return (
    <ul className="legend" aria-label="Colors of the bars">
      {barParts.map(({ key, text, title }) => (
        <li key={key} title={title}>
          <i className={`unit-${key}`} aria-hidden="true" />
          {text}
        </li>
      ))}
    </ul>
  );
}

// The list of units is expensive for the server while many of them change.
const calm = 2000; // ms

function Units({ of, waves }: { of: Row; waves: WaveDetails[] }) {
  const [params] = useParams();
  const state = params.get("units") ?? "";
  const wave = params.get("wave") ?? "";
  const { namespace, name } = of;
  const { data, error, reload } = useLoad(
    `units ${namespace}/${name} ${state} ${wave}`,
    (signal) => api.units(namespace, name, { state, wave }, signal),
    (change) => concernsUnits(change, of),
    calm,
  );
  return (
    <section aria-labelledby="units">
      <h2 id="units">Units</h2>
      <UnitFilters state={state} wave={wave} waves={waves} />
      <ErrorNote error={error} retry={reload} />
      {!data && !error && <Loading />}
      {data && (
        <>
          <p className="quiet" role="status">
            {data.items.length < data.total
              ? `The first ${data.items.length} of ${unitsText(data.total)}: narrow them`
              : unitsText(data.total)}
            {!data.complete && ", only failures that the Rollout has recorded"}
          </p>
          {data.items.length > 0 && <UnitTable units={data.items} namespace={namespace} />}
        </>
      )}
    </section>
  );
}

function UnitFilters({ state, wave, waves }: { state: string; wave: string; waves: WaveDetails[] }) {
  const [, change] = useParams();
  const chosen = state.split(",").filter(Boolean);
  const toggle = (one: string) =>
    change({ units: (chosen.includes(one) ? chosen.filter((s) => s !== one) : [...chosen, one]).join(",") });
  return (
    <search className="filters" aria-label="Filters of units">
      {unitStates.map((one) => (
        <button
          key={one.state}
          type="button"
          className="chip"
          aria-pressed={chosen.includes(one.state)}
          onClick={() => toggle(one.state)}
        >
          {one.text}
        </button>
      ))}
      <label>
        <span className="hidden">Wave</span>
        <select value={wave} onChange={(event) => change({ wave: event.target.value })}>
          <option value="">all waves</option>
          {waves.map(({ name }) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
    </search>
  );
}

function UnitTable({ units, namespace }: { units: RolloutUnit[]; namespace: string }) {
  return (
    <table>
      <thead>
        <tr>
          <th>Unit</th>
          <th>State</th>
          <th>Wave</th>
          <th>Robot</th>
          <th>Task</th>
          <th>Reason</th>
        </tr>
      </thead>
      <tbody>
        {units.map((unit) => (
          <tr key={unit.unit}>
            <td>{unit.unit}</td>
            <td>
              <State severity={unit.severity}>{unitStateText(unit.state)}</State>
            </td>
            <td>{unit.wave}</td>
            <td>
              {unit.robot && unit.robotNamespace && (
                <ObjectLink of={{ kind: "robots", namespace: unit.robotNamespace, name: unit.robot }} />
              )}
            </td>
            <td>{unit.task && <TaskLinks namespace={namespace} task={unit.task} />}</td>
            <td className="wrap">{[unit.reason, unit.message].filter(Boolean).join(": ")}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function TaskLinks({ namespace, task }: { namespace: string; task: string }) {
  return (
    <>
      <ObjectLink of={{ kind: "tasks", namespace, name: task }} />{" "}
      <Link
        to={`/tasks/${encodeURIComponent(namespace)}/${encodeURIComponent(task)}?tab=log`}
        aria-label={`Log of ${task}`}
      >
        log
      </Link>
    </>
  );
}
