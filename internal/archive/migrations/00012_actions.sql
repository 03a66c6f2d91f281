-- Who did what to which object, and how far the audit log of an API server was read.

-- +goose Up
CREATE TABLE actions (
    -- id is the audit ID or the UID of the admission request, so that none is recorded twice.
    id            TEXT   NOT NULL PRIMARY KEY,
    at            BIGINT NOT NULL,
    username      TEXT   NOT NULL,
    impersonator  TEXT   NOT NULL,
    verb          TEXT   NOT NULL,
    kind          TEXT   NOT NULL,
    namespace     TEXT   NOT NULL,
    namespace_uid TEXT   NOT NULL,
    name          TEXT   NOT NULL,
    uid           TEXT   NOT NULL,
    did           TEXT   NOT NULL,
    code          BIGINT NOT NULL
);
CREATE INDEX actions_by_time ON actions (at, id);
CREATE INDEX actions_by_namespace ON actions (namespace, kind, at, id);
CREATE INDEX actions_by_name ON actions (name, namespace, kind, at, id);
CREATE INDEX actions_by_age ON actions (namespace, at, id);
CREATE INDEX actions_by_user ON actions (username, at, id);

CREATE TABLE audit_positions (
    log         TEXT   NOT NULL PRIMARY KEY,
    file        TEXT   NOT NULL,
    byte_offset BIGINT NOT NULL
);

-- +goose Down
DROP TABLE audit_positions;
DROP TABLE actions;
