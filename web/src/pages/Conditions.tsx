import type { Condition } from "../api.ts";
import { When } from "../ui/basics.tsx";

export function Conditions({ of }: { of: Condition[] }) {
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label="Conditions">
      <table>
        <thead>
          <tr>
            <th>Condition</th>
            <th>Status</th>
            <th>Reason</th>
            <th>Message</th>
            <th>Since</th>
          </tr>
        </thead>
        <tbody>
          {of.map((condition) => (
            <tr key={condition.type}>
              <td>{condition.type}</td>
              <td>{condition.status}</td>
              <td>{condition.reason}</td>
              <td className="wrap">{condition.message}</td>
              <td>
                <When time={condition.time} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
