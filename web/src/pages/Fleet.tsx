// All robots at a glance, by state.
import { memo } from "react";
import type { Row } from "../api.ts";
import { navigate, objectPath } from "../data/route.ts";
import { State } from "../ui/basics.tsx";
import type { How } from "../ui/selection.ts";

type Props = { rows: readonly Row[]; chosen: ReadonlySet<string>; choose: (uid: string, how: How) => void };

// Robots that need attention come first.
const order = ["offline", "unknown", "pending", "online"];
const rank = (state: string) => order.indexOf(state.toLowerCase());

/**
 * byState sorts robots in the order in which Fleet shows them, so that a selected range matches what is
 * visible.
 */
export const byState = (rows: readonly Row[]): Row[] => rows.toSorted((a, b) => rank(a.state) - rank(b.state));

export function Fleet({ rows, chosen, choose }: Props) {
  const groups = Map.groupBy(rows, (row) => row.state);
  return (
    <div className="fleet">
      {[...groups].map(([state, robots]) => (
        <section key={state} aria-label={state}>
          <h2>
            <State severity={robots[0]?.severity ?? "waiting"}>{state}</State> {robots.length.toLocaleString()}
          </h2>
          <ul>
            {robots.map((row) => (
              <Robot key={row.uid} row={row} chosen={chosen.has(row.uid)} choose={choose} />
            ))}
          </ul>
        </section>
      ))}
    </div>
  );
}

function robotTitle(row: Row): string {
  const tasks = row.runningTasks === 1 ? "1 task" : `${row.runningTasks ?? 0} tasks`;
  return [row.name, row.state, tasks, row.cordoned && "cordoned", row.reason].filter(Boolean).join(", ");
}

const Robot = memo(({ row, chosen, choose }: { row: Row; chosen: boolean; choose: Props["choose"] }) => (
  <li>
    <a
      href={objectPath(row)}
      className={`robot severity-${row.severity}${chosen ? " chosen" : ""}${row.cordoned ? " cordoned" : ""}`}
      title={robotTitle(row)}
      onClick={(event) => {
        event.preventDefault();
        if (event.shiftKey || event.ctrlKey || event.metaKey) choose(row.uid, event.shiftKey ? "range" : "toggle");
        else navigate(objectPath(row));
      }}
    >
      <span>{row.name}</span>
      <b>{row.runningTasks || ""}</b>
    </a>
  </li>
));
