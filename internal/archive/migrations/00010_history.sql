-- What is written here is understood by SQLite and by PostgreSQL alike. Times are microseconds
-- since 1970 in UTC; NULL is not yet, or unknown.

-- +goose Up
CREATE TABLE objects (
    uid         TEXT   NOT NULL PRIMARY KEY,
    kind        TEXT   NOT NULL,
    namespace   TEXT   NOT NULL,
    name        TEXT   NOT NULL,
    version     BIGINT NOT NULL,
    owner_uid   TEXT   NOT NULL,
    template    TEXT   NOT NULL,
    step        TEXT   NOT NULL,
    robot       TEXT   NOT NULL,
    phase       TEXT   NOT NULL,
    reason      TEXT   NOT NULL,
    outcome     TEXT   NOT NULL,
    created_at  BIGINT NOT NULL,
    started_at  BIGINT,
    finished_at BIGINT,
    deleted_at  BIGINT,
    -- ended_at is finished_at, or else deleted_at: from then on the object may be pruned.
    ended_at    BIGINT,
    -- bytes that the object counts for when the archive is kept within its size.
    bytes       BIGINT NOT NULL,
    manifest    TEXT   NOT NULL
);
CREATE INDEX objects_by_namespace ON objects (namespace, kind, created_at, uid);
CREATE INDEX objects_by_phase ON objects (kind, phase, created_at, uid);
CREATE INDEX objects_by_owner ON objects (owner_uid);
CREATE INDEX objects_by_end ON objects (ended_at, uid, bytes);

CREATE TABLE labels (
    uid   TEXT NOT NULL REFERENCES objects (uid) ON DELETE CASCADE,
    name  TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (uid, name)
);
CREATE INDEX labels_by_value ON labels (name, value, uid);

CREATE TABLE attempts (
    task_uid    TEXT   NOT NULL REFERENCES objects (uid) ON DELETE CASCADE,
    attempt     BIGINT NOT NULL,
    namespace   TEXT   NOT NULL,
    task        TEXT   NOT NULL,
    job         TEXT   NOT NULL,
    template    TEXT   NOT NULL,
    step        TEXT   NOT NULL,
    robot       TEXT   NOT NULL,
    state       TEXT   NOT NULL,
    reason      TEXT   NOT NULL,
    -- failed is 1 for an attempt that counts as a failure of the task.
    failed      BIGINT NOT NULL,
    exit_code   BIGINT,
    signal      BIGINT NOT NULL,
    started_at  BIGINT,
    finished_at BIGINT,
    -- log is the path under which the log API has what the attempt wrote.
    log         TEXT   NOT NULL,
    PRIMARY KEY (task_uid, attempt)
);
CREATE INDEX attempts_by_robot ON attempts (robot, started_at, task_uid, attempt, finished_at);

CREATE TABLE transitions (
    uid        TEXT   NOT NULL REFERENCES objects (uid) ON DELETE CASCADE,
    version    BIGINT NOT NULL,
    at         BIGINT NOT NULL,
    from_phase TEXT   NOT NULL,
    to_phase   TEXT   NOT NULL,
    reason     TEXT   NOT NULL,
    PRIMARY KEY (uid, version)
);
CREATE INDEX transitions_by_time ON transitions (at);

-- An index for each question: in the order of its answer, so that a page costs what is on it, and
-- where it is read by the thousand with all that is asked for.
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
DROP TABLE transitions;
DROP TABLE attempts;
DROP TABLE labels;
DROP TABLE objects;
