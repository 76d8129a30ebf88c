"""Retention: what becomes of old checkpoints and of threads nobody uses any more."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.adapters.langgraph.claims import place_for
from holdfast.adapters.langgraph.removing import Choose, all_but_newest, finished_calls, listed, remove
from holdfast.adapters.langgraph.threads import WORKFLOW, thread_row
from holdfast.clock import US
from holdfast.errors import DamagedData, InvalidInput, RunClaimed
from holdfast.model.rows import CheckpointRow, RunRow
from holdfast.store.port import RunQuery
from holdfast.store.seal import check_run
from holdfast.verbs import keeping
from holdfast.verbs.core import Core, Place
from holdfast.verbs.plans import Plan

Age = dt.timedelta | float
_PAGE: Final = 500


class Retained(msgspec.Struct, frozen=True, kw_only=True):
    """What `retain` did, or in a dry run would do."""

    threads: int
    """Looked at."""
    checkpoints: int
    """Removed, of threads that stay."""
    threads_removed: int
    skipped: tuple[str, ...]
    """Threads that were left alone, because somebody holds them or they are damaged, each with the reason."""
    bytes_freed: int
    """0 in a dry run."""
    dry_run: bool


def retain(
    place: Place,
    last: int | None,
    newer_than: Age | None,
    idle: Age | None,
    thread_ids: Iterable[str] | None,
    *,
    dry_run: bool,
) -> Plan[Retained]:
    """The plan of `HoldfastSaver.retain`, where it is described."""
    if last is None and newer_than is None and idle is None:
        raise InvalidInput("retain needs a rule: last=, newer_than= or idle=")
    if last is not None and (type(last) is not int or last < 1):
        raise InvalidInput(f"last must be a whole number from 1 on, not {last!r}")
    young_us, idle_us = _us("newer_than", newer_than), _us("idle", idle)
    core, now_us = place.core, place.core.clock.now_us()
    looked = checkpoints = threads = freed = 0
    skipped: list[str] = []
    families: set[int] = set()
    named = None if thread_ids is None else listed("thread_ids", thread_ids)
    rule = _rule(last, None if young_us is None else now_us - young_us)
    before: int | None = None
    while True:
        rows: list[RunRow] = yield lambda before=before: _page(core, named, before)  # type: ignore[misc]
        for run in rows:
            looked += 1
            try:
                if idle_us is not None and run.updated_us < now_us - idle_us:
                    whole = (yield lambda run=run: _remove_whole(core, run)) if not dry_run else 0  # type: ignore[misc]
                    if whole is not None:
                        threads, freed = threads + 1, freed + whole
                        families.add(run.family)
                        continue
                if last is not None or young_us is not None:
                    holder = place_for(core, run.run_id)
                    removed = yield from remove(holder, run.run_id, rule, dry_run=dry_run, sweep=False)
                    checkpoints, freed = checkpoints + removed.checkpoints, freed + removed.bytes
                    families |= {run.family} if removed.checkpoints else set()
            except (RunClaimed, DamagedData) as problem:
                skipped.append(f"{run.run_id}: {problem}")
        if named is not None or len(rows) < _PAGE:
            break
        before = rows[-1].run
    for family in sorted(families) if not dry_run else ():
        swept = yield lambda family=family: _swept(core, family)  # type: ignore[misc]
        freed += swept
    return Retained(
        threads=looked, checkpoints=checkpoints, threads_removed=threads, skipped=tuple(skipped), bytes_freed=freed,
        dry_run=dry_run,
    )  # fmt: skip


def _swept(core: Core, family: int) -> int:
    try:
        return keeping.sweep(core, family).bytes
    except DamagedData:  # what a damaged checkpoint leads to is not known, so nothing may be taken from it
        return 0


def _us(what: str, age: Age | None) -> int | None:
    if age is None:
        return None
    seconds = age.total_seconds() if isinstance(age, dt.timedelta) else age
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < 1e11:
        raise InvalidInput(f"{what} must be a timedelta or seconds, not {age!r}")
    return int(seconds * US)


def _page(core: Core, named: list[str] | None, before: int | None) -> list[RunRow]:
    if named is None:
        return core.port.runs(RunQuery(workflow=WORKFLOW, before=before, limit=_PAGE))
    found = [core.port.run(name) for name in named]
    return [thread_row(check_run(run)) for run in found if run is not None]


def _rule(last: int | None, since_us: int | None) -> Choose:
    def choose(rows: list[CheckpointRow]) -> set[int]:
        old = {row.number for row in rows if since_us is None or row.created_us < since_us}
        gone = old & all_but_newest(rows, 1 if last is None else last)
        gone -= _replayed_from(rows, gone)
        return gone | finished_calls(rows, gone)

    return choose


def _replayed_from(rows: list[CheckpointRow], gone: set[int]) -> set[int]:
    """The checkpoints that subgraphs which remember begin with, if the graph is replayed from one that stays.

    LangGraph asks for the largest id below that of the graph's checkpoint.
    """
    lanes: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for row in rows:
        lanes[row.lane].append((row.checkpoint_id, row.number))
    kept = [checkpoint_id for checkpoint_id, number in lanes.pop("", []) if number not in gone]
    found: set[int] = set()
    for places in (sorted(places) for lane, places in lanes.items() if ":" not in lane):
        below = {bisect_left(places, (checkpoint_id, 0)) for checkpoint_id in kept} - {0}
        found |= {places[end - 1][1] for end in below}
    return found


def _remove_whole(core: Core, run: RunRow) -> int | None:
    """Remove a thread that has not changed since it was looked at; what that freed. None if it has, or is held."""
    before = _total(core, run)
    gone = core.port.delete_run(run.run_id, run.commit_id)
    if not isinstance(gone, RunRow):
        return None
    core.memory.forget(run.run_id)
    return before - sum(core.port.chunk_sizes(run.family).values())


def _total(core: Core, run: RunRow) -> int:
    """What a thread takes, with all chunks of its family, which go with the last thread of it."""
    rows = [len(row.root) for row in core.port.checkpoints(run.run, 0, -1)]
    rows += [len(row.root) for row in core.port.attachments(run.run, None, None)]
    return keeping.record_bytes(core, run) + sum(rows) + sum(core.port.chunk_sizes(run.family).values())
