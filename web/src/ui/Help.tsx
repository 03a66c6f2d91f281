import { Dialog } from "./Dialog.tsx";

const keys: [string, string][] = [
  ["/", "search"],
  ["j, k", "down, up in a table"],
  ["x", "select the row; with the mouse: Ctrl adds a row, Shift a range"],
  ["Enter", "open the row"],
  ["g then o, j, t, f, r", "go to overview, jobs, tasks, flows, robots"],
  ["Esc", "close, or clear the selection"],
  ["?", "show this help"],
];

export default function Help({ close }: { close: () => void }) {
  return (
    <Dialog title="Keys" close={close}>
      <dl className="keys">
        {keys.map(([key, does]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
      <div className="buttons">
        <button type="button" className="primary" onClick={close}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
