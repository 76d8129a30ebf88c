"""The reads of all SQL stores, by named statements.

A backend executes the statements, one alone or several on one snapshot, and overrides the reads for which its database
has a better way. `SqlTransactionReads` are the reads of a decision, inside the transaction that writes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from holdfast.model.rows import (
    AttachmentRow,
    CheckpointRow,
    EffectRow,
    EntryRow,
    GateRow,
    ItemRow,
    LaneRow,
    MessageRow,
    Row,
    RunRow,
    TimerRow,
)
from holdfast.store.journal_prune import last_of
from holdfast.store.packs import Packs, PackSize, Place
from holdfast.store.port import Key, Kind, RunCounts, RunQuery, RunRows, ScanMark, Select, Selected, StorePort, Usage
from holdfast.store.sql.statements import (
    Columns,
    Fetch,
    Parts,
    RowFrom,
    end_of_prefix,
    find_checkpoint,
    key_of,
    last_key,
    runs_page,
)

Result = TypeVar("Result")

_NO_LIMIT: Final = 2**62
_COUNTED_BYTES_MAX: Final = 64 * 2**20
"""A store that takes more bytes estimates what it holds."""
_PREFIX_SPAN: Final = 16_384
"""How many numbers of runs are searched first for ids with a prefix."""
_RUN_COLUMNS: Final = len(RunRow.__struct_fields__)


class _Listing(NamedTuple):
    """The statement that lists one kind of rows of a run."""

    name: str
    numbered: bool
    """Whether it takes a range of keys instead of the run's number."""
    keyed: str = ""
    """The statement that finds rows by one of their keys."""


_LISTINGS: Final[dict[type[Row], _Listing]] = {
    CheckpointRow: _Listing("checkpoints_after", numbered=True),
    EntryRow: _Listing("entries_after", numbered=True, keyed="entry_at"),
    EffectRow: _Listing("effects_after", numbered=True, keyed="effect"),
    AttachmentRow: _Listing("attachments", numbered=False, keyed="attachments_of_checkpoint"),
    GateRow: _Listing("gates_of_run", numbered=False, keyed="gate"),
    TimerRow: _Listing("timers", numbered=False),
    ItemRow: _Listing("items_after", numbered=True),
    MessageRow: _Listing("messages_after", numbered=True),
}
_GATES: Final = {None: "gates_all", "open": "gates_open"}


