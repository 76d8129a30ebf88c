-- Version 1 of the SQLite schema. docs/formats.md explains every column.
-- `key` is the run's number times 2^32, plus the row's own number in the run: one integer orders a run's rows and
-- lies next to them, where a key of two columns would need an index of its own.

CREATE TABLE counters (
    name  TEXT    NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO counters VALUES ('run', 0);

CREATE TABLE runs (
    run         INTEGER PRIMARY KEY,
    run_id      TEXT    NOT NULL UNIQUE,
    family      INTEGER NOT NULL,
    incarnation BLOB    NOT NULL,
    workflow    TEXT    NOT NULL,
    status      TEXT    NOT NULL,
    metadata    BLOB    NOT NULL,
    origin      BLOB    NOT NULL,
    created_us  INTEGER NOT NULL,
    updated_us  INTEGER NOT NULL,
    position    INTEGER NOT NULL,
    serial      INTEGER NOT NULL,
    head        INTEGER NOT NULL,
    head_id     TEXT    NOT NULL,
    step        INTEGER NOT NULL,
    effects     INTEGER NOT NULL,
    attached    INTEGER NOT NULL,
    rewrites    INTEGER NOT NULL,
    inbox       INTEGER NOT NULL,
    outbox      INTEGER NOT NULL,
    fence       INTEGER NOT NULL,
    owner       TEXT    NOT NULL,
    nonce       BLOB    NOT NULL,
    lease_us    INTEGER NOT NULL,
    boot        TEXT    NOT NULL,
    gc_epoch    INTEGER NOT NULL,
    ready_us    INTEGER NOT NULL,
    commit_id   BLOB    NOT NULL,
    seal        INTEGER NOT NULL
) STRICT;
CREATE INDEX runs_by_status   ON runs (status, run);
CREATE INDEX runs_by_workflow ON runs (workflow, run);
CREATE INDEX runs_by_family   ON runs (family);
CREATE INDEX runs_ready       ON runs (ready_us, run) WHERE ready_us > 0;
CREATE INDEX runs_held        ON runs (lease_us) WHERE owner <> '';

CREATE TABLE tags (
    key   TEXT    NOT NULL,
    value BLOB    NOT NULL,
    run   INTEGER NOT NULL,
    PRIMARY KEY (key, value, run)
) STRICT, WITHOUT ROWID;

CREATE TABLE checkpoints (
    key           INTEGER PRIMARY KEY,
    run           INTEGER NOT NULL,
    lane          TEXT    NOT NULL,
    checkpoint_id TEXT    NOT NULL,
    named         INTEGER NOT NULL,
    parent_id     TEXT,
    step          INTEGER NOT NULL,
    next_node     TEXT,
    covers        INTEGER NOT NULL,
    status        TEXT    NOT NULL,
    metadata      BLOB    NOT NULL,
    created_us    INTEGER NOT NULL,
    seal          INTEGER NOT NULL,
    root          BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX checkpoints_by_id ON checkpoints (run, lane, checkpoint_id) WHERE named = 1;

CREATE TABLE lanes (
    run     INTEGER NOT NULL,
    lane    TEXT    NOT NULL,
    head    INTEGER NOT NULL,
    head_id TEXT    NOT NULL,
    step    INTEGER NOT NULL,
    PRIMARY KEY (run, lane)
) STRICT, WITHOUT ROWID;

CREATE TABLE chunks (
    id     INTEGER PRIMARY KEY,
    family INTEGER NOT NULL,
    hash   BLOB    NOT NULL,
    body   BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX chunks_by_hash ON chunks (family, hash);

CREATE TABLE entries (
    key        INTEGER PRIMARY KEY,
    kind       TEXT    NOT NULL,
    created_us INTEGER NOT NULL,
    commit_id  BLOB    NOT NULL,
    seal       INTEGER NOT NULL,
    body       BLOB    NOT NULL
) STRICT;

CREATE TABLE effects (
    key              INTEGER PRIMARY KEY,
    run              INTEGER NOT NULL,
    name             TEXT    NOT NULL,
    state            TEXT    NOT NULL,
    tool             TEXT    NOT NULL,
    target           TEXT,
    reversible       INTEGER NOT NULL,
    after_checkpoint INTEGER NOT NULL,
    after_position   INTEGER NOT NULL,
    created_us       INTEGER NOT NULL,
    updated_us       INTEGER NOT NULL,
    commit_id        BLOB    NOT NULL,
    seal             INTEGER NOT NULL,
    body             BLOB    NOT NULL,
    call             BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX effects_by_name ON effects (run, name);

CREATE TABLE attachments (
    key           INTEGER PRIMARY KEY,
    run           INTEGER NOT NULL,
    lane          TEXT    NOT NULL,
    checkpoint_id TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    created_us    INTEGER NOT NULL,
    seal          INTEGER NOT NULL,
    root          BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX attachments_by_name ON attachments (run, lane, checkpoint_id, name);

CREATE TABLE gates (
    run         INTEGER NOT NULL,
    gate        TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    opened_us   INTEGER NOT NULL,
    expires_us  INTEGER,
    answered_us INTEGER,
    answered_by TEXT,
    seal        INTEGER NOT NULL,
    body        BLOB    NOT NULL,
    PRIMARY KEY (run, gate)
) STRICT;
CREATE INDEX gates_open     ON gates (opened_us, run) WHERE state = 'open';
CREATE INDEX gates_expiring ON gates (expires_us) WHERE state = 'open' AND expires_us IS NOT NULL;

CREATE TABLE timers (
    run    INTEGER NOT NULL,
    timer  TEXT    NOT NULL,
    due_us INTEGER NOT NULL,
    PRIMARY KEY (run, timer)
) STRICT, WITHOUT ROWID;
CREATE INDEX timers_due ON timers (due_us);

CREATE TABLE inbox (
    key        INTEGER PRIMARY KEY,
    run        INTEGER NOT NULL,
    kind       TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    item       TEXT    NOT NULL,
    sender     TEXT    NOT NULL,
    created_us INTEGER NOT NULL,
    taken      INTEGER NOT NULL,
    seal       INTEGER NOT NULL,
    body       BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX inbox_by_item ON inbox (run, item);

CREATE TABLE outbox (
    key        INTEGER PRIMARY KEY,
    target     TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    item       TEXT    NOT NULL,
    created_us INTEGER NOT NULL,
    seal       INTEGER NOT NULL,
    body       BLOB    NOT NULL
) STRICT;
CREATE INDEX outbox_by_age ON outbox (created_us, key);
