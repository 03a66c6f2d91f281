import type { Row } from "../api.ts";
import { share } from "../quantity.ts";

/** Resources shows a robot's capacity and how much of it tasks use. */
export function Resources({ of }: { of: Row }) {
  const names = [...new Set([...Object.keys(of.capacity ?? {}), ...Object.keys(of.used ?? {})])];
  if (names.length === 0) return <p className="quiet">The robot has not reported its resources.</p>;
  return (
    <table className="resources">
      <thead>
        <tr>
          <th>Resource</th>
          <th>Used by tasks</th>
          <th>Of</th>
          <th>Share</th>
        </tr>
      </thead>
      <tbody>
        {names.map((name) => {
          const part = share(of.used?.[name], of.capacity?.[name]);
          return (
            <tr key={name}>
              <td>{name}</td>
              <td>{of.used?.[name] ?? "0"}</td>
              <td>{of.capacity?.[name] ?? "not bounded"}</td>
              <td>
                {part !== undefined && (
                  <meter value={part} max={1} high={0.9} aria-label={`${name}: ${Math.round(part * 100)} %`}>
                    {Math.round(part * 100)} %
                  </meter>
                )}
              </td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}
