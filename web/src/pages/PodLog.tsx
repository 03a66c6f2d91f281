import { lazy } from "react";
import type { Detail } from "../api.ts";
import { useParams } from "../data/route.ts";

const LogView = lazy(() => import("../logs/LogView.tsx"));

type PodSpec = { spec?: { initContainers?: { name: string }[]; containers?: { name: string }[] } };

export function ContainerLog({ of }: { of: Detail }) {
  const [params, change] = useParams();
  const { spec } = of.object as PodSpec;
  const names = [...(spec?.containers ?? []), ...(spec?.initContainers ?? [])].map((c) => c.name);
  const container = params.get("container") ?? names[0];
  return (
    <LogView of={{ kind: "pods", namespace: of.row.namespace, name: of.row.name, container }} live={!of.archived}>
      {names.length > 1 && (
        <label>
          Container{" "}
          <select value={container} onChange={(event) => change({ container: event.target.value })}>
            {names.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
      )}
    </LogView>
  );
}
