"""Lists of runs for people: with filters that the store does not have, and what each run waits for in one line.

The store filters by status, workflow, metadata and the beginning of ids. Everything else is compared here, for a
limited number of runs per page; a page then reports how far it has searched. Runs are numbered in the order of their
creation, so a limit in time is found by bisection.
"""

from __future__ import annotations

import datetime as dt
import heapq
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from holdfast.errors import DamagedData, HoldfastError
from holdfast.ids import display_name
from holdfast.inspect.calls import text_of
from holdfast.inspect.rows import error_text
from holdfast.inspect.threads import THREADS, readable_interrupts
from holdfast.model.rows import (
    AT_WORK,
    BEGIN,
    CANCELLED,
    FAILED,
    PAUSED,
    READY,
    TERMINAL,
    WAITING,
    EntryRow,
    RunRow,
    TimerRow,
)
from holdfast.model.views import GateInfo, RunInfo, View
from holdfast.operations.context import StoreContext
from holdfast.operations.gates import gate_info
from holdfast.operations.store import Store
from holdfast.operations.views import entry_view, metadata_tags, moment, run_info
from holdfast.store.decide import is_live
from holdfast.store.port import RunQuery

PAGE: Final = 50
_BATCH: Final = 500
SCANNED_MAX: Final = 5_000
"""How many runs one page compares."""
GATES_SCANNED_MAX: Final = 1_000
_SKEW_US: Final = 60_000_000
"""By how much the clocks of processes that create runs may differ."""
_NAMES_MAX: Final = 20
"""How many workflows are listed by their index; more are compared one by one."""
_MARKED_MAX: Final = 200
"""How many runs are read for a mark."""
_EPOCH: Final = moment(0)


class RunFilter(View, frozen=True, kw_only=True):
    """Which runs."""

    statuses: tuple[str, ...] = ()
    workflow: str = ""
    metadata: Mapping[str, Any] = {}
    prefix: str = ""
    text: str = ""
    """Occurs in the id, the workflow or the metadata; upper and lower case are the same."""
    since: dt.datetime | None = None
    until: dt.datetime | None = None
    can_see: Callable[[str], bool] | None = None
    """Whether runs of a workflow are listed; None: all."""
    names: tuple[str, ...] = ()
    """If `can_see` allows only these workflows, their names."""
    has_gates: bool = False
    """Only runs with an open gate."""
    hidden: tuple[str, ...] = ()
    """Workflows whose runs are not listed."""
    shown: Callable[[Any], Any] = lambda value: value
    """What of the metadata is compared with `text`."""


class RunLine(View, frozen=True, kw_only=True):
    """A run in a list."""

    run_id: str
    info: RunInfo | None
    """None if it is damaged."""
    number: int
    commit: str
    problem: str = ""
    gates: tuple[GateInfo, ...] = ()
    """The open ones, if it waits for an answer."""
    text: str = ""
    """What it waits for, or its error, in one line; empty if gates say it."""
    until: dt.datetime | None = None
    """When a wait is over."""


class RunPage(View, frozen=True, kw_only=True):
    """A page of a list."""

    lines: tuple[RunLine, ...]
    following: int | None
    """The run number before which the next page starts; None if there is none."""
    is_cut: bool = False
    """Whether the search was stopped before the page was full."""
    reached: dt.datetime | None = None
    """How far back it has searched."""


def run_page(store: Store, wanted: RunFilter, *, before: int | None = None, limit: int = PAGE) -> RunPage:
    """A page of runs, newest first.

    Example:
        [line.run_id for line in run_page(store, RunFilter(statuses=("failed",))).lines]
    """
    core = store.access.core
    found: list[RunRow] = []
    scanned = 0
    last: RunRow | None = None
    most = GATES_SCANNED_MAX if wanted.has_gates else SCANNED_MAX
    for row in _rows(core, wanted, before, limit):
        if len(found) == limit or scanned >= most:
            assert last is not None
            lines = tuple(_line(core, one) for one in found)
            is_cut = len(found) < limit
            return RunPage(lines=lines, following=last.run, is_cut=is_cut, reached=_moment(last.created_us))
        if wanted.since is not None and row.created_us < _us(wanted.since) - _SKEW_US:
            break
        scanned, last = scanned + 1, row
        if _is_wanted(row, wanted) and (not wanted.has_gates or _gates(core, row)):
            found.append(row)
    return RunPage(lines=tuple(_line(core, one) for one in found), following=None)


def read_marks(store: Store, wanted: RunFilter, *, before: int | None = None, limit: int = PAGE) -> list[str]:
    """The ids of the last commits of the runs that the store finds by its own filters."""
    pages = _pages(store.access.core, _query(wanted, before, limit))
    rows = [row for row in islice(pages, _MARKED_MAX) if row.workflow not in wanted.hidden][:limit]
    return [f"{row.run}.{row.commit_id.hex()}" for row in rows]


def _query(wanted: RunFilter, before: int | None, limit: int) -> RunQuery:
    tags = metadata_tags(dict(wanted.metadata))
    return RunQuery(wanted.statuses, wanted.workflow or None, tags, before, limit, wanted.prefix)


