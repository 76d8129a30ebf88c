"""A new column needs only the places that these tests name.

They are its row type (model/rows.py), for runs the first row (store/decide), the SQLite schema and a PostgreSQL
migration. All lists of columns, placeholders, array types and bindings are derived from the row types.
"""

from __future__ import annotations

import re
from importlib.resources import files
from zlib import crc32

import msgspec
import pytest

from holdfast.errors import DamagedData
from holdfast.model.rows import NO_RUN, RunRow
from holdfast.store.checksum import verify_run, with_checksum
from holdfast.store.postgres.dialect import statements_for
from holdfast.store.sql.statements import (
    ATTACHMENTS,
    CHECKPOINTS,
    EFFECTS,
    ENTRIES,
    GATES,
    ITEMS,
    LANES,
    MESSAGES,
    RUNS,
    TIMERS,
    statements,
    update_run,
)

TABLES = {
    "checkpoints": CHECKPOINTS,
    "lanes": LANES,
    "entries": ENTRIES,
    "effects": EFFECTS,
    "attachments": ATTACHMENTS,
    "gates": GATES,
    "timers": TIMERS,
    "inbox": ITEMS,
    "outbox": MESSAGES,
}


def columns_of(name_of_table: str, package: str, *names: str) -> list[str]:
    """The columns that the schema files give a table."""
    found: list[str] = []
    for name in names:
        text = files(package).joinpath(name).read_text("utf-8")
        table = re.search(rf"CREATE TABLE {name_of_table} \((.*?)\n\)", text, re.DOTALL)
        found += re.findall(r"^    ([a-z]\w*) ", table[1], re.MULTILINE) if table else []
        found += re.findall(rf"ALTER TABLE {name_of_table} ADD COLUMN (\w+)", text)
    return found


def test_the_sqlite_schema_has_a_column_for_each_field() -> None:
    assert columns_of("runs", "holdfast.store.sqlite", "schema.sql", "schema_3.sql") == list(RunRow.__struct_fields__)


def test_the_postgresql_migrations_have_a_column_for_each_field() -> None:
    names = sorted(file.name for file in files("holdfast.store.postgres").iterdir() if file.name.startswith("schema_"))
    columns = columns_of("runs", "holdfast.store.postgres", *names)
    assert set(columns) == {*RunRow.__struct_fields__, "recent"}


def test_statements_read_and_write_every_field() -> None:
    one = update_run(tuple(RUNS.changing)).partition(" WHERE ")[0]
    many = statements_for("x")["update_runs"].decode()
    fixed = {"run", "run_id", "family", "incarnation", "origin", "created_us"}
    for name in RunRow.__struct_fields__:
        assert re.search(rf"\b{name}\b", statements()["run_by_id"])
        assert re.search(rf"\b{name}\b", statements()["insert_run"])
        assert (f" {name} = ?" in one) == (name not in fixed)
        assert (f" {name} = n.{name}," in many) == (name not in fixed)


@pytest.mark.parametrize("name", TABLES)
def test_both_schemas_have_a_column_for_each_field_of_the_other_tables(name: str) -> None:
    for package, file in (("holdfast.store.sqlite", "schema.sql"), ("holdfast.store.postgres", "schema_1.sql")):
        assert set(columns_of(name, package, file)) == set(TABLES[name].columns)


LATER = {"limit_key": "à", "thread": "t", "priority": -1, "crashes": 1}


def test_a_run_without_later_fields_has_the_checksum_of_earlier_versions() -> None:
    row = with_checksum(msgspec.structs.replace(NO_RUN, run_id="run", incarnation=b"i" * 16), b"i" * 16)
    earlier = [0 if name == "seal" else getattr(row, name) for name in RunRow.__struct_fields__ if name not in LATER]
    assert row.seal == crc32(msgspec.msgpack.encode(earlier), crc32(row.incarnation))


@pytest.mark.parametrize("name", LATER)
def test_the_checksum_covers_a_later_field_that_is_set(name: str) -> None:
    row = with_checksum(msgspec.structs.replace(NO_RUN, incarnation=b"i" * 16, **{name: LATER[name]}), b"i" * 16)
    verify_run(row)
    for other in RunRow.__struct_fields__:
        if other in LATER:
            changed = msgspec.structs.replace(row, **{other: getattr(NO_RUN, other) if other == name else LATER[other]})
            with pytest.raises(DamagedData):
                verify_run(changed)
