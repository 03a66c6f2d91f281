import { useParams } from "../data/route.ts";

/** Between selects a range of time, stored in the address. A missing end is open. */
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
