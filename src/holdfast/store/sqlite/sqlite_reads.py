"""Reads of the SQLite store that differ from those of every SQL store."""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, TypeVar

import apsw

from holdfast.clock import Clock
from holdfast.errors import DamagedData
from holdfast.model.rows import (
    CheckpointRow,
    EffectRow,
    EntryRow,
    GateRow,
    ItemRow,
    Row,
    RunRow,
    TimerRow,
    column_types,
)
from holdfast.store.capabilities import About
from holdfast.store.checksum import verify_checksum
from holdfast.store.packs import PackedChunks, Place
from holdfast.store.port import CheckpointQuery, Key, Kind, Select, Selected
from holdfast.store.search import Found, found_by_pages, is_wanted
from holdfast.store.sql.sql_reads import SqlReads, bound_limit
from holdfast.store.sql.statements import (
    Columns,
    Fetch,
    Parts,
    RowFrom,
    all_parts,
    filter_parts,
    find_checkpoint,
    key_of,
    number_before,
    statements,
)
from holdfast.store.sqlite.sqlite_connection import Connector

Result = TypeVar("Result")

_SHORT: Final = frozenset({EntryRow, GateRow, ItemRow, TimerRow})
"""The rows that an execution reads, which are few in most runs."""
_FEW: Final = 64
"""The most rows that are read while writers wait; if there are more, all are read through another connection."""

_HASHES: Final = 32
"""As many as the list `hashes` of `statements.sql` has."""

_BOOL_AT: Final[dict[type[Row], int]] = {
    kind: list(column_types(kind).values()).index(bool) for kind in (CheckpointRow, EffectRow, ItemRow)
}
"""Where the boolean of a row is. SQLite stores an integer, but the checksum covers a boolean."""


def sqlite_row_from(kind: type[Kind], columns: Columns) -> Kind:
    """A row from its columns, which are in the order of its fields."""
    at = _BOOL_AT.get(kind)
    return kind(*columns) if at is None else kind(*columns[:at], bool(columns[at]), *columns[at + 1 :])


def fetch_on(connection: apsw.Connection) -> Fetch:
    """Executes statements by name on this connection."""
    execute, sql = connection.execute, statements()

    def fetch(statement: str | Sequence[str], *bindings: Any) -> list[Columns]:
        text = sql[statement] if isinstance(statement, str) else " ".join([sql[part] for part in statement])
        return execute(text, bindings).fetchall()

    return fetch


def rows_in(fetch: Fetch, statement: str, family: int, hashes: Sequence[bytes]) -> list[Columns]:
    """The rows with these hashes, as far as they exist; the statement has places for `_HASHES` of them."""
    found: list[Columns] = []
    for at in range(0, len(hashes), _HASHES):
        part = hashes[at : at + _HASHES]
        found += fetch(statement, family, *part, *[None] * (_HASHES - len(part)))
    return found


def _in_snapshot(connection: apsw.Connection, work: Callable[[Fetch], Result]) -> Result:
    connection.execute("BEGIN")
    try:
        return work(fetch_on(connection))
    finally:
        connection.execute("COMMIT")


