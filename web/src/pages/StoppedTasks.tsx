import type { StoppedTask } from "../api.ts";
import { ObjectLink, When } from "../ui/basics.tsx";

/** StoppedTasks lists the tasks that people at a robot have stopped there. */
export function StoppedTasks({ of }: { of: StoppedTask[] }) {
  return (
    <>
      <p className="quiet">
        These tasks do not run on this robot until <code>k8s4r-agent restart</code> there. Other robots may run them.
      </p>
      <div className="scroll" tabIndex={0} role="group" aria-label="Tasks stopped at the robot">
        <table>
          <thead>
            <tr>
              <th>Task</th>
              <th>Namespace</th>
              <th>By</th>
              <th>Since</th>
            </tr>
          </thead>
          <tbody>
            {of.map((task) => (
              <tr key={task.uid}>
                <td>{linkOf(task)}</td>
                <td>{task.namespace}</td>
                <td>{task.by}</td>
                <td>
                  <When time={task.since} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

const linkOf = ({ uid, namespace, name }: StoppedTask) =>
  namespace && name ? <ObjectLink of={{ kind: "tasks", namespace, name }} /> : uid;
