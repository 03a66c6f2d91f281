import { useMemo } from "react";
import { toYaml } from "../yaml.ts";

export function Manifest({ of }: { of: unknown }) {
  const text = useMemo(() => toYaml(of), [of]);
  return (
    <div className="manifest">
      <button type="button" onClick={() => navigator.clipboard?.writeText(text)}>
        Copy
      </button>
      <pre tabIndex={0} role="region" aria-label="Manifest as YAML">
        {text}
      </pre>
    </div>
  );
}
