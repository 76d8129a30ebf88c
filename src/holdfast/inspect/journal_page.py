"""Pages of a journal and of a ledger, from either end. A damaged row is reported in its place and hides no other."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any, Final

from holdfast.errors import DamagedData
from holdfast.limits import KIB
from holdfast.model.rows import EffectRow, EntryRow, RunRow
from holdfast.model.views import Effect, View
from holdfast.operations.context import StoreContext
from holdfast.operations.read import known_run
from holdfast.operations.store import Store
from holdfast.operations.views import decode_body, effect_view, entry_view, moment
from holdfast.store.journal_prune import last_of

ENTRIES: Final = 100
EFFECTS: Final = 50
_BATCH: Final = 500
SCANNED_MAX: Final = 5_000
"""How many entries a page with a filter searches."""
SHOWN_BYTES_MAX: Final = 256 * KIB
"""A larger entry, as stored, is not decoded for a page."""


class EntryLine(View, frozen=True, kw_only=True):
    """An entry of a journal, as far as it can be read."""

    position: int
    last: int
    """The last position that it stands for; only a pruned entry stands for several."""
    kind: str
    created_at: dt.datetime | None
    size: int
    """Its body in bytes, as stored."""
    data: Any = None
    is_left_out: bool = False
    """Whether its data was not decoded because it is large."""
    problem: str = ""
    """The damage that prevents reading it."""


class JournalPage(View, frozen=True, kw_only=True):
    """Some entries of a journal."""

    lines: tuple[EntryLine, ...]
    following: int | None
    """The position at which the next page starts; None if there is none."""
    searched: int
    """How many entries were searched."""


Wanted = Callable[[EntryLine], bool]


def journal_page(
    store: Store,
    run_id: str,
    *,
    start: int | None = None,
    newest_first: bool = True,
    limit: int = ENTRIES,
    kind: str = "",
    wanted: Wanted | None = None,
) -> JournalPage:
    """Entries from position `start` on, towards the beginning or the end; of one kind, or those that are `wanted`.

    Example:
        [line.kind for line in journal_page(store, "order-17").lines]
    """
    core = store.access.core
    run = known_run(core, run_id)
    at = start if start is not None else run.position if newest_first else 1
    found: list[EntryLine] = []
    searched = 0
    for row, line in _walk(
        core, run, at, newest_first=newest_first, batch=limit if not kind and not wanted else _BATCH
    ):
        if len(found) == limit or searched >= SCANNED_MAX:
            following = line.last if newest_first else line.position
            return JournalPage(lines=tuple(found), following=following, searched=searched)
        searched += 1
        if kind and line.kind != kind and not line.problem:
            continue
        decoded = line if row is None else _decoded(run, row, line)
        if wanted is None or decoded.problem or wanted(decoded):
            found.append(decoded)
    return JournalPage(lines=tuple(found), following=None, searched=searched)


def _walk(
    core: StoreContext, run: RunRow, at: int, *, newest_first: bool, batch: int
) -> Iterator[tuple[EntryRow | None, EntryLine]]:
    """The rows from a position on, each with its line; a line without a row stands for missing entries."""
    at = min(at, run.position)
    while 1 <= at <= run.position:
        first = max(1, at - batch + 1) if newest_first else at
        last = at if newest_first else min(run.position, at + batch - 1)
        covering = core.port.rows(EntryRow, run.run, keys=[first])
        rows = core.port.rows(EntryRow, run.run, first - 1, last - first + 1)
        rows = [row for row in rows if row.position <= last]
        if covering and (not rows or covering[0].position < rows[0].position):
            rows.insert(0, covering[0])
        lines = list(_with_missing(run, rows, min(first, rows[0].position) if rows else first, last))
        yield from reversed(lines) if newest_first else lines
        at = lines[0][1].position - 1 if newest_first else lines[-1][1].last + 1


def _with_missing(
    run: RunRow, rows: list[EntryRow], first: int, last: int
) -> Iterator[tuple[EntryRow | None, EntryLine]]:
    expected = first
    for row in rows:
        if row.position > expected:
            yield None, _missing(run, expected, row.position - 1)
        line = _line(row)
        yield row, line
        expected = max(expected, line.last + 1)
    if expected <= last:
        yield None, _missing(run, expected, last)


def _missing(run: RunRow, first: int, last: int) -> EntryLine:
    text = f"entry {first} is missing" if first == last else f"entries {first} to {last} are missing"
    problem = f"the journal of run {run.run_id!r} is damaged: {text}"
    return EntryLine(position=first, last=last, kind="", created_at=None, size=0, problem=problem)


def _line(row: EntryRow) -> EntryLine:
    try:
        last, problem = last_of(row), ""
    except DamagedData as error:
        last, problem = row.position, str(error)
    created_at = moment(row.created_us) if 0 <= row.created_us < 2**57 else None
    return EntryLine(
        position=row.position, last=last, kind=row.kind, created_at=created_at, size=len(row.body), problem=problem
    )


def _decoded(run: RunRow, row: EntryRow, line: EntryLine) -> EntryLine:
    facts = {name: getattr(line, name) for name in ("position", "last", "kind", "created_at", "size")}
    if line.problem or len(row.body) > SHOWN_BYTES_MAX:
        return EntryLine(**facts, problem=line.problem, is_left_out=not line.problem)
    try:
        return EntryLine(**facts, data=entry_view(run, row).data)
    except DamagedData as error:
        return EntryLine(**facts, problem=str(error))


# --- the ledger ------------------------------------------------------------------------------------------------------


class LedgerLine(View, frozen=True, kw_only=True):
    """A line of the ledger, with the call that it records."""

    number: int
    key: str
    effect: Effect | None
    """None if it is damaged."""
    arguments: Any = None
    """The positional arguments; None if the call did not record them."""
    keywords: Any = None
    undo: str = ""
    """The function that undoes it."""
    problem: str = ""


class LedgerPage(View, frozen=True, kw_only=True):
    """Some lines of a ledger, newest first."""

    lines: tuple[LedgerLine, ...]
    following: int | None
    """The number at which the next page starts; None if there is none."""
    total: int


def ledger_page(store: Store, run_id: str, *, start: int | None = None, limit: int = EFFECTS) -> LedgerPage:
    """The effects of a run from number `start` down.

    Example:
        [line.key for line in ledger_page(store, "order-17").lines]
    """
    core = store.access.core
    run = known_run(core, run_id)
    last = run.effects if start is None else min(start, run.effects)
    rows = core.port.rows(EffectRow, run.run, max(0, last - limit), limit) if last > 0 else []
    lines = [_ledger_line(run, row) for row in reversed(rows) if row.number <= last]
    following = last - limit if last > limit else None
    return LedgerPage(lines=tuple(lines), following=following, total=run.effects)


def _ledger_line(run: RunRow, row: EffectRow) -> LedgerLine:
    try:
        effect = effect_view(run, row)
        call = decode_body(row.call, f"effect {row.key!r} of run {run.run_id!r}")
    except DamagedData as error:
        return LedgerLine(number=row.number, key=row.key, effect=None, problem=str(error))
    facts = call if isinstance(call, dict) else {}
    undo = facts.get("undo")
    return LedgerLine(
        number=row.number,
        key=row.key,
        effect=effect,
        arguments=facts.get("args"),
        keywords=facts.get("kwargs"),
        undo=undo if isinstance(undo, str) else "",
    )
