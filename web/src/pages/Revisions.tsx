import { api } from "../api.ts";
import { useLoad } from "../data/useLoad.ts";
import { ErrorNote, Loading, When } from "../ui/basics.tsx";
import { revisionUse } from "./rollout.ts";

/** Revisions lists what the tasks of a job ran, or run, the newest first. */
export function Revisions({ namespace, name }: { namespace: string; name: string }) {
  const { data, error, reload } = useLoad(
    `revisions ${namespace}/${name}`,
    (signal) => api.revisions(namespace, name, signal),
    (c) => c.kind === "jobs" && c.namespace === namespace && c.name === name,
  );
  if (!data) return error ? <ErrorNote error={error} retry={reload} /> : <Loading />;
  if (data.items.length === 0) return <p className="quiet">No revisions yet.</p>;
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label="Revisions">
      <table>
        <thead>
          <tr>
            <th>Revision</th>
            <th>Used by</th>
            <th>Age</th>
            <th>Cause of the change</th>
          </tr>
        </thead>
        <tbody>
          {data.items.map((one) => (
            <tr key={one.revision}>
              <td>{one.revision}</td>
              <td>{revisionUse(one)}</td>
              <td>
                <When time={one.created} />
              </td>
              <td className="wrap">{one.changeCause}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
