// The page's address is its state: object, tab and filters. Links, "back" and a reload follow from it.
import { useSyncExternalStore } from "react";
import { type Kind, kinds } from "../api.ts";

export type Route =
  | { page: "overview" }
  | { page: "history"; tab: string }
  | { page: "list"; kind: Kind }
  | { page: "object"; kind: Kind; namespace: string; name: string }
  | { page: "nowhere" };

export function routeOf(path: string): Route {
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  const [first, namespace, name] = parts;
  if (!first) return { page: "overview" };
  if (first === "history" && parts.length <= 2) return { page: "history", tab: namespace ?? "search" };
  const kind = kinds.find((k) => k === first);
  if (kind && parts.length === 1) return { page: "list", kind };
  if (kind && namespace && name && parts.length === 3) return { page: "object", kind, namespace, name };
  return { page: "nowhere" };
}

export function objectPath(row: { kind: string; namespace: string; name: string; uid?: string; archived?: boolean }) {
  const path = `/${row.kind}/${encodeURIComponent(row.namespace)}/${encodeURIComponent(row.name)}`;
  // A name can be reused: only the uid identifies an archived object.
  return row.archived && row.uid ? `${path}?uid=${row.uid}` : path;
}

const moved = new EventTarget();

export function navigate(to: string, how: "push" | "replace" = "push") {
  if (to === location.pathname + location.search) return;
  history[how === "push" ? "pushState" : "replaceState"](null, "", to);
  moved.dispatchEvent(new Event("moved"));
}

function subscribe(watch: () => void) {
  moved.addEventListener("moved", watch);
  addEventListener("popstate", watch);
  return () => {
    moved.removeEventListener("moved", watch);
    removeEventListener("popstate", watch);
  };
}

export const usePath = () => useSyncExternalStore(subscribe, () => location.pathname);

const useSearchText = () => useSyncExternalStore(subscribe, () => location.search);

/** withParams returns an address with some parameters changed. Empty ones are removed. */
export function withParams(path: string, search: string, change: Record<string, string | undefined>): string {
  const params = new URLSearchParams(search);
  for (const [key, value] of Object.entries(change)) value ? params.set(key, value) : params.delete(key);
  const text = params.toString();
  return text ? `${path}?${text}` : path;
}

/**
 * useParams returns the parameters of the address and a function to change them. Typing replaces the
 * history entry, a choice adds one.
 */
export function useParams(): [
  URLSearchParams,
  (change: Record<string, string | undefined>, how?: "push" | "replace") => void,
] {
  const text = useSearchText();
  return [
    new URLSearchParams(text),
    (change, how = "push") => navigate(withParams(location.pathname, location.search, change), how),
  ];
}
