import { useParams } from "../data/route.ts";

/** Between is a range of time, kept in the address; an end that is left out is open. */
export function Between() {
  const [params, change] = useParams();
  const input = (name: "since" | "until", label: string) => (
    <label>
      {label}{" "}
      <input
        type="datetime-local"
        value={params.get(name) ?? ""}
        onChange={(event) => change({ [name]: event.target.value }, "replace")}
      />
    </label>
  );
  return (
    <div className="filters">
      {input("since", "From")}
      {input("until", "To")}
    </div>
  );
}
