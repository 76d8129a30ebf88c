-- Version 1 of the PostgreSQL schema. docs/formats.md explains every column.
-- `key` is the run's number times 2^32, plus the row's own number in the run: one integer orders a run's rows.
-- Columns of fixed width stand first in tables with many rows: then none is padded.
-- Text is compared byte by byte (COLLATE "C"). What is compressed already is not compressed again (STORAGE EXTERNAL).
-- `recent` holds the ids of the commits before the last, newest first: by them a commit is recognised whose answer was lost.
-- Room is left in the pages of `runs`: an ordinary save changes no indexed column, so the row moves within its page.

CREATE TABLE schema_version (
    version bigint NOT NULL PRIMARY KEY
);

CREATE SEQUENCE run_numbers AS bigint MAXVALUE 2147483647;

CREATE TABLE runs (
    run         bigint NOT NULL PRIMARY KEY,
    run_id      text   COLLATE "C" NOT NULL UNIQUE,
    family      bigint NOT NULL,
    incarnation bytea  NOT NULL,
    workflow    text   COLLATE "C" NOT NULL,
    status      text   COLLATE "C" NOT NULL,
    metadata    bytea  NOT NULL,
    origin      bytea  NOT NULL,
    created_us  bigint NOT NULL,
    updated_us  bigint NOT NULL,
    position    bigint NOT NULL,
    serial      bigint NOT NULL,
    head        bigint NOT NULL,
    head_id     text   COLLATE "C" NOT NULL,
    step        bigint NOT NULL,
    effects     bigint NOT NULL,
    attached    bigint NOT NULL,
    rewrites    bigint NOT NULL,
    inbox       bigint NOT NULL,
    outbox      bigint NOT NULL,
    fence       bigint NOT NULL,
    owner       text   COLLATE "C" NOT NULL,
    nonce       bytea  NOT NULL,
    lease_us    bigint NOT NULL,
    boot        text   COLLATE "C" NOT NULL,
    gc_epoch    bigint NOT NULL,
    ready_us    bigint NOT NULL,
    commit_id   bytea  NOT NULL,
    seal        bigint NOT NULL,
    recent      bytea  NOT NULL DEFAULT ''
) WITH (fillfactor = 60);
CREATE INDEX runs_by_status   ON runs (status, run);
CREATE INDEX runs_by_workflow ON runs (workflow, run);
CREATE INDEX runs_by_family   ON runs (family, run);
CREATE INDEX runs_ready       ON runs (ready_us, run) WHERE ready_us > 0;
CREATE INDEX runs_held        ON runs (lease_us) WHERE owner <> '';

CREATE TABLE tags (
    key   bytea  NOT NULL,
    value bytea  NOT NULL,
    run   bigint NOT NULL,
    PRIMARY KEY (key, value, run)
);

CREATE TABLE checkpoints (
    key           bigint  NOT NULL PRIMARY KEY,
    run           bigint  NOT NULL,
    step          bigint  NOT NULL,
    covers        bigint  NOT NULL,
    created_us    bigint  NOT NULL,
    seal          bigint  NOT NULL,
    named         boolean NOT NULL,
    lane          text    COLLATE "C" NOT NULL,
    checkpoint_id text    COLLATE "C" NOT NULL,
    parent_id     text    COLLATE "C",
    next_node     text    COLLATE "C",
    status        text    COLLATE "C" NOT NULL,
    metadata      bytea   NOT NULL,
    root          bytea   NOT NULL
);
ALTER TABLE checkpoints ALTER COLUMN root SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX checkpoints_by_id ON checkpoints (run, lane, checkpoint_id) WHERE named;

CREATE TABLE lanes (
    run     bigint NOT NULL,
    lane    text   COLLATE "C" NOT NULL,
    head    bigint NOT NULL,
    head_id text   COLLATE "C" NOT NULL,
    step    bigint NOT NULL,
    PRIMARY KEY (run, lane)
);