class SqliteReads(SqlReads):
    """The reads of the store."""

    path: str
    _clock: Clock
    _opener: Connector

    @abstractmethod
    def _read(self, work: Callable[[apsw.Connection], Result]) -> Result:
        """Call `work` with a connection that no other thread uses in the meantime."""

    @abstractmethod
    def _read_warm(self, work: Callable[[apsw.Connection], Result]) -> Result | None:
        """Like `_read`, for little work and only if the connection that writes is idle; else None."""

    def run(self, run_id: str) -> RunRow | None:
        found = self._read_warm(lambda connection: fetch_on(connection)("run_by_id", run_id))
        if found is None:
            return super().run(run_id)
        return RunRow(*found[0]) if found else None

    def rows(
        self, kind: type[Kind], run: int, after: int = 0, limit: int = -1, keys: Collection[Key] | None = None
    ) -> list[Kind]:
        if keys is None and kind in _SHORT:
            few = _FEW if limit < 0 else min(limit, _FEW)
            found = self._read_warm(lambda connection: self._list(fetch_on(connection), kind, run, after, few))
            if found is not None and (len(found) < _FEW or len(found) == limit):
                return found
        return super().rows(kind, run, after, limit, keys)

    def _fetch(self, statement: str | Sequence[str], *bindings: object) -> list[Columns]:
        return self._read(lambda connection: fetch_on(connection)(statement, *bindings))

    def checkpoint(self, run_id: str, select: Select, *, attachments: bool = False) -> Selected | None:
        def work(fetch: Fetch) -> Selected | None:
            return self._selected(fetch, run_id, select, attachments=attachments)

        found = self._read_warm(lambda connection: [_in_snapshot(connection, work)])
        return found[0] if found is not None else self._snapshot(work)

    def _snapshot(self, work: Callable[[Fetch], Result]) -> Result:
        return self._read(lambda connection: _in_snapshot(connection, work))

    def _row_from(self, kind: type[Kind], columns: Columns) -> Kind:
        return sqlite_row_from(kind, columns)

    def _now_us(self) -> int:
        return self._clock.now_us()

    def _bind_texts(self, texts: Sequence[str]) -> str:
        return json.dumps(texts)

    def _bind_tag_key(self, key: str) -> str:
        return key

    def _expired_part(self) -> tuple[str, list[int | str]]:
        lease = self._clock.lease_time()
        return "runs_page_expired", [lease.us, lease.boot]

    def _file_bytes(self, _fetch: Fetch) -> int:
        return self._bytes_of("", "-wal", "-shm")

    def _estimate_usage(self, fetch: Fetch) -> Columns:
        from holdfast.store.sqlite.usage_estimate import estimate_usage  # loaded when it is needed

        return estimate_usage(fetch)

    def _bytes_of(self, *endings: str) -> int:
        files = [self.path + ending for ending in endings]
        return sum(os.path.getsize(file) for file in files if os.path.exists(file))

    def find_checkpoints(self, query: CheckpointQuery) -> list[Found]:
        return self._snapshot(lambda fetch: self._find(fetch, query))

    def _find(self, fetch: Fetch, query: CheckpointQuery) -> list[Found]:
        if query.run_id is None:

            def page(part: CheckpointQuery) -> list[Found]:
                names, bindings = all_parts(part)
                return self._with_run(CheckpointRow, fetch(names, *bindings, bound_limit(part.limit)))

            return found_by_pages(query, page)
        columns = fetch("run_by_id", query.run_id)
        run = RunRow(*columns[0]) if columns else None
        if run is None or query.workflow not in (None, run.workflow):
            return []
        if query.lane is not None and query.checkpoint_id is not None:
            found = find_checkpoint(fetch, sqlite_row_from, run.run, query.lane, query.checkpoint_id)
            return [(run, found)] if found and query.limit and is_wanted(query, run, found) else []

        def page_of_run(part: CheckpointQuery) -> list[Found]:
            names, bindings = found_of_run(run.run, part)
            return [(run, sqlite_row_from(CheckpointRow, row)) for row in fetch(names, *bindings)]

        return found_by_pages(query, page_of_run)

    def chunks(self, family: int, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        return self._read(lambda connection: dict(rows_in(fetch_on(connection), "chunks_in", family, hashes)))

    def packed(self, family: int, hashes: Sequence[bytes], held: Collection[int] = ()) -> PackedChunks:
        def work(fetch: Fetch) -> PackedChunks:
            found = {row[0]: Place(*row[1:]) for row in rows_in(fetch, "places_in", family, hashes)}
            wanted = {place.pack for place in found.values()}.difference(held)
            return PackedChunks(found, {n: rows[0][0] for n in wanted if (rows := fetch("pack_body", n, family))})

        return self._snapshot(work)

    def describe(self) -> About:
        def work(connection: apsw.Connection) -> dict[str, str]:
            names = ("journal_mode", "synchronous", "page_size", "user_version")
            found = {name: str(connection.pragma(name)) for name in names}
            return {"schema": found.pop("user_version"), **found}

        facts = {"sqlite": apsw.sqlite_lib_version(), "apsw": apsw.apsw_version(), **self._read(work)}
        facts["synchronous"] = {"2": "full", "3": "extra"}.get(facts["synchronous"], facts["synchronous"])
        facts["busy_timeout"] = f"{self._opener.timeout_s:g} s"
        return About(facts, self.path, self._bytes_of("", "-wal"))

    def check(self) -> list[str]:
        found = self._read(lambda connection: connection.execute("PRAGMA integrity_check").fetchall())
        problems = [str(row[0]) for row in found if row[0] != "ok"]
        return problems or list(key_problems(self._fetch, self._row_from))


def found_of_run(run: int, query: CheckpointQuery) -> Parts:
    """The parts of a search of one run."""
    names, bindings = filter_parts(query)
    end = key_of(run, 0) + number_before(query)
    last = "found_of_run_end" if query.by_id is None else "found_of_run_by_id_end"
    return ["found_of_run", *names, last], [key_of(run, 0), end, *bindings, bound_limit(query.limit)]


def key_problems(fetch: Fetch, row_from: RowFrom) -> Iterator[str]:
    """The problems of columns that no checksum covers. Safe with concurrent writers: each statement sees one moment.

    A checksum covers the fields of a row and, through the incarnation, the run to which its `key` assigns it. It does
    not cover the column `run`, by which some statements find the row, nor a row that a damaged flag hides from lists.
    """
    for kind, number, run_id, run in fetch("rows_of_another_run"):
        yield f"{kind} {number} of run {run_id!r}: its column run has {run}, the number of another run"
    for kind, run in fetch("rows_without_run"):
        yield f"there are {kind} of run number {run}, which does not exist"
    for kind, run in fetch("rows_numbered_zero"):  # lists begin at 1
        yield f"run number {run} has {kind} number 0"
    for kind, number, run in fetch("rows_with_invalid_flag"):
        yield f"{kind} {number} of run number {run}: a flag is neither 0 nor 1"
    for run_id, lane in fetch("lanes_without_head"):
        yield f"lane {lane!r} of run {run_id!r}: it does not match the checkpoint that is its head"
    for run_id, counted, found in fetch("inboxes_miscounted"):
        yield f"the inbox of run {run_id!r}: it has {found} items, not {counted}"
    for run_id, incarnation, *columns in fetch("items_taken"):  # lists of the inbox do not show them
        item = row_from(ItemRow, tuple(columns))
        try:
            verify_checksum(item, incarnation, f"inbox item {item.number} of run {run_id!r}")
        except DamagedData as damage:
            yield f"{damage.place}: {damage.reason}"