def _rows(core: StoreContext, wanted: RunFilter, before: int | None, limit: int) -> Iterator[RunRow]:
    if wanted.until is not None:
        start = _number_at(core, _us(wanted.until) + _SKEW_US) + 1
        before = start if before is None else min(before, start)
    batch = _BATCH if wanted.text or wanted.since or wanted.until or wanted.can_see or wanted.has_gates else limit + 1
    names = [wanted.workflow] if wanted.workflow else list(wanted.names)
    if wanted.can_see is None or len(names) > _NAMES_MAX or not names:
        yield from _pages(core, _query(wanted, before, batch))
        return
    lists = [_pages(core, _query(wanted, before, limit + 1)._replace(workflow=name)) for name in names]
    yield from heapq.merge(*lists, key=lambda row: -row.run)


def _pages(core: StoreContext, query: RunQuery) -> Iterator[RunRow]:
    while True:
        rows = core.port.runs(query)
        yield from rows
        if len(rows) < query.limit:
            return
        query = query._replace(before=rows[-1].run)


def _number_at(core: StoreContext, us: int) -> int:
    """The number of the newest run created at or before a time; 0 if there is none."""
    newest = core.port.runs(RunQuery(limit=1))
    low, high = 0, newest[0].run if newest else 0
    while low < high:  # the answer is in low … high
        middle = (low + high + 1) // 2
        rows = core.port.runs(RunQuery(before=middle + 1, limit=1))
        if not rows or rows[0].created_us <= us:
            low = middle
        else:
            high = rows[0].run - 1
    return low


def _is_wanted(row: RunRow, wanted: RunFilter) -> bool:
    if row.workflow in wanted.hidden or (wanted.can_see is not None and not wanted.can_see(row.workflow)):
        return False
    if wanted.since is not None and row.created_us < _us(wanted.since):
        return False
    if wanted.until is not None and row.created_us > _us(wanted.until):
        return False
    return not wanted.text or _has_text(row, wanted)


def _has_text(row: RunRow, wanted: RunFilter) -> bool:
    text = wanted.text.casefold()
    if text in row.run_id.casefold() or text in row.workflow.casefold():
        return True
    try:
        metadata = run_info(row).metadata
    except HoldfastError:
        return False
    return any(text in f"{key}={wanted.shown({key: part}).get(key)}".casefold() for key, part in metadata.items())


def _us(when: dt.datetime) -> int:
    return (when - _EPOCH) // dt.timedelta(microseconds=1)


def _moment(us: int) -> dt.datetime | None:
    try:
        return moment(us)
    except OverflowError:
        return None


# --- one line about a run --------------------------------------------------------------------------------------------


def _line(core: StoreContext, row: RunRow) -> RunLine:
    commit = row.commit_id.hex()
    try:
        info = run_info(row)
    except DamagedData as error:
        return RunLine(run_id=row.run_id, info=None, number=row.run, commit=commit, problem=str(error))
    line = RunLine(run_id=row.run_id, info=info, number=row.run, commit=commit)
    try:
        facts = _facts(core, row)
    except DamagedData as error:
        facts = {"problem": str(error)}
    return RunLine(run_id=line.run_id, info=info, number=line.number, commit=commit, **facts)


def _facts(core: StoreContext, row: RunRow) -> dict[str, Any]:
    if row.status == WAITING:
        return _waiting(core, row)
    if row.status in AT_WORK:
        live = is_live(row, core.clock.lease_time) and not core.liveness.owner_is_dead(row.owner)
        if live:
            return {"text": f"claimed by {row.owner}"}
        return {"text": f"its owner {row.owner} has stopped" if row.owner else "not claimed"}
    if row.status == READY:
        return {"text": "waits for a worker"} if row.workflow and row.position else {}
    if row.status not in (FAILED, CANCELLED, PAUSED) or not row.position:
        return {}
    kind, data = _last_entry(core, row)
    by = text_of(data.get("by"))
    if row.status == FAILED:
        return {"text": error_text(data.get("error"))}
    if row.status == CANCELLED:
        return {"text": f"by {by}" if by else ""}
    message = text_of(data.get("message")) if kind in ("diverged", "breakpoint", "paused") else ""
    return {"text": message or (f"by {by}" if by else "")}


def _gates(core: StoreContext, row: RunRow) -> list[GateInfo]:
    """The open gates of a run."""
    if row.status in TERMINAL:
        return []
    try:
        gates = [gate_info(row, gate, core.clock.now_us()) for gate in core.gates_of(row.run)]
    except DamagedData:
        return []
    return gates + (readable_interrupts(core, row) if row.workflow == THREADS else [])


def _waiting(core: StoreContext, row: RunRow) -> dict[str, Any]:
    gates = _gates(core, row)
    if gates:
        return {"gates": tuple(gates)}
    timers = core.port.rows(TimerRow, row.run)
    kind, data = _last_entry(core, row) if row.position else ("", {})
    until = moment(timers[0].due_us) if timers else None
    if kind == "wait":
        return {"text": f"the event {text_of(data.get('event'))}", "until": until}
    if kind == "child":
        return {"text": f"child run {text_of(data.get('child'))}"}
    if timers and timers[0].timer == BEGIN and kind == "started":
        return {"text": "its start", "until": until}
    if timers:
        reason = "the next attempt of" if kind == "attempt" else "the timer"
        return {"text": f"{reason} {display_name(timers[0].timer)}", "until": until}
    return {}


def _last_entry(core: StoreContext, row: RunRow) -> tuple[str, dict[str, Any]]:
    rows = core.port.rows(EntryRow, row.run, row.position - 1, 1)
    data = entry_view(row, rows[0]).data if rows else None
    return (rows[0].kind if rows else "", data if isinstance(data, dict) else {})
