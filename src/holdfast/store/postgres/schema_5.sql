-- Version 5 of the PostgreSQL schema: packs, the keys of encrypted data, and the columns of queues, threads and crash loops.
-- A chunk is either a row of `chunks` or, at `start` of the plain bytes of a pack, a row of `packed`.

ALTER TABLE runs ADD COLUMN limit_key text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN thread text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN priority bigint NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN crashes bigint NOT NULL DEFAULT 0;
DROP INDEX runs_ready;
CREATE INDEX runs_ready     ON runs (priority DESC, ready_us, run) WHERE ready_us > 0;
CREATE INDEX runs_limited   ON runs (limit_key) WHERE owner <> '' AND limit_key <> '';
CREATE INDEX runs_by_thread ON runs (thread, run) WHERE thread <> '';

CREATE SEQUENCE pack_numbers AS bigint;

CREATE TABLE packs (
    pack   bigint NOT NULL PRIMARY KEY,
    family bigint NOT NULL,
    size   bigint NOT NULL,
    body   bytea  NOT NULL
);
ALTER TABLE packs ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX packs_by_family ON packs (family);

CREATE TABLE packed (
    family bigint NOT NULL,
    pack   bigint NOT NULL,
    start  bigint NOT NULL,
    size   bigint NOT NULL,
    hash   bytea  NOT NULL,
    PRIMARY KEY (family, hash)
);

CREATE TABLE keys (
    key_id  bytea  NOT NULL PRIMARY KEY,
    kind    text   COLLATE "C" NOT NULL,
    scope   bigint NOT NULL,
    wrapped bytea  NOT NULL,
    state   text   COLLATE "C" NOT NULL
);
CREATE INDEX keys_by_scope ON keys (kind, scope);

CREATE TABLE buckets (
    name       text   COLLATE "C" NOT NULL PRIMARY KEY,
    tokens     double precision NOT NULL,
    updated_us bigint NOT NULL
);