class SqlReads(StorePort):
    """The reads of a SQL store. Every method executes one statement, or a few on one snapshot."""

    @abstractmethod
    def _row_from(self, kind: type[Kind], columns: Columns) -> Kind:
        """A row from its columns, which are in the order of its fields."""

    @abstractmethod
    def _fetch(self, statement: str | Sequence[str], *bindings: object) -> list[Columns]:
        """Execute a statement, given by its name or the names of its parts, on an idle connection."""

    @abstractmethod
    def _snapshot(self, work: Callable[[Fetch], Result]) -> Result:
        """Execute several statements on one snapshot."""

    @abstractmethod
    def _now_us(self) -> int: ...

    @abstractmethod
    def _bind_texts(self, texts: Sequence[str]) -> object:
        """A list of texts as one binding."""

    @abstractmethod
    def _bind_tag_key(self, key: str) -> object:
        """The key of a tag as it is stored."""

    @abstractmethod
    def _expired_part(self) -> tuple[str, list[int | str]]:
        """The part that selects claims whose lease has ended, and its bindings."""

    @abstractmethod
    def _file_bytes(self, fetch: Fetch) -> int: ...

    @abstractmethod
    def _estimate_usage(self, fetch: Fetch) -> Columns:
        """Estimates of what the statement `usage` counts, at a cost that does not grow with the store."""

    # --- runs --------------------------------------------------------------------------------------------------------

    def run(self, run_id: str) -> RunRow | None:
        found = self._fetch("run_by_id", run_id)
        return RunRow(*found[0]) if found else None

    def runs(self, query: RunQuery) -> list[RunRow]:
        if query.prefix and query.limit >= 0 and query.claimed is None:
            return self._runs_of_prefix(query)
        return self._read_page(query)

    def _read_page(self, query: RunQuery, first: int | None = None) -> list[RunRow]:
        parts, bindings = self._runs_page(query, first)
        return [RunRow(*row) for row in self._fetch(parts, *bindings)]

    def _runs_page(self, query: RunQuery, first: int | None = None) -> Parts:
        expired = self._expired_part() if query.claimed == "expired" else None
        tags = [(self._bind_tag_key(key), value) for key, value in query.tags]
        parts, bindings = runs_page(query, tags, self._bind_texts, expired, first)
        return parts, [*bindings, bound_limit(query.limit)]

    def _runs_of_prefix(self, query: RunQuery) -> list[RunRow]:
        """Search the newest numbers, in growing ranges, while many ids have the prefix; else read all of these."""
        rows: list[RunRow] = []
        before, span = query.before, _PREFIX_SPAN
        while True:
            most = span // 16
            [(count, newest)] = self._fetch("count_prefix", query.prefix, end_of_prefix(query.prefix), most)
            before = newest + 1 if before is None else min(before, newest + 1)
            rest = query._replace(before=before, limit=query.limit - len(rows))
            if count < most:
                return rows + self._read_page(rest)
            rows += self._read_page(rest, max(1, before - span))
            if len(rows) == query.limit or before <= span:
                return rows
            before, span = before - span, span * 8

    def run_rows(self, run_id: str) -> RunRows | None:
        def work(fetch: Fetch) -> RunRows | None:
            found = fetch("run_by_id", run_id)
            if not found:
                return None
            run = RunRow(*found[0])

            def rows(kind: type[Kind]) -> list[Kind]:
                return self._list(fetch, kind, run.run, 0, _NO_LIMIT)

            items = fetch("items_all", key_of(run.run, 0), last_key(run.run))
            return RunRows(
                run=run,
                checkpoints=rows(CheckpointRow),
                entries=rows(EntryRow),
                effects=rows(EffectRow),
                attachments=rows(AttachmentRow),
                gates=rows(GateRow),
                items=[self._row_from(ItemRow, columns) for columns in items],
                timers=rows(TimerRow),
                messages=rows(MessageRow),
            )

        return self._snapshot(work)

    # --- rows of one run ---------------------------------------------------------------------------------------------

    def rows(
        self, kind: type[Kind], run: int, after: int = 0, limit: int = -1, keys: Collection[Key] | None = None
    ) -> list[Kind]:
        if keys is None:
            return self._list(self._fetch, kind, run, after, bound_limit(limit))
        found = self._rows_by_key(kind, run, keys)
        if _LISTINGS[kind].numbered:
            found = [row for row in found if _number(row) > after]
        return found if limit < 0 else found[:limit]

    def _list(self, fetch: Fetch, kind: type[Kind], run: int, after: int, limit: int) -> list[Kind]:
        listing = _LISTINGS[kind]
        place = (key_of(run, after), last_key(run)) if listing.numbered else (run,)
        return [self._row_from(kind, columns) for columns in fetch(listing.name, *place, limit)]

    def _rows_by_key(self, kind: type[Kind], run: int, keys: Collection[Key]) -> list[Kind]:
        keyed = _LISTINGS[kind].keyed

        def work(fetch: Fetch) -> list[Kind]:
            found: list[Kind] = []
            for key in wanted:
                rows = [self._row_from(kind, columns) for columns in fetch(keyed, *_key_bindings(run, key))]
                # `entry_at` finds the last entry up to a position, which may not cover it.
                found += [row for row in rows if not isinstance(row, EntryRow) or last_of(row) >= key]
            return found

        wanted: list[Any] = sorted(set(keys))  # keys of one kind are of one type
        rows = work(self._fetch) if len(wanted) == 1 else self._snapshot(work)
        if kind is GateRow:
            gates: list[Any] = rows
            return sorted(gates, key=lambda gate: (gate.opened_us, gate.gate))
        return sorted(dict.fromkeys(rows), key=_number) if _LISTINGS[kind].numbered else rows

    def checkpoint(self, run_id: str, select: Select, *, attachments: bool = False) -> Selected | None:
        return self._snapshot(lambda fetch: self._selected(fetch, run_id, select, attachments=attachments))

    def _selected(self, fetch: Fetch, run_id: str, select: Select, *, attachments: bool) -> Selected | None:
        found = fetch("run_by_id", run_id)
        if not found:
            return None
        run = RunRow(*found[0])
        row = self._select(fetch, run, select)
        if row is None or not attachments:
            return Selected(run, row)
        beside = fetch("attachments_of_checkpoint", run.run, row.lane, row.checkpoint_id)
        return Selected(run, row, [AttachmentRow(*columns) for columns in beside])

    def _select(self, fetch: Fetch, run: RunRow, select: Select) -> CheckpointRow | None:
        if select.checkpoint_id is not None:
            return find_checkpoint(fetch, self._row_from, run.run, select.lane, select.checkpoint_id)
        name, bindings = _selection(run, select)
        found = fetch(name, *bindings)
        return self._row_from(CheckpointRow, found[0]) if found else None

    # --- rows of several runs ----------------------------------------------------------------------------------------

    def family_effects(self, family: int, key: str) -> list[tuple[RunRow, EffectRow]]:
        return self._with_run(EffectRow, self._fetch("effects_of_family", key, family))

    def gates(
        self, state: str | None, limit: int, after: tuple[int, int, str] | None = None
    ) -> list[tuple[RunRow, GateRow]]:
        name = _GATES.get(state, "gates_of_state")
        bindings = (state,) if name == "gates_of_state" else ()
        place = after or (-1, -1, "")
        return self._with_run(GateRow, self._fetch(name, *bindings, *place, bound_limit(limit)))

    def due(self, kind: type[Kind], limit: int) -> list[tuple[RunRow, Kind]]:
        if kind is MessageRow:
            return self._with_run(kind, self._fetch("messages", bound_limit(limit)))
        name = {GateRow: "gates_expired", TimerRow: "timers_due"}[kind]
        return self._with_run(kind, self._fetch(name, self._now_us(), bound_limit(limit)))

    def _with_run(self, kind: type[Kind], rows: list[Columns]) -> list[tuple[RunRow, Kind]]:
        """Rows of a join: the run's columns, then the other's."""
        return [(RunRow(*row[:_RUN_COLUMNS]), self._row_from(kind, row[_RUN_COLUMNS:])) for row in rows]

    def count_runs(self, can_see: Callable[[str], bool] | None = None) -> RunCounts:
        from holdfast.store.sql.run_counts import count_runs, count_visible_runs  # loaded when it is needed

        if can_see is None:
            return self._snapshot(count_runs)
        return self._snapshot(lambda fetch: count_visible_runs(fetch, can_see, self._bind_texts))

    def open_gates(self) -> int:
        return int(self._fetch("count_open_gates")[0][0])

    def published(self) -> dict[str, bytes]:
        return dict(self._fetch("published"))

    # --- chunks and counts -------------------------------------------------------------------------------------------

    def chunk_sizes(self, family: int) -> dict[bytes, int]:
        return dict(self._fetch("chunk_sizes", family))

    def packs(self, family: int) -> Packs:
        def work(fetch: Fetch) -> Packs:
            places = {name: Place(*rest) for name, *rest in fetch("places", family)}
            return Packs(places, {number: PackSize(*sizes) for number, *sizes in fetch("pack_sizes", family)})

        return self._snapshot(work)

    def roots(self, family: int) -> tuple[list[bytes], dict[int, ScanMark]]:
        def work(fetch: Fetch) -> tuple[list[bytes], dict[int, ScanMark]]:
            rows = [RunRow(*columns) for columns in fetch("runs_of_family", family)]
            seen = {row.run: ScanMark(row.serial, row.attached, row.rewrites) for row in rows}
            return [root for row in rows for root in roots_after(fetch, row.run, ScanMark())], seen

        return self._snapshot(work)

    def usage(self) -> Usage:
        from holdfast.store.sql.run_counts import count_runs  # loaded when it is needed

        def work(fetch: Fetch) -> Usage:
            file_bytes = self._file_bytes(fetch)
            is_estimated = file_bytes > _COUNTED_BYTES_MAX
            found = self._estimate_usage(fetch) if is_estimated else fetch("usage")[0]
            checkpoints, entries, effects, attachments, chunks, chunk_bytes, root_bytes = map(int, found)
            return Usage(
                runs=count_runs(fetch),
                checkpoints=checkpoints,
                entries=entries,
                effects=effects,
                attachments=attachments,
                chunks=chunks,
                chunk_bytes=chunk_bytes,
                root_bytes=root_bytes,
                file_bytes=file_bytes,
                is_estimated=is_estimated,
            )

        return self._snapshot(work)


