"""Retention: removal of old checkpoints and idle threads."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from functools import partial
from typing import Final

import msgspec

from holdfast.adapters.langgraph import delete
from holdfast.adapters.langgraph.delta_channels import retry_if_changed
from holdfast.adapters.langgraph.put import FINE
from holdfast.adapters.langgraph.retention_policy import keep_recent
from holdfast.adapters.langgraph.thread import WORKFLOW, require_thread
from holdfast.adapters.shared.run_claim import access_for
from holdfast.clock import US
from holdfast.drivers import Plan
from holdfast.errors import DamagedData, InvalidInput, RunClaimed
from holdfast.model.rows import AttachmentRow, CheckpointRow, EffectRow, RunRow
from holdfast.model.views import Keep
from holdfast.operations import prune
from holdfast.operations.context import Access, StoreContext
from holdfast.operations.packs import StoredChunks
from holdfast.operations.prune import reasons_to_keep
from holdfast.operations.read import known_run
from holdfast.operations.state_commit import BulkEncoder
from holdfast.store.checksum import verify_run
from holdfast.store.port import RunQuery

Age = dt.timedelta | float
_PAGE: Final = 500


class Retained(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `retain`; in a dry run, what it would do."""

    threads: int
    """Threads examined."""
    checkpoints: int
    """Checkpoints removed from kept threads."""
    threads_removed: int
    skipped: tuple[str, ...]
    """Threads that were skipped because they are claimed or damaged, each with the reason."""
    bytes_freed: int
    """0 in a dry run."""
    dry_run: bool


def retain(
    access: Access,
    last: int | None,
    newer_than: Age | None,
    idle: Age | None,
    thread_ids: Iterable[str] | None,
    *,
    dry_run: bool,
) -> Plan[Retained]:
    """The plan of `HoldfastSaver.retain`, which documents it."""
    if last is None and newer_than is None and idle is None:
        raise InvalidInput("retain needs a rule: last=, newer_than= or idle=")
    if last is not None and (type(last) is not int or last < 1):
        raise InvalidInput(f"last must be a whole number from 1 on, not {last!r}")
    young_us, idle_us = _us("newer_than", newer_than), _us("idle", idle)
    core, now_us = access.core, access.core.clock.now_us()
    examined = checkpoints = threads = freed = 0
    skipped: list[str] = []
    families: set[int] = set()
    named = None if thread_ids is None else delete.check_ids("thread_ids", thread_ids)
    rule = keep_recent(last, None if young_us is None else now_us - young_us)
    before: int | None = None
    while True:
        rows: list[RunRow] = yield lambda before=before: _page(core, named, before)
        for run in rows:
            examined += 1
            try:
                if idle_us is not None and run.updated_us < now_us - idle_us:
                    whole = (yield lambda run=run: _delete_if_unchanged(core, run)) if not dry_run else 0
                    if whole is not None:
                        threads, freed = threads + 1, freed + whole
                        families.add(run.family)
                        continue
                if last is not None or young_us is not None:
                    holder = access_for(core, run.run_id)
                    removed = yield from delete.remove(holder, run.run_id, rule, dry_run=dry_run, sweep=False)
                    checkpoints, freed = checkpoints + removed.checkpoints, freed + removed.bytes
                    families |= {run.family} if removed.checkpoints else set()
            except (RunClaimed, DamagedData) as problem:
                skipped.append(f"{run.run_id}: {problem}")
        if named is not None or len(rows) < _PAGE:
            break
        before = rows[-1].run
    for family in sorted(families) if not dry_run else ():
        swept = yield lambda family=family: _sweep(core, family)
        freed += swept
    return Retained(
        threads=examined,
        checkpoints=checkpoints,
        threads_removed=threads,
        skipped=tuple(skipped),
        bytes_freed=freed,
        dry_run=dry_run,
    )


def _sweep(core: StoreContext, family: int) -> int:
    try:
        return prune.sweep(core, family).bytes
    except DamagedData:  # the chunks of a damaged checkpoint are unknown, so nothing is freed
        return 0


def _us(what: str, age: Age | None) -> int | None:
    if age is None:
        return None
    seconds = age.total_seconds() if isinstance(age, dt.timedelta) else age
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < 1e11:
        raise InvalidInput(f"{what} must be a timedelta or seconds, not {age!r}")
    return int(seconds * US)


def _page(core: StoreContext, named: list[str] | None, before: int | None) -> list[RunRow]:
    if named is None:
        return core.port.runs(RunQuery(workflow=WORKFLOW, before=before, limit=_PAGE))
    found = [core.port.run(name) for name in named]
    return [require_thread(verify_run(run)) for run in found if run is not None]


def _delete_if_unchanged(core: StoreContext, run: RunRow) -> int | None:
    """Remove a thread, unless it is claimed or was changed. Return the bytes freed, or None."""
    before = _stored_bytes(core, run)
    gone = core.port.delete_run(run.run_id, run.commit_id)
    if not isinstance(gone, RunRow):
        return None
    core.memory.forget(run.run_id)
    return before - StoredChunks(core.port, run.family).stored_bytes


def _stored_bytes(core: StoreContext, run: RunRow) -> int:
    """Return the stored bytes of a thread, including all chunks of its family."""
    rows = [len(row.root) for row in core.port.rows(CheckpointRow, run.run)]
    rows += [len(row.root) for row in core.port.rows(AttachmentRow, run.run)]
    return prune.record_bytes(core, run) + sum(rows) + StoredChunks(core.port, run.family).stored_bytes


def fold(access: Access, thread_id: str, keep: Keep) -> Plan[None]:
    """Attach folds to the kept checkpoints of a thread whose parents `keep` removes."""
    run, rows, gone = yield lambda: _choose(access.core, thread_id, keep)
    yield from delete.attach_folds(access, run, rows, gone)


def plan_fold(core: StoreContext, thread_id: str, keep: Keep) -> set[bytes]:
    """Return the hashes of the chunks of these folds."""
    run, rows, gone = _choose(core, thread_id, keep)
    encoder = BulkEncoder(FINE)
    for row in delete.find_orphans(rows, gone):
        value = retry_if_changed(core, thread_id, partial(delete.make_fold, core, run, row))
        if value is not None:
            encoder.encode_value(value)
    return set(encoder.chunks)


def _choose(core: StoreContext, thread_id: str, keep: Keep) -> tuple[RunRow, list[CheckpointRow], set[int]]:
    """Return the thread, its checkpoints, and the numbers of those to remove."""
    run = known_run(core, thread_id)
    rows = core.port.rows(CheckpointRow, run.run)
    kept = reasons_to_keep(keep, rows, core.port.rows(EffectRow, run.run), None)
    return run, rows, {row.number for row in rows if row.number not in kept}
