-- Version 2 of the SQLite schema: the descriptions of published workflows, for processes that list and start them.

CREATE TABLE catalog (
    name TEXT NOT NULL PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;
