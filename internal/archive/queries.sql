-- name: Seen :one
SELECT version, phase FROM objects WHERE uid = $1;

-- name: PutObject :execrows
-- An older version never overwrites a newer one: two managers may overlap for a moment. The template stays
-- as it was first: a task whose job is gone does not know it any more. So does the UID of the namespace.
INSERT INTO objects (uid, kind, namespace, name, version, owner_uid, template, step, robot, phase, reason, outcome,
    created_at, started_at, finished_at, ended_at, bytes, manifest, namespace_uid)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
ON CONFLICT (uid) DO UPDATE SET
    namespace_uid = CASE WHEN objects.namespace_uid = '' THEN excluded.namespace_uid ELSE objects.namespace_uid END,
    version = excluded.version, owner_uid = excluded.owner_uid,
    robot = excluded.robot, phase = excluded.phase, reason = excluded.reason, outcome = excluded.outcome,
    started_at = excluded.started_at, finished_at = excluded.finished_at,
    ended_at = coalesce(excluded.ended_at, objects.deleted_at), bytes = excluded.bytes, manifest = excluded.manifest
WHERE objects.version < excluded.version;

-- name: MarkDeleted :exec
UPDATE objects SET deleted_at = coalesce(deleted_at, $2), ended_at = coalesce(ended_at, $2) WHERE uid = $1;

-- name: ClearLabels :exec
DELETE FROM labels WHERE uid = $1;

-- name: PutLabel :exec
INSERT INTO labels (uid, name, value) VALUES ($1, $2, $3);

-- name: PutAttempt :exec
-- The number of an attempt is never reused, so each attempt has one row.
INSERT INTO attempts (task_uid, attempt, namespace, task, job, template, step, robot, state, reason, failed, exit_code, signal, started_at, finished_at, log, namespace_uid, run_count)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
ON CONFLICT (task_uid, attempt) DO UPDATE SET
    namespace_uid = CASE WHEN attempts.namespace_uid = '' THEN excluded.namespace_uid ELSE attempts.namespace_uid END,
    robot = excluded.robot, state = excluded.state, reason = excluded.reason, failed = excluded.failed, exit_code = excluded.exit_code,
    signal = excluded.signal, started_at = excluded.started_at, finished_at = excluded.finished_at, run_count = excluded.run_count;

-- name: PutTransition :exec
INSERT INTO transitions (uid, version, at, from_phase, to_phase, reason) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (uid, version) DO NOTHING;

-- name: AttemptsOf :many
SELECT * FROM attempts WHERE task_uid = $1 ORDER BY attempt;

-- name: TransitionsOf :many
-- By version: some times are a robot's, whose clock may be wrong.
SELECT * FROM transitions WHERE uid = $1 ORDER BY version;

-- name: LabelsOf :many
SELECT name, value FROM labels WHERE uid = $1 ORDER BY name;

-- name: Size :one
SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT) AS bytes FROM objects;

-- name: Oldest :many
SELECT uid, ended_at, bytes FROM objects WHERE ended_at IS NOT NULL ORDER BY ended_at, uid LIMIT $1;

-- name: DeleteObject :exec
DELETE FROM objects WHERE uid = $1;

-- name: PruneTransitions :execrows
DELETE FROM transitions WHERE (uid, version) IN (SELECT t.uid, t.version FROM transitions t WHERE t.at < $1 ORDER BY t.at LIMIT $2);

-- name: PruneAttempts :execrows
DELETE FROM attempts WHERE (task_uid, attempt) IN (SELECT a.task_uid, a.attempt FROM attempts a WHERE a.finished_at < $1 ORDER BY a.finished_at LIMIT $2);

-- name: UnboundNamespaces :many
SELECT DISTINCT namespace FROM objects WHERE namespace_uid = '' ORDER BY namespace;

-- name: BindObjects :execrows
UPDATE objects SET namespace_uid = $1 WHERE namespace = $2 AND namespace_uid = '' AND created_at >= $3;

-- name: BindAttempts :exec
UPDATE attempts SET namespace_uid = $1 WHERE attempts.namespace = $2 AND attempts.namespace_uid = ''
    AND task_uid IN (SELECT o.uid FROM objects o WHERE o.namespace = $2 AND o.namespace_uid = $1);
