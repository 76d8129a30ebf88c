-- Version 2 of the PostgreSQL schema: owners whose death is noticed by the end of their session.
-- `owners` has a row for each owner that holds a shared advisory lock, `lock_key`, on a connection of its own.
-- `session` grows whenever the owner takes the lock again; `server` names the start of the server it was taken on.
-- `missing_us` is when the lock was first seen missing in this session; `dead` is final for this `token`.
-- A crash of the server empties an unlogged table: the mark in it tells one start of the server from the next.

CREATE TABLE owners (
    owner        text    COLLATE "C" NOT NULL PRIMARY KEY,
    lock_key     bigint  NOT NULL,
    token        bytea   NOT NULL,
    session      bigint  NOT NULL,
    server       text    COLLATE "C" NOT NULL,
    grace_us     bigint  NOT NULL,
    announced_us bigint  NOT NULL,
    missing_us   bigint,
    dead         boolean NOT NULL
);

CREATE UNLOGGED TABLE server_mark (
    number bigint NOT NULL PRIMARY KEY,
    mark   text   COLLATE "C" NOT NULL
);