CREATE TABLE chunks (
    family bigint NOT NULL,
    hash   bytea  NOT NULL,
    body   bytea  NOT NULL,
    PRIMARY KEY (family, hash)
);
ALTER TABLE chunks ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE entries (
    key        bigint NOT NULL PRIMARY KEY,
    created_us bigint NOT NULL,
    seal       bigint NOT NULL,
    kind       text   COLLATE "C" NOT NULL,
    commit_id  bytea  NOT NULL,
    body       bytea  NOT NULL
);
ALTER TABLE entries ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE effects (
    key              bigint  NOT NULL PRIMARY KEY,
    run              bigint  NOT NULL,
    name             text    COLLATE "C" NOT NULL,
    state            text    COLLATE "C" NOT NULL,
    tool             text    COLLATE "C" NOT NULL,
    target           text    COLLATE "C",
    reversible       boolean NOT NULL,
    after_checkpoint bigint  NOT NULL,
    after_position   bigint  NOT NULL,
    created_us       bigint  NOT NULL,
    updated_us       bigint  NOT NULL,
    commit_id        bytea   NOT NULL,
    seal             bigint  NOT NULL,
    body             bytea   NOT NULL,
    call             bytea   NOT NULL
);
ALTER TABLE effects ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE effects ALTER COLUMN call SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX effects_by_name ON effects (run, name);

CREATE TABLE attachments (
    key           bigint NOT NULL PRIMARY KEY,
    run           bigint NOT NULL,
    lane          text   COLLATE "C" NOT NULL,
    checkpoint_id text   COLLATE "C" NOT NULL,
    name          text   COLLATE "C" NOT NULL,
    created_us    bigint NOT NULL,
    seal          bigint NOT NULL,
    root          bytea  NOT NULL
);
ALTER TABLE attachments ALTER COLUMN root SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX attachments_by_name ON attachments (run, lane, checkpoint_id, name);

CREATE TABLE gates (
    run         bigint NOT NULL,
    gate        text   COLLATE "C" NOT NULL,
    state       text   COLLATE "C" NOT NULL,
    opened_us   bigint NOT NULL,
    expires_us  bigint,
    answered_us bigint,
    answered_by text   COLLATE "C",
    seal        bigint NOT NULL,
    body        bytea  NOT NULL,
    PRIMARY KEY (run, gate)
);
ALTER TABLE gates ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX gates_open     ON gates (opened_us, run) WHERE state = 'open';
CREATE INDEX gates_expiring ON gates (expires_us) WHERE state = 'open' AND expires_us IS NOT NULL;

CREATE TABLE timers (
    run    bigint NOT NULL,
    timer  text   COLLATE "C" NOT NULL,
    due_us bigint NOT NULL,
    PRIMARY KEY (run, timer)
);
CREATE INDEX timers_due ON timers (due_us);

CREATE TABLE inbox (
    key        bigint  NOT NULL PRIMARY KEY,
    run        bigint  NOT NULL,
    kind       text    COLLATE "C" NOT NULL,
    name       text    COLLATE "C" NOT NULL,
    item       text    COLLATE "C" NOT NULL,
    sender     text    COLLATE "C" NOT NULL,
    created_us bigint  NOT NULL,
    taken      boolean NOT NULL,
    seal       bigint  NOT NULL,
    body       bytea   NOT NULL
);
ALTER TABLE inbox ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX inbox_by_item ON inbox (run, item);

CREATE TABLE outbox (
    key        bigint NOT NULL PRIMARY KEY,
    target     text   COLLATE "C" NOT NULL,
    kind       text   COLLATE "C" NOT NULL,
    name       text   COLLATE "C" NOT NULL,
    item       text   COLLATE "C" NOT NULL,
    created_us bigint NOT NULL,
    seal       bigint NOT NULL,
    body       bytea  NOT NULL
);
ALTER TABLE outbox ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX outbox_by_age ON outbox (created_us, key);
