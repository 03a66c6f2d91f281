import { api } from "../api.ts";
import { useLoad } from "../data/useLoad.ts";
import { ErrorNote, Loading, When } from "../ui/basics.tsx";

/** Transitions lists the states that one object has been in. */
export function Transitions({ uid }: { uid: string }) {
  const { data, error, reload } = useLoad(
    `transitions ${uid}`,
    (signal) => api.transitions(uid, signal),
    (change) => change.uid === uid,
  );
  if (!data) return error ? <ErrorNote error={error} retry={reload} /> : <Loading />;
  if (data.items.length === 0) return <p className="quiet">The archive has no state transitions of it yet.</p>;
  return (
    <ol className="transitions">
      {data.items.map((item) => (
        <li key={`${item.at} ${item.to}`}>
          <When time={item.at} /> <span>{item.from || "new"}</span> → <strong>{item.to}</strong>{" "}
          <small>{item.reason}</small>
        </li>
      ))}
    </ol>
  );
}
