"""A new column needs only the places that these tests name.

They are its row type (model/rows.py), for runs the first row (store/decide), the SQLite schema and a PostgreSQL
migration. All lists of columns, placeholders, array types and bindings are derived from the row types.
"""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from holdfast.model.rows import RunRow
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
    TIMERS,
    statements,
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
    assert columns_of("runs", "holdfast.store.sqlite", "schema.sql") == list(RunRow.__struct_fields__)


def test_the_postgresql_migrations_have_a_column_for_each_field() -> None:
    names = sorted(file.name for file in files("holdfast.store.postgres").iterdir() if file.name.startswith("schema_"))
    columns = columns_of("runs", "holdfast.store.postgres", *names)
    assert set(columns) == {*RunRow.__struct_fields__, "recent"}


def test_statements_read_and_write_every_field() -> None:
    one = statements()["update_run"].partition(" WHERE ")[0]
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
