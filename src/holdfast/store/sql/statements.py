"""Named SQL statements, and the columns and keys of the tables they read and write.

Lists of columns, placeholders, array types and bindings are derived from the row types, so a new column is one edit
here: the field of its row. Values are always bound; only derived lists are inserted into the text of a statement.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, Final, Protocol

from holdfast.ids import own_checkpoint_number
from holdfast.limits import ID_BYTES_MAX, NUMBER_MAX
from holdfast.model import rows
from holdfast.store.port import CheckpointQuery, Kind, RunQuery
from holdfast.store.search import tag_needle

Columns = tuple[Any, ...]
"""The values of a row's columns, as a driver takes or returns them."""
Parts = tuple[list[str], list[Any]]
"""The names of a statement's parts, and the bindings of all of them."""


def key_of(run: int, number: int) -> int:
    """The key of a row that has its own number within a run."""
    return run << 32 | number


def last_key(run: int) -> int:
    """The largest key a row of the run can have."""
    return run << 32 | NUMBER_MAX


_TYPE_LETTERS: Final = {int: "i", str: "t", bytes: "b", bool: "o"}
_SQL_TYPES: Final = {"i": "bigint", "t": "text", "b": "bytea", "o": "boolean"}


class Table:
    """The columns of one table, in the order of its row's fields.

    The number of a row within its run is stored in `key`, together with the run's number. `renamed` are fields whose
    column has another name, `fixed` the columns that an update leaves as they are.
    """

    def __init__(
        self,
        row: type[rows.Row],
        fixed: Iterable[str] = (),
        *,
        numbered: bool = False,
        has_run: bool = True,
        renamed: Mapping[str, str] | None = None,
    ) -> None:
        types = list(rows.column_types(row).items())[numbered:]
        names = {name: (renamed or {}).get(name, name) for name, _ in types}
        lead = ["key"] * numbered + ["run"] * has_run
        self.select = ["key & 4294967295"] * numbered + list(names.values())
        self.columns = [*lead, *names.values()]
        self.shape = "i" * len(lead) + "".join([_TYPE_LETTERS[kind] for _, kind in types])
        """A letter for each column: i bigint, t text, b bytea, o boolean."""
        self.changing = [column for column in self.columns if column not in {"run", *fixed}]
        letters = dict(zip(self.columns, self.shape, strict=True))
        self.changing_shape = "".join([letters[column] for column in self.changing])
        self._is_numbered, self._has_run = numbered, has_run
        self._values: Callable[[object], Columns] = attrgetter(*row.__struct_fields__)
        changing = (name for name, column in names.items() if column in self.changing)
        self.bind_changes: Callable[[object], Columns] = attrgetter(*changing)
        """Returns the values of `changing` of a row."""

    def bind(self, run: int, row: object) -> Columns:
        """The values of `columns`."""
        values = self._values(row)
        if not self._is_numbered:
            return (run, *values) if self._has_run else values
        key = run << 32 | values[0]
        return (key, run, *values[1:]) if self._has_run else (key, *values[1:])

    def lists(self, name: str) -> dict[str, list[str]]:
        """The lists that statements use, by their names."""
        typed = zip(self.columns, self.shape, strict=True)
        return {
            name: self.select,
            f"{name}_columns": self.columns,
            f"{name}_values": ["?"] * len(self.columns),
            f"{name}_arrays": [f"?::{_SQL_TYPES[letter]}[]" for letter in self.shape],
            f"{name}_casts": [column if column == "run" else f"?::{_SQL_TYPES[letter]}" for column, letter in typed],
            f"{name}_changing": self.changing,
            f"{name}_changing_arrays": [f"?::{_SQL_TYPES[letter]}[]" for letter in self.changing_shape],
            f"{name}_changes": [f"{column} = ?" for column in self.changing],
            f"{name}_changes_from_n": [f"{column} = n.{column}" for column in self.changing],
            f"{name}_changes_from_excluded": [f"{column} = excluded.{column}" for column in self.changing],
        }


def _run_changes(*columns: str) -> Table:
    """Table `runs`, of which only these columns change."""
    return Table(rows.RunRow, set(rows.RunRow.__struct_fields__) - {*columns}, has_run=False)


