-- Version 4 of the PostgreSQL schema: the descriptions of published workflows, for processes that list and start them.

CREATE TABLE catalog (
    name text  COLLATE "C" NOT NULL PRIMARY KEY,
    body bytea NOT NULL
);
ALTER TABLE catalog ALTER COLUMN body SET STORAGE EXTERNAL;
