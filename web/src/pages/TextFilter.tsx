import { useParams } from "../data/route.ts";

/** TextFilter is a field for a parameter of the address. It applies when the user leaves it or presses Enter. */
export function TextFilter({ name, label }: { name: string; label: string }) {
  const [params, change] = useParams();
  return (
    <input
      type="search"
      aria-label={label}
      placeholder={label}
      defaultValue={params.get(name) ?? ""}
      key={`${name} ${params.get(name)}`}
      onBlur={(event) => change({ [name]: event.target.value }, "replace")}
      onKeyDown={(event) => event.key === "Enter" && change({ [name]: event.currentTarget.value })}
    />
  );
}