def bound_limit(limit: int) -> int:
    """The binding of a limit; -1 means all."""
    return _NO_LIMIT if limit < 0 else limit


def roots_after(fetch: Fetch, run: int, seen: ScanMark) -> list[bytes]:
    """The roots of a run that are newer than `seen`."""
    last = last_key(run)
    found = fetch("checkpoint_roots", key_of(run, seen.serial), last)
    found += fetch("attachment_roots", key_of(run, seen.attached), last)
    return [row[0] for row in found]


def _number(row: Row) -> int:
    """The number, or the position, of a numbered row: its first field."""
    number: int = getattr(row, row.__struct_fields__[0])
    return number


def _key_bindings(run: int, key: Key) -> tuple[int | str, ...]:
    if isinstance(key, int):
        return key_of(run, 0), key_of(run, key)
    return (run, *key) if isinstance(key, tuple) else (run, key)


def _selection(run: RunRow, select: Select) -> tuple[str, tuple[int | str, ...]]:
    """The statement and bindings for one checkpoint."""
    if select == Select():
        return "checkpoint_by_key", (key_of(run.run, run.head),)
    end = key_of(run.run, select.before) if select.before is not None else last_key(run.run) + 1
    start = key_of(run.run, 0)
    if select.step is not None:
        return "checkpoint_by_step", (start, end, select.lane, select.step)
    if select.at is not None:
        return "checkpoint_by_cover", (start, end, select.lane, select.at)
    if select.before is None and select.lane:
        return "checkpoint_of_lane", (run.run, select.lane)
    return "checkpoint_before", (start, end, select.lane)


