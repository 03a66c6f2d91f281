import { useEffect, useMemo, useState } from "react";
import { type Action, type ActionResult, type ApiError, api, type Row, type Target } from "../api.ts";
import { kindNames } from "../kindNames.ts";
import { ErrorNote, Loading } from "./basics.tsx";
import { Dialog } from "./Dialog.tsx";

type Plan = { results?: ActionResult[]; error?: ApiError };

const defaultPriority = 50;

// A task group has no actions of its own; users act on its job.
const targetOf = ({ kind, namespace, name, uid }: Row): Target[] =>
  kind === "taskgroups" ? [] : [{ kind, namespace, name, uid }];

/**
 * ActionDialog shows the server's description of the effect on each object before an action, and the
 * results afterwards.
 */
export default function ActionDialog(props: {
  action: Action;
  rows: Row[];
  /** The wave that the action approve approves. */
  wave?: string;
  close: (acted: boolean) => void;
}) {
  const { action, rows, wave, close } = props;
  const [priority, setPriority] = useState(rows[0]?.priority ?? defaultPriority);
  const [plan, setPlan] = useState<Plan>({});
  const [done, setDone] = useState<ActionResult[]>();
  const [busy, setBusy] = useState(false);
  // The objects that were selected when the dialog opened: events must not change what the user confirms.
  const items = useState(() => rows.flatMap(targetOf))[0];
  const body = useMemo(
    () => ({ action: action.action, items, wave, priority: action.action === "priority" ? priority : undefined }),
    [action, items, wave, priority],
  );

  useEffect(() => {
    let current = true;
    setPlan({});
    api.act({ ...body, dryRun: true }).then(
      ({ results }) => current && setPlan({ results }),
      (error) => current && setPlan({ error }),
    );
    return () => {
      current = false;
    };
  }, [body]);

  const act = () => {
    setBusy(true);
    api
      .act(body)
      .then(
        ({ results }) => setDone(results),
        (error) => setPlan({ ...plan, error }),
      )
      .finally(() => setBusy(false));
  };
  const able = plan.results?.filter((result) => result.ok).length ?? 0;
  const kind = kindNames[rows[0]?.kind ?? "jobs"];
  const one = wave ? `wave ${wave}` : kind.one.toLowerCase();
  const count = items.length === 1 ? one : `${items.length} ${kind.many.toLowerCase()}`;
  return (
    <Dialog
      title={done ? `${action.label}: done` : `${action.label} ${count}?`}
      close={() => close(done !== undefined)}
    >
      {action.action === "priority" && !done && (
        <label className="field">
          Priority, 0 to 100
          <input
            type="number"
            min={0}
            max={100}
            value={priority}
            onChange={(event) => setPriority(Number(event.target.value))}
          />
        </label>
      )}
      <ErrorNote error={plan.error} />
      {plan.results ? <Results of={done ?? plan.results} /> : !plan.error && <Loading />}
      <div className="buttons">
        <button type="button" onClick={() => close(done !== undefined)}>
          {done ? "Close" : "Do not change"}
        </button>
        {!done && (
          <button
            type="button"
            className={action.destructive ? "primary danger" : "primary"}
            disabled={busy || !able}
            onClick={act}
          >
            {able === items.length ? action.label : `${action.label} ${able} of ${items.length}`}
          </button>
        )}
      </div>
    </Dialog>
  );
}

function Results({ of }: { of: ActionResult[] }) {
  return (
    <ul className="results" tabIndex={0} aria-label="What happens to each">
      {of.map((result) => (
        <li key={`${result.kind}/${result.namespace}/${result.name}`} className={result.ok ? undefined : "refused"}>
          <strong>{result.name}</strong> <span>{result.message}</span>
        </li>
      ))}
    </ul>
  );
}
