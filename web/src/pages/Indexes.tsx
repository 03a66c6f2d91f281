import type { TaskIndexes } from "../api.ts";
import { Fact, Facts, ObjectLink } from "../ui/basics.tsx";
import { histogram } from "./indexes.ts";

/** Indexes shows what has become of the indexes of a range. */
export function Indexes({ of, namespace }: { of: TaskIndexes; namespace: string }) {
  return (
    <div className="indexes">
      <Facts>
        <Fact name="Indexes">{of.indexes}</Fact>
        <Fact name="Succeeded">{of.succeeded}</Fact>
        <Fact name="Failed">{of.failed}</Fact>
        <Fact name="Left">{of.left}</Fact>
      </Facts>
      <Failures of={of} namespace={namespace} />
      <Histogram of={of.durations} />
    </div>
  );
}

function Failures({ of, namespace }: { of: TaskIndexes; namespace: string }) {
  const failures = of.failures ?? [];
  if (failures.length === 0) return null;
  return (
    <section aria-label="Failed indexes">
      <h2>Failed indexes</h2>
      <table>
        <thead>
          <tr>
            <th>Index</th>
            <th>Task</th>
            <th>Robot</th>
            <th>Reason</th>
            <th>Result</th>
          </tr>
        </thead>
        <tbody>
          {failures.map((failure) => (
            <tr key={failure.index}>
              <td>{failure.index}</td>
              <td>
                <ObjectLink of={{ kind: "tasks", namespace, name: failure.task }} />
              </td>
              <td>{failure.robot}</td>
              <td>{failure.reason}</td>
              <td>{failure.signal ? `signal ${failure.signal}` : `exit ${failure.exitCode ?? "unknown"}`}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {of.failed > failures.length && <p className="quiet">All failed indexes: {of.failedIndexes}</p>}
    </section>
  );
}

function Histogram({ of }: { of?: number[] }) {
  const bins = histogram(of);
  const most = Math.max(...bins.map((bin) => bin.count));
  if (bins.length === 0) return null;
  return (
    <section aria-label="How long indexes took">
      <h2>How long indexes took</h2>
      <table className="histogram">
        <tbody>
          {bins.map((bin) => (
            <tr key={bin.below}>
              <th scope="row">{bin.below}</th>
              <td>
                <span className="bar" style={{ width: `${(100 * bin.count) / most}%` }} /> {bin.count}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