RUNS: Final = Table(rows.RunRow, ("run_id", "family", "incarnation", "origin", "created_us"), has_run=False)
PROGRESS: Final = _run_changes("updated_us", "position", "serial", "head", "head_id", "step", "commit_id", "seal")
"""The columns that change if a commit only adds checkpoints and entries, one entry, or attachments."""
APPENDED: Final = _run_changes("updated_us", "position", "commit_id", "seal")
ATTACHED: Final = _run_changes("updated_us", "attached", "commit_id", "seal")
CHECKPOINTS: Final = Table(rows.CheckpointRow, ("key", "lane", "checkpoint_id", "named"), numbered=True)
LANES: Final = Table(rows.LaneRow, ("lane",))
ENTRIES: Final = Table(rows.EntryRow, numbered=True, has_run=False)
EFFECTS: Final = Table(rows.EffectRow, ("key", "name", "created_us"), numbered=True, renamed={"key": "name"})
ATTACHMENTS: Final = Table(
    rows.AttachmentRow, ("lane", "checkpoint_id", "name"), numbered=True, renamed={"key": "name"}
)
GATES: Final = Table(rows.GateRow, ("gate", "opened_us"))
TIMERS: Final = Table(rows.TimerRow, ("timer",))
ITEMS: Final = Table(
    rows.ItemRow,
    ("key", "kind", "name", "item", "sender", "created_us"),
    numbered=True,
    renamed={"key": "item", "by": "sender"},
)
MESSAGES: Final = Table(rows.MessageRow, numbered=True, has_run=False, renamed={"key": "item"})
_TABLES: Final = {
    "run": RUNS,
    "progress": PROGRESS,
    "appended": APPENDED,
    "attached": ATTACHED,
    "checkpoint": CHECKPOINTS,
    "lane": LANES,
    "entry": ENTRIES,
    "effect": EFFECTS,
    "attachment": ATTACHMENTS,
    "gate": GATES,
    "timer": TIMERS,
    "item": ITEMS,
    "message": MESSAGES,
}
"""The tables by the names that statements use for their lists."""


class Fetch(Protocol):
    """Executes a statement, given by its name or the names of its parts, and returns all rows."""

    def __call__(self, statement: str | Sequence[str], *bindings: object) -> list[Columns]: ...


class RowFrom(Protocol):
    """Makes a row of its columns."""

    def __call__(self, kind: type[Kind], columns: Columns) -> Kind: ...


def row_from(kind: type[Kind], columns: Columns) -> Kind:
    """A row from its columns, which are in the order of its fields."""
    return kind(*columns)


def find_checkpoint(
    fetch: Fetch, row_from: RowFrom, run: int, lane: str, checkpoint_id: str
) -> rows.CheckpointRow | None:
    """A checkpoint by its id: chosen ids by their index, a store's own by the number they start with."""
    found = fetch("checkpoint_by_id", run, lane, checkpoint_id)
    if found:
        return row_from(rows.CheckpointRow, found[0])
    number = own_checkpoint_number(checkpoint_id)
    found = fetch("checkpoint_by_key", key_of(run, number)) if number else []
    row = row_from(rows.CheckpointRow, found[0]) if found else None
    return row if row and row.lane == lane and row.checkpoint_id == checkpoint_id else None


_LIST: Final = re.compile(r"<(?:(\w+)\.)?(\w+)>")


@cache
def update_run(columns: tuple[str, ...]) -> str:
    """The statement that sets these columns of a run. SQLite writes every index again of which a column is named."""
    assert {*columns} <= {*RUNS.changing}, columns
    changes = ", ".join([f"{column} = ?" for column in columns])
    return f"UPDATE runs SET {changes} WHERE run = ? AND commit_id = ?"  # noqa: S608 - names of fields


