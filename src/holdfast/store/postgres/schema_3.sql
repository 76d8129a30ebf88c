-- Version 3 of the PostgreSQL schema: which workflows the living workers execute, for people who wait for a run.
-- A worker renews its row; after `until_us` it counts as stopped.

CREATE TABLE workers (
    owner     text   COLLATE "C" NOT NULL PRIMARY KEY,
    workflows text[] NOT NULL,
    until_us  bigint NOT NULL
);
