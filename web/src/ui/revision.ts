import type { Row } from "../api.ts";

/** revisionText returns the revision of a job, or what a Rollout changes, such as 3 → 5. */
export function revisionText({ revision, fromRevision }: Pick<Row, "revision" | "fromRevision">): string {
  if (!revision) return "";
  return fromRevision ? `${fromRevision} → ${revision}` : String(revision);
}
