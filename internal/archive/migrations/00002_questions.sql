-- An index for each question: in the order of its answer, so that a page costs what is on it, and
-- where it is read by the thousand with all that is asked for.

-- +goose Up
DROP INDEX objects_by_kind;
DROP INDEX objects_by_name;
DROP INDEX objects_by_step;
DROP INDEX attempts_by_step;
DROP INDEX attempts_by_end;
CREATE INDEX objects_by_kind ON objects (kind, created_at, uid, name);
CREATE INDEX objects_by_name ON objects (name, namespace, uid);
CREATE INDEX objects_by_outcome ON objects (kind, outcome, created_at, uid);
CREATE INDEX objects_by_template ON objects (template, kind, created_at, uid);
CREATE INDEX objects_by_robot ON objects (robot, kind, created_at, uid);
CREATE INDEX objects_ended ON objects (kind, outcome, finished_at, template, step, started_at, namespace);
CREATE INDEX objects_ended_by_template ON objects (template, kind, outcome, finished_at, step, started_at, namespace);
CREATE INDEX objects_ended_by_namespace ON objects (namespace, kind, outcome, finished_at, template, step, started_at);
CREATE INDEX attempts_ended ON attempts (finished_at, template, step, failed, namespace);
CREATE INDEX attempts_ended_by_template ON attempts (template, finished_at, step, failed, namespace);
CREATE INDEX attempts_ended_by_namespace ON attempts (namespace, finished_at, template, step, failed);

-- +goose Down
DROP INDEX attempts_ended_by_namespace;
DROP INDEX attempts_ended_by_template;
DROP INDEX attempts_ended;
DROP INDEX objects_ended_by_namespace;
DROP INDEX objects_ended_by_template;
DROP INDEX objects_ended;
DROP INDEX objects_by_robot;
DROP INDEX objects_by_template;
DROP INDEX objects_by_outcome;
DROP INDEX objects_by_name;
DROP INDEX objects_by_kind;
CREATE INDEX objects_by_kind ON objects (kind, created_at, uid);
CREATE INDEX objects_by_name ON objects (name, namespace);
CREATE INDEX objects_by_step ON objects (kind, outcome, template, step, finished_at, started_at, namespace);
CREATE INDEX attempts_by_step ON attempts (template, step, failed, finished_at, namespace);
CREATE INDEX attempts_by_end ON attempts (finished_at);