class SqlStatements(dict[str, str]):
    """Statements by name; of two with one name the later is used.

    The lists of a statement are inserted when it is first used: a command that reads uses few of them.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self._lists = {key: columns for name, table in _TABLES.items() for key, columns in table.lists(name).items()}
        self._lines: dict[str, list[str]] = {}
        current: list[str] = []
        for line in text.splitlines():
            if line.startswith("-- columns "):
                name, _, names = line.removeprefix("-- columns ").partition(": ")
                self._lists[name] = names.split(", ")
            elif line.startswith("-- name: "):
                current = self._lines[line.removeprefix("-- name: ")] = []
            elif line and not line.startswith("--"):
                current.append(line)

    def __missing__(self, name: str) -> str:
        def insert(match: re.Match[str]) -> str:
            alias = match[1]
            return ", ".join([f"{alias}.{column}" if alias else column for column in self._lists[match[2]]])

        statement = self[name] = _LIST.sub(insert, " ".join(self._lines[name]))
        return statement

    def all(self) -> dict[str, str]:
        """Every statement."""
        return {name: self[name] for name in self._lines}


@cache
def statements() -> SqlStatements:
    """The statements of `statements.sql` by name."""
    return SqlStatements(read_sql(__file__, "statements.sql"))


def read_sql(module: str, name: str) -> str:
    """Read a file of SQL beside a module; importlib.resources takes longer to load than the store."""
    with open(os.path.join(os.path.dirname(module), name), encoding="utf-8") as file:
        return file.read()


_HIGHEST: Final = 0x10FFFF
_AFTER_ALL_IDS: Final = chr(_HIGHEST) * (ID_BYTES_MAX // 4 + 1)
"""Sorts after every id: it repeats the highest code point more often than the longest id can."""


def runs_page(
    query: RunQuery,
    tags: Sequence[tuple[object, bytes]],
    bind_texts: Callable[[Sequence[str]], object],
    expired: tuple[str, list[int | str]] | None,
    first: int | None = None,
) -> Parts:
    """The parts of a list of runs, with all bindings except the limit.

    The most selective part comes first, so that its index is used. With `first` only the runs from this number on are
    searched, and their ids are compared with the prefix.
    """
    page, bindings, tags = _leading_part(query if first is None else query._replace(prefix=""), tags)
    parts = [page]
    if first is not None:
        parts += [f"{page}_first", "runs_page_prefix"]
        bindings += [first, query.prefix, end_of_prefix(query.prefix)]
    for tag in tags:
        parts.append("runs_page_tag")
        bindings += tag
    if len(query.statuses) == 1:
        parts.append("runs_page_status")
        bindings.append(query.statuses[0])
    elif query.statuses:
        parts.append("runs_page_statuses")
        bindings.append(bind_texts(query.statuses))
    if query.workflow is not None:
        parts.append("runs_page_workflow")
        bindings.append(query.workflow)
    if query.family is not None:
        parts.append("runs_page_family")
        bindings.append(query.family)
    if query.claimed is not None and page != "runs_page_of_claims":
        parts.append("runs_page_claimed")
    if expired is not None:
        parts.append(expired[0])
        bindings += expired[1]
    return [*parts, f"{page}_end"], bindings


def _leading_part(
    query: RunQuery, tags: Sequence[tuple[object, bytes]]
) -> tuple[str, list[object], Sequence[tuple[object, bytes]]]:
    """The first part of a list of runs, its bindings, and the tags that it does not cover."""
    before = query.before or 2**62
    if query.prefix:
        return "runs_page_of_prefix", [query.prefix, end_of_prefix(query.prefix), before], tags
    if query.claimed is not None:
        return "runs_page_of_claims", [before], tags
    if tags:
        return "runs_page_of_tag", [before, *tags[0]], tags[1:]
    return "runs_page", [before], ()


def end_of_prefix(prefix: str) -> str:
    """The first text that sorts after all texts with this prefix; UTF-8 sorts as code points do.

    The last code point that is not the highest is incremented; surrogates are not text and are skipped.
    """
    head = prefix.rstrip(chr(_HIGHEST))
    if not head:
        return _AFTER_ALL_IDS
    following = ord(head[-1]) + 1
    return head[:-1] + chr(0xE000 if following == 0xD800 else following)


def filter_parts(query: CheckpointQuery) -> Parts:
    """The parts that narrow a search for checkpoints."""
    parts: list[str] = []
    bindings: list[int | str | bytes] = []
    for part, text in {"found_lane": query.lane, "found_id": query.checkpoint_id}.items():
        if text is not None:
            parts.append(part)
            bindings.append(text)
    if query.by_id is not None:
        parts.append("found_by_id" if query.run_id is None else "found_of_run_by_id")
        bindings += query.by_id
    for key, value in query.tags:
        parts.append("found_tag")
        bindings.append(tag_needle(key, value))
    return parts, bindings


def number_before(query: CheckpointQuery) -> int:
    """The number below which checkpoints of one run are searched, limited to the numbers a run can have."""
    return NUMBER_MAX + 1 if query.before is None else max(0, min(query.before[1], NUMBER_MAX + 1))


def all_parts(query: CheckpointQuery) -> Parts:
    """The parts of a search through all runs, with all bindings except the limit."""
    parts = ["found" if query.workflow is None else "found_of_workflow"]
    bindings: list[object] = [] if query.workflow is None else [query.workflow]
    if query.before is not None:
        parts.append("found_before")
        bindings += query.before
    narrowing, narrowed = filter_parts(query)
    end = "found_end" if query.by_id is None else "found_by_id_end"
    return [*parts, *narrowing, end], [*bindings, *narrowed]
