-- name: PutAction :execrows
INSERT INTO actions (id, at, username, impersonator, verb, kind, namespace, namespace_uid, name, uid, did, code)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT (id) DO NOTHING;

-- name: PutAuditPosition :exec
INSERT INTO audit_positions (log, file, byte_offset) VALUES ($1, $2, $3)
ON CONFLICT (log) DO UPDATE SET file = excluded.file, byte_offset = excluded.byte_offset;

-- name: AuditPositionOf :one
SELECT * FROM audit_positions WHERE log = $1;

-- name: CountActions :one
SELECT count(*) FROM actions;

-- name: PruneActions :execrows
DELETE FROM actions WHERE id IN (SELECT a.id FROM actions a WHERE a.at < $1 ORDER BY a.at LIMIT $2);

-- name: NamespaceWithMostActions :one
SELECT namespace FROM actions GROUP BY namespace ORDER BY count(*) DESC, namespace LIMIT 1;

-- name: PruneNamespaceActions :execrows
DELETE FROM actions WHERE id IN (SELECT a.id FROM actions a WHERE a.namespace = $1 ORDER BY a.at, a.id LIMIT $2);
