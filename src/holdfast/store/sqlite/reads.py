"""Reading from SQLite."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import apsw

from holdfast.clock import Clock
from holdfast.model.rows import (
    AttachmentRow,
    CheckpointRow,
    EffectRow,
    EntryRow,
    GateRow,
    ItemRow,
    MessageRow,
    RunRow,
    TimerRow,
)
from holdfast.store.finding import Found, found_by_pages, is_wanted
from holdfast.store.port import About, CheckpointQuery, RunQuery, RunRows, Seen, Select, StorePort, Usage
from holdfast.store.sql.finding import all_parts, filter_parts, leading_part, number_before
from holdfast.store.sql.rows import RUN_COLUMNS, built, key_of, last_key, read_run_rows
from holdfast.store.sql.statements import statements
from holdfast.store.sqlite.connection import Opener
from holdfast.store.sqlite.rows import any_row, checkpoint_row, effect_row, find_checkpoint, first, item_row

Result = TypeVar("Result")
Binding = int | str | bytes | None


class SqliteReads(StorePort):
    """The reading half of the store. Every verb is one statement, or a few in one read transaction."""

    path: str
    _clock: Clock
    _opener: Opener

    def _read(self, work: Callable[[apsw.Connection], Result]) -> Result:
        """Run `work` on a connection that nobody else uses meanwhile."""
        raise NotImplementedError

    def _all(self, name: str, *bindings: Binding) -> list[Any]:
        sql = statements()[name]
        return self._read(lambda connection: connection.execute(sql, bindings).fetchall())

    def _first(self, name: str, *bindings: Binding) -> Any:
        sql = statements()[name]
        return self._read(lambda connection: first(connection.execute, sql, bindings))

    def run(self, run_id: str) -> RunRow | None:
        found = self._first("run_by_id", run_id)
        return built(RunRow, found) if found else None

    def run_rows(self, run_id: str) -> RunRows | None:
        def work(connection: apsw.Connection) -> RunRows | None:
            def fetch(name: str, *bindings: Binding) -> list[Any]:
                return connection.execute(statements()[name], bindings).fetchall()

            return read_run_rows(run_id, fetch, any_row, -1)

        return self._read(lambda connection: _snapshot(connection, work))

    def runs(self, query: RunQuery) -> list[RunRow]:
        statement, bindings = _runs_page(query)
        found = self._read(lambda connection: connection.execute(statement, bindings).fetchall())
        return [built(RunRow, row) for row in found]

    def checkpoint(self, run_id: str, select: Select) -> tuple[RunRow, CheckpointRow | None] | None:
        return self._read(lambda connection: _snapshot(connection, lambda c: _checkpoint(c, run_id, select)))

    def whole_checkpoint(
        self, run_id: str, select: Select
    ) -> tuple[RunRow, CheckpointRow | None, list[AttachmentRow]] | None:
        def work(connection: apsw.Connection) -> tuple[RunRow, CheckpointRow | None, list[AttachmentRow]] | None:
            found = _checkpoint(connection, run_id, select)
            if found is None or found[1] is None:
                return None if found is None else (found[0], None, [])
            run, row = found
            assert row is not None
            bindings = (run.run, row.lane, row.checkpoint_id)
            rows = connection.execute(statements()["attachments_of_checkpoint"], bindings).fetchall()
            return run, row, [built(AttachmentRow, one) for one in rows]

        return self._read(lambda connection: _snapshot(connection, work))

    def checkpoints(self, run: int, after: int, limit: int) -> list[CheckpointRow]:
        return [checkpoint_row(row) for row in self._all("checkpoints_after", key_of(run, after), last_key(run), limit)]

    def find_checkpoints(self, query: CheckpointQuery) -> list[tuple[RunRow, CheckpointRow]]:
        return self._read(lambda connection: _snapshot(connection, lambda inside: _found(inside, query)))

    def entries(self, run: int, after: int, limit: int) -> list[EntryRow]:
        return [built(EntryRow, row) for row in self._all("entries_after", key_of(run, after), last_key(run), limit)]

    def entry_at(self, run: int, position: int) -> EntryRow | None:
        found = self._first("entry_at", key_of(run, 0), key_of(run, position))
        return built(EntryRow, found) if found else None

    def effects(self, run: int) -> list[EffectRow]:
        return [effect_row(row) for row in self._all("effects", key_of(run, 0), last_key(run))]

    def effect(self, run: int, key: str) -> EffectRow | None:
        found = self._first("effect", run, key)
        return effect_row(found) if found else None

    def family_effects(self, family: int, key: str) -> list[tuple[RunRow, EffectRow]]:
        found = self._all("effects_of_family", key, family)
        return [(built(RunRow, row[:RUN_COLUMNS]), effect_row(row[RUN_COLUMNS:])) for row in found]

    def attachments(self, run: int, lane: str | None, checkpoint_id: str | None) -> list[AttachmentRow]:
        if lane is None or checkpoint_id is None:
            rows = [built(AttachmentRow, row) for row in self._all("attachments", run)]
            return [r for r in rows if lane in (None, r.lane) and checkpoint_id in (None, r.checkpoint_id)]
        return [built(AttachmentRow, row) for row in self._all("attachments_of_checkpoint", run, lane, checkpoint_id)]

    def attachments_of(self, run: int, places: Sequence[tuple[str, str]]) -> list[AttachmentRow]:
        sql, wanted = statements()["attachments_of_checkpoint"], sorted(set(places))

        def work(connection: apsw.Connection) -> list[AttachmentRow]:
            found = [connection.execute(sql, (run, *place)).fetchall() for place in wanted]
            return [built(AttachmentRow, row) for rows in found for row in rows]

        return self._read(lambda connection: _snapshot(connection, work))

    def gates(self, run: int | None, state: str | None, limit: int) -> list[tuple[RunRow, GateRow]]:
        if run is not None:
            found = _with_run(GateRow, self._all("gates_of_run", run))
            return [pair for pair in found if state in (None, pair[1].state)][: None if limit < 0 else limit]
        if state is None:
            return _with_run(GateRow, self._all("gates_all", limit))
        if state == "open":
            return _with_run(GateRow, self._all("gates_open", limit))
        return _with_run(GateRow, self._all("gates_of_state", state, limit))

    def expired_gates(self, limit: int) -> list[tuple[RunRow, GateRow]]:
        return _with_run(GateRow, self._all("gates_expired", self._clock.now_us(), limit))

    def timers(self, run: int) -> list[TimerRow]:
        return [built(TimerRow, row) for row in self._all("timers", run)]

    def due_timers(self, limit: int) -> list[tuple[RunRow, TimerRow]]:
        return _with_run(TimerRow, self._all("timers_due", self._clock.now_us(), limit))

    def expired_claims(self, limit: int) -> list[RunRow]:
        lease = self._clock.lease_time()
        return [built(RunRow, row) for row in self._all("runs_held", lease.us, lease.boot, limit)]

    def held(self, limit: int, after: int = 0) -> list[RunRow]:
        return [built(RunRow, row) for row in self._all("runs_held_after", after, limit)]

    def inbox(self, run: int, after: int, limit: int) -> list[ItemRow]:
        return [item_row(row) for row in self._all("items_after", key_of(run, after), last_key(run), limit)]

    def outbox(self, limit: int) -> list[tuple[RunRow, MessageRow]]:
        return _with_run(MessageRow, self._all("messages", limit))

    def chunks(self, family: int, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        sql = statements()["chunk"]

        def work(connection: apsw.Connection) -> dict[bytes, bytes]:
            found = {name: first(connection.execute, sql, (family, name)) for name in hashes}
            return {name: row[0] for name, row in found.items() if row}

        return self._read(work)

    def chunk_sizes(self, family: int) -> dict[bytes, int]:
        return dict(self._all("chunk_sizes", family))

    def roots(self, family: int) -> tuple[list[bytes], dict[int, Seen]]:
        def work(connection: apsw.Connection) -> tuple[list[bytes], dict[int, Seen]]:
            rows = family_rows(connection, family)
            seen = {row.run: Seen(row.serial, row.attached, row.rewrites) for row in rows}
            return [root for row in rows for root in roots_after(connection, row.run, Seen())], seen

        return self._read(lambda connection: _snapshot(connection, work))

    def usage(self) -> Usage:
        statuses = dict(self._all("usage_runs"))
        files = [self.path, f"{self.path}-wal", f"{self.path}-shm"]
        on_disk = sum(os.path.getsize(file) for file in files if os.path.exists(file))
        counts: tuple[int, int, int, int, int, int, int] = self._first("usage")
        return Usage(statuses, *counts, on_disk)

    def about(self) -> About:
        def work(connection: apsw.Connection) -> dict[str, str]:
            names = ("journal_mode", "synchronous", "page_size", "user_version")
            found = {name: str(connection.pragma(name)) for name in names}
            return {"schema": found.pop("user_version"), **found}

        facts = {"sqlite": apsw.sqlite_lib_version(), "apsw": apsw.apsw_version(), **self._read(work)}
        facts["synchronous"] = {"2": "full", "3": "extra"}.get(facts["synchronous"], facts["synchronous"])
        on_disk = sum(os.path.getsize(file) for file in (self.path, f"{self.path}-wal") if os.path.exists(file))
        return About({**facts, "waits for others": f"{self._opener.timeout_s:g} s"}, self.path, on_disk)

    def check(self) -> list[str]:
        found = self._read(lambda connection: connection.execute("PRAGMA integrity_check").fetchall())
        return [str(row[0]) for row in found if row[0] != "ok"]


def family_rows(connection: apsw.Connection, family: int) -> list[RunRow]:
    """The runs of a family."""
    return [built(RunRow, row) for row in connection.execute(statements()["runs_of_family"], (family,)).fetchall()]


def roots_after(connection: apsw.Connection, run: int, seen: Seen) -> list[bytes]:
    """The roots of a run that are not among what was seen."""
    sql = statements()
    last = last_key(run)
    found: list[Any] = connection.execute(sql["checkpoint_roots"], (key_of(run, seen.serial), last)).fetchall()
    found += connection.execute(sql["attachment_roots"], (key_of(run, seen.attached), last)).fetchall()
    return [row[0] for row in found]


def _checkpoint(connection: apsw.Connection, run_id: str, select: Select) -> tuple[RunRow, CheckpointRow | None] | None:
    found = first(connection.execute, statements()["run_by_id"], (run_id,))
    if not found:
        return None
    row = built(RunRow, found)
    if select.checkpoint_id is not None:
        return row, find_checkpoint(connection.execute, row.run, select.lane, select.checkpoint_id)
    name, bindings = _selection(row, select)
    found = first(connection.execute, statements()[name], bindings)
    return row, checkpoint_row(found) if found else None


def _snapshot(connection: apsw.Connection, work: Callable[[apsw.Connection], Result]) -> Result:
    """Run several statements on one state of the database."""
    connection.execute("BEGIN")
    try:
        return work(connection)
    finally:
        connection.execute("COMMIT")


def _runs_page(query: RunQuery) -> tuple[str, list[Binding]]:
    """The statement, put together from fixed parts, and its bindings. What narrows most leads, so its index is used."""
    sql = statements()
    page, leading, tags = leading_part(query)
    parts = [sql[page]]
    bindings: list[Binding] = list(leading)
    for key, value in tags:
        parts.append(sql["runs_page_tag"])
        bindings += [key, value]
    if len(query.statuses) == 1:
        parts.append(sql["runs_page_status"])
        bindings.append(query.statuses[0])
    elif query.statuses:
        parts.append(sql["runs_page_statuses"])
        bindings.append(json.dumps(query.statuses))
    if query.workflow is not None:
        parts.append(sql["runs_page_workflow"])
        bindings.append(query.workflow)
    if query.family is not None:
        parts.append(sql["runs_page_family"])
        bindings.append(query.family)
    parts.append(sql[f"{page}_end"])
    return " ".join(parts), [*bindings, query.limit]


def _found(connection: apsw.Connection, query: CheckpointQuery) -> list[Found]:
    """The checkpoints that are searched for, in the snapshot of this connection."""
    if query.run_id is None:

        def page(part: CheckpointQuery) -> list[Found]:
            names, bindings = all_parts(part)
            rows = connection.execute(_joined(names), [*bindings, part.limit]).fetchall()
            return [(built(RunRow, row[:RUN_COLUMNS]), checkpoint_row(row[RUN_COLUMNS:])) for row in rows]

        return found_by_pages(query, page)
    columns = first(connection.execute, statements()["run_by_id"], (query.run_id,))
    if not columns:
        return []
    run = built(RunRow, columns)
    if query.workflow not in (None, run.workflow):
        return []
    if query.lane is not None and query.checkpoint_id is not None:
        found = find_checkpoint(connection.execute, run.run, query.lane, query.checkpoint_id)
        return [(run, found)] if found and query.limit and is_wanted(query, run, found) else []

    def page_of_run(part: CheckpointQuery) -> list[Found]:
        statement, bindings = found_of_run(run.run, part)
        return [(run, checkpoint_row(row)) for row in connection.execute(statement, bindings).fetchall()]

    return found_by_pages(query, page_of_run)


def found_of_run(run: int, query: CheckpointQuery) -> tuple[str, list[Binding]]:
    """The statement, put together from fixed parts, that searches one run, and its bindings."""
    names, bindings = filter_parts(query)
    end = key_of(run, 0) + number_before(query)
    last = "found_of_run_end" if query.by_id is None else "found_of_run_by_id_end"
    return _joined(["found_of_run", *names, last]), [key_of(run, 0), end, *bindings, query.limit]


def _joined(names: list[str]) -> str:
    return " ".join([statements()[name] for name in names])


def _selection(row: RunRow, select: Select) -> tuple[str, tuple[Binding, ...]]:
    """The statement and bindings for one checkpoint."""
    if select == Select():
        return "checkpoint_by_key", (key_of(row.run, row.head),)
    end = key_of(row.run, select.before) if select.before is not None else last_key(row.run) + 1
    start = key_of(row.run, 0)
    if select.step is not None:
        return "checkpoint_by_step", (start, end, select.lane, select.step)
    if select.at is not None:
        return "checkpoint_by_cover", (start, end, select.lane, select.at)
    if select.before is None and select.lane:
        return "checkpoint_of_lane", (row.run, select.lane)
    return "checkpoint_before", (start, end, select.lane)


def _with_run(kind: Any, rows: list[Any]) -> list[tuple[RunRow, Any]]:
    """Rows of a join: the run's columns, then the other's."""
    return [(RunRow(*row[:RUN_COLUMNS]), kind(*row[RUN_COLUMNS:])) for row in rows]
