// The actions on the selected objects, and the dialog that shows their effect before they are applied.
import { lazy, Suspense, useState } from "react";
import type { Action, Kind, Row, Verb } from "../api.ts";

const ActionDialog = lazy(() => import("./ActionDialog.tsx"));

const work: Verb[] = ["pause", "resume", "cancel", "requeue"];
const verbs: Record<Kind, Verb[]> = {
  jobs: [...work, "priority", "delete"],
  rollouts: ["pause", "resume", "abort", "revert", "delete"],
  taskgroups: [],
  tasks: ["requeue"],
  robots: ["cordon", "uncordon", "drain"],
  jobflows: [...work, "delete"],
  cronjobflows: ["pause", "resume", "delete"],
  vcjobs: ["pause", "resume", "cancel", "delete"],
  rayclusters: ["pause", "resume", "delete"],
  pods: ["delete"],
};
const dangerous: Verb[] = ["cancel", "drain", "abort", "revert", "delete"];
const title = (verb: Verb) => verb[0]?.toUpperCase() + verb.slice(1);

export function actionsOf(kind: Kind): Action[] {
  return verbs[kind].map((action) => ({ action, label: title(action), destructive: dangerous.includes(action) }));
}

export function ActionBar({ rows, actions, done }: { rows: Row[]; actions: Action[]; done?: () => void }) {
  const [open, setOpen] = useState<Action>();
  const live = rows.filter((row) => !row.archived);
  return (
    <>
      {actions.map((action) => (
        <button
          key={action.action}
          type="button"
          className={action.destructive ? "danger" : undefined}
          disabled={live.length === 0}
          onClick={() => setOpen(action)}
        >
          {action.label}
        </button>
      ))}
      {open && (
        <Suspense>
          <ActionDialog
            action={open}
            rows={live}
            close={(acted) => {
              setOpen(undefined);
              if (acted) done?.();
            }}
          />
        </Suspense>
      )}
    </>
  );
}
