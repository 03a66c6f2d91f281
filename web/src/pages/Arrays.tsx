import type { ArraySummary } from "../api.ts";
import { navigate, objectPath } from "../data/route.ts";
import { Link, ProgressBar } from "../ui/basics.tsx";
import { parseIndex } from "./indexes.ts";

/** Arrays shows a row of counts for each array of a job or group, with a field that opens one index. */
export function Arrays({ of, namespace }: { of: ArraySummary[]; namespace: string }) {
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label="Arrays">
      <table>
        <thead>
          <tr>
            <th>Array</th>
            <th>Indexes</th>
            <th>Done</th>
            <th>Running</th>
            <th>Failed</th>
            <th>Ranges</th>
            <th>Open</th>
          </tr>
        </thead>
        <tbody>
          {of.map((one) => (
            <tr key={one.taskGroup}>
              <td>
                <Link to={objectPath({ kind: "taskgroups", namespace, name: one.taskGroup })}>{one.group}</Link>
              </td>
              <td>{one.indexes}</td>
              <td>
                <ProgressBar of={one.progress} />
              </td>
              <td>{one.progress.running}</td>
              <td>{one.progress.failed}</td>
              <td>{rangesText(one.ranges)}</td>
              <td>
                <OpenIndex of={one} namespace={namespace} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const rangesText = (ranges: Record<string, number>) =>
  Object.entries(ranges)
    .map(([state, count]) => `${count} ${state}`)
    .join(", ");

function OpenIndex({ of, namespace }: { of: ArraySummary; namespace: string }) {
  return (
    <input
      type="search"
      inputMode="numeric"
      size={8}
      placeholder="Index"
      aria-label={`Index of ${of.group}; Enter opens it`}
      onKeyDown={(event) => {
        const index = parseIndex(event.currentTarget.value);
        if (event.key !== "Enter" || index === undefined) return;
        navigate(objectPath({ kind: "tasks", namespace, name: `${of.taskGroup}-index-${index}-${of.task}` }));
      }}
    />
  );
}
