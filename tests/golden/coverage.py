"""Whether golden data has everything: each kind of entry, each column in use, each way a body is compressed."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any


def read_names(folder: Path) -> dict[str, list[Any]]:
    """The names on disk: of today's code, or of the version whose golden data is in this folder."""
    found: dict[str, list[Any]] = json.loads((folder / "names.json").read_text("utf-8"))
    return found


NAMES = read_names(Path(__file__).parent)


RESERVED = {
    "runs": ("limit_key", "thread", "priority", "crashes"),
    "keys": ("key_id", "kind", "scope", "wrapped", "state"),
    "buckets": ("name", "tokens", "updated_us"),
}
"""Columns that nothing writes yet."""


def gaps(path: Path, expected: dict[str, list[Any]]) -> list[str]:
    """What the SQLite file of a golden store lacks of the expected names."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        found = []
        for table in tables:
            for column in [row[1] for row in db.execute(f"PRAGMA table_info({table})")]:
                if column in RESERVED.get(table, ()):
                    continue
                used = db.execute(f"SELECT 1 FROM {table} WHERE {column} NOT IN (0, '', x'') LIMIT 1")
                if used.fetchone() is None:
                    found.append(f"{table}.{column} is always empty")
        for kind, column in (("entries", "kind"), ("runs", "status"), ("effects", "state"), ("gates", "state")):
            names = {row[0] for row in db.execute(f"SELECT DISTINCT {column} FROM {kind}")}
            found += [f"no {kind}.{column} {name!r}" for name in expected[f"{kind}.{column}"] if name not in names]
        taken = {row[0] for row in db.execute("SELECT DISTINCT taken FROM inbox")}
        return found + ([] if taken == {0, 1} else [f"inbox items taken: {taken}"])