class SqlTransactionReads:
    """The reads of a decision, on the connection that writes."""

    def __init__(self, fetch: Fetch, row_from: RowFrom) -> None:
        self._fetch = fetch
        self._row_from = row_from

    def _first(self, kind: type[Kind], name: str, *bindings: object) -> Kind | None:
        found = self._fetch(name, *bindings)
        return self._row_from(kind, found[0]) if found else None

    def checkpoint(self, run: int, lane: str, checkpoint_id: str) -> CheckpointRow | None:
        return find_checkpoint(self._fetch, self._row_from, run, lane, checkpoint_id)

    def lane(self, run: int, lane: str) -> LaneRow | None:
        return self._first(LaneRow, "lane", run, lane)

    def effect(self, run: int, key: str) -> EffectRow | None:
        return self._first(EffectRow, "effect", run, key)

    def attachment(self, run: int, lane: str, checkpoint_id: str, key: str) -> AttachmentRow | None:
        return self._first(AttachmentRow, "attachment", run, lane, checkpoint_id, key)

    def gate(self, run: int, gate: str) -> GateRow | None:
        return self._first(GateRow, "gate", run, gate)

    def timer(self, run: int, timer: str) -> TimerRow | None:
        return self._first(TimerRow, "timer", run, timer)

    def item(self, run: int, key: str) -> ItemRow | None:
        return self._first(ItemRow, "item_by_key", run, key)
