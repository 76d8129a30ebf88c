"""The named statements in the words of PostgreSQL.

They are the statements SQLite uses, with those of `statements.sql` put over them. What differs in all of them is done
here: `?` becomes `%s`, every table gets its schema, and a semicolon at the end goes.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files
from typing import Final

from psycopg import sql

from holdfast.store.sql.statements import parsed

Statements = dict[str, bytes]
"""Statements by name, as the driver takes them."""

_TABLES: Final = (
    "attachments", "checkpoints", "chunks", "effects", "entries", "gates", "inbox", "lanes", "outbox", "runs", "tags",
    "timers", "schema_version", "owners", "server_mark", "workers",
)  # fmt: skip
_TABLE: Final = re.compile(rf"\b(FROM|INTO|JOIN|UPDATE) ({'|'.join(_TABLES)})\b")


def quoted(schema: str) -> str:
    """The schema's name as an identifier."""
    return sql.Identifier(schema).as_string()


@lru_cache(64)
def statements_for(schema: str) -> Statements:
    """All statements by name, for the tables of one schema."""
    shared = files("holdfast.store.sql").joinpath("statements.sql").read_text("utf-8")
    own = files("holdfast.store.postgres").joinpath("statements.sql").read_text("utf-8")
    name = quoted(schema).replace("%", "%%").replace("\\", "\\\\")
    return {
        key: _TABLE.sub(rf"\1 {name}.\2", text.removesuffix(";").replace("?", "%s")).encode()
        for key, text in parsed(shared + "\n" + own).items()
    }
