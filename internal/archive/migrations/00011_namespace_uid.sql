-- Binds rows to the namespace that had the name then: after it is deleted, another owner may create
-- one of that name. Rows without a UID are of a namespace that was not known.

-- +goose Up
ALTER TABLE objects ADD COLUMN namespace_uid TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN namespace_uid TEXT NOT NULL DEFAULT '';
CREATE INDEX objects_without_namespace ON objects (namespace, created_at) WHERE namespace_uid = '';

-- The indexes from which statistics are read alone.
DROP INDEX objects_ended;
DROP INDEX objects_ended_by_template;
DROP INDEX objects_ended_by_namespace;
DROP INDEX attempts_ended;
DROP INDEX attempts_ended_by_template;
DROP INDEX attempts_ended_by_namespace;
CREATE INDEX objects_ended ON objects (kind, outcome, finished_at, template, step, started_at, namespace, namespace_uid);
CREATE INDEX objects_ended_by_template ON objects (template, kind, outcome, finished_at, step, started_at, namespace, namespace_uid);
CREATE INDEX objects_ended_by_namespace ON objects (namespace, kind, outcome, finished_at, template, step, started_at, namespace_uid);
CREATE INDEX attempts_ended ON attempts (finished_at, template, step, failed, namespace, namespace_uid);
CREATE INDEX attempts_ended_by_template ON attempts (template, finished_at, step, failed, namespace, namespace_uid);
CREATE INDEX attempts_ended_by_namespace ON attempts (namespace, finished_at, template, step, failed, namespace_uid);

-- +goose Down
DROP INDEX objects_ended;
DROP INDEX objects_ended_by_template;
DROP INDEX objects_ended_by_namespace;
DROP INDEX attempts_ended;
DROP INDEX attempts_ended_by_template;
DROP INDEX attempts_ended_by_namespace;
DROP INDEX objects_without_namespace;
ALTER TABLE objects DROP COLUMN namespace_uid;
ALTER TABLE attempts DROP COLUMN namespace_uid;
CREATE INDEX objects_ended ON objects (kind, outcome, finished_at, template, step, started_at, namespace);
CREATE INDEX objects_ended_by_template ON objects (template, kind, outcome, finished_at, step, started_at, namespace);
CREATE INDEX objects_ended_by_namespace ON objects (namespace, kind, outcome, finished_at, template, step, started_at);
CREATE INDEX attempts_ended ON attempts (finished_at, template, step, failed, namespace);
CREATE INDEX attempts_ended_by_template ON attempts (template, finished_at, step, failed, namespace);
CREATE INDEX attempts_ended_by_namespace ON attempts (namespace, finished_at, template, step, failed);
