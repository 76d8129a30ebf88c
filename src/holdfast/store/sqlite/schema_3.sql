-- Version 3 of the SQLite schema: packs, the keys of encrypted data, and the columns of queues, threads and crash loops.
-- A chunk is either a row of `chunks` or, at `start` of the plain bytes of a pack, a row of `packed`.

ALTER TABLE runs ADD COLUMN limit_key TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN thread TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN crashes INTEGER NOT NULL DEFAULT 0;
DROP INDEX runs_ready;
CREATE INDEX runs_ready     ON runs (priority DESC, ready_us, run) WHERE ready_us > 0;
CREATE INDEX runs_limited   ON runs (limit_key) WHERE owner <> '' AND limit_key <> '';
CREATE INDEX runs_by_thread ON runs (thread, run) WHERE thread <> '';

CREATE TABLE packs (
    pack   INTEGER PRIMARY KEY,
    family INTEGER NOT NULL,
    size   INTEGER NOT NULL,
    body   BLOB    NOT NULL
) STRICT;
CREATE INDEX packs_by_family ON packs (family);
INSERT INTO counters VALUES ('pack', 0);

CREATE TABLE packed (
    family INTEGER NOT NULL,
    hash   BLOB    NOT NULL,
    pack   INTEGER NOT NULL,
    start  INTEGER NOT NULL,
    size   INTEGER NOT NULL,
    PRIMARY KEY (family, hash)
) STRICT, WITHOUT ROWID;

CREATE TABLE keys (
    key_id  BLOB    NOT NULL PRIMARY KEY,
    kind    TEXT    NOT NULL,
    scope   INTEGER NOT NULL,
    wrapped BLOB    NOT NULL,
    state   TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX keys_by_scope ON keys (kind, scope);

CREATE TABLE buckets (
    name       TEXT    NOT NULL PRIMARY KEY,
    tokens     REAL    NOT NULL,
    updated_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
