"""Prune, sweep and delete on PostgreSQL, each in one transaction of a writer.

All of them are idempotent. If an earlier attempt may have been committed and the rows it was to remove are gone, its
result is returned.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.model.commit import Committed, Reason, Refused
from holdfast.model.rows import CheckpointRow, EffectRow, EntryRow, RunRow
from holdfast.store.checksum import next_epoch, verify_run
from holdfast.store.decide import is_live
from holdfast.store.journal_prune import ChooseEntries, HeadMove, heads_after, last_of, planned_pruning
from holdfast.store.port import Choose, Mark, ScanMark, SweepResult
from holdfast.store.postgres.dialect import Bigints, Statements, columns_of
from holdfast.store.postgres.postgres_packs import remove_chunks
from holdfast.store.postgres.postgres_reads import fetch_on, first
from holdfast.store.postgres.postgres_writer import Writer
from holdfast.store.postgres.transaction import EarlierAttempt, InDoubtCommit, RetryTransaction, Transaction
from holdfast.store.search import read_metadata, tag
from holdfast.store.sql.sql_reads import bound_limit, roots_after
from holdfast.store.sql.statements import ENTRIES, LANES, Columns, key_of, last_key, row_from

_KEYED: Final = ("checkpoints", "entries", "effects", "attachments", "items", "messages")


class CheckpointsPruned(NamedTuple):
    """The removed checkpoints and, if heads moved back, how to recognise that."""

    rows: list[CheckpointRow]
    doubt: InDoubtCommit | None = None


def prune(
    writer: Writer, run_id: str, choose: Choose, before: EarlierAttempt, *, reopen: bool
) -> CheckpointsPruned | None:
    """Remove the checkpoints that `choose` picks, with their attachments."""
    transaction = writer.begin([run_id])
    with transaction.rolled_back_on_error():
        earlier: CheckpointsPruned | None = before.result
        if earlier is not None and earlier.doubt is not None and transaction.is_stored(run_id, earlier.doubt):
            return transaction.commit(lambda: earlier)
        row = transaction.rows.get(run_id)
        if row is None:
            return transaction.commit(lambda: None)
        verify_run(row)
        start, end = key_of(row.run, 0), last_key(row.run)
        found = [
            row_from(CheckpointRow, c) for c in transaction.execute("checkpoints_after", start, end, bound_limit(-1))
        ]
        rows = {checkpoint.number: checkpoint for checkpoint in found}
        effects = [row_from(EffectRow, e) for e in transaction.execute("effects_after", start, end, bound_limit(-1))]
        gone = [rows[number] for number in choose(found, effects)]
        doubt = _remove(writer, transaction, row, gone, heads_after(row, found, gone, reopen=reopen))
        if earlier is not None and earlier.doubt is None and not any(c.number in rows for c in earlier.rows):
            gone = [*earlier.rows, *gone]
        return transaction.commit(lambda: CheckpointsPruned(gone, doubt))


def _remove(
    writer: Writer, transaction: Transaction, row: RunRow, gone: list[CheckpointRow], moved: HeadMove | None
) -> InDoubtCommit | None:
    """Remove checkpoints and move heads back; return how to recognise that, if a head moved."""
    keys = Bigints([key_of(row.run, c.number) for c in gone])
    owners = columns_of("itt", [(row.run, c.lane, c.checkpoint_id) for c in gone])
    statements: list[tuple[str, Columns]] = [("delete_checkpoints_by_key", (keys,))]
    statements.append(("delete_attachments_of_checkpoints", owners))
    if moved is None:
        transaction.send(statements)
        return None
    lanes = [LANES.bind(row.run, lane) for lane in moved.lanes if lane.head]
    statements.append(("set_lanes", columns_of(LANES.shape, lanes)))
    statements += [("delete_lane", (row.run, lane.lane)) for lane in moved.lanes if not lane.head]
    transaction.send(statements)
    transaction.update_run(moved.run)
    writer.forget([row.run_id])
    return InDoubtCommit(moved.run.commit_id, row.commit_id, row.incarnation, Committed(moved.run))


class EntriesPruned(NamedTuple):
    """How many entries were removed, and how to recognise that."""

    entries: int
    doubt: InDoubtCommit | None = None


def prune_entries(writer: Writer, run_id: str, choose: ChooseEntries, before: EarlierAttempt) -> EntriesPruned | None:
    """Remove the journal entries that `choose` picks."""
    transaction = writer.begin([run_id])
    with transaction.rolled_back_on_error():
        earlier: EntriesPruned | None = before.result
        if earlier is not None and earlier.doubt is not None and transaction.is_stored(run_id, earlier.doubt):
            return transaction.commit(lambda: earlier)
        row = transaction.rows.get(run_id)
        if row is None:
            return transaction.commit(lambda: None)
        verify_run(row)
        start, end = key_of(row.run, 0), last_key(row.run)
        checkpoints = [
            row_from(CheckpointRow, c) for c in transaction.execute("checkpoints_after", start, end, bound_limit(-1))
        ]
        pruned = [row_from(EntryRow, e) for e in transaction.execute("entries_pruned", start, end)]
        plan = planned_pruning(row, choose(row, checkpoints), pruned, transaction.now_us())
        if plan is None:
            return transaction.commit(lambda: EntriesPruned(0))
        places = [(key_of(row.run, e.position - 1), key_of(row.run, last_of(e))) for e in plan.rows]
        plan.check(transaction.send([("delete_entries", place) for place in places]))
        rows = columns_of(ENTRIES.shape, [ENTRIES.bind(row.run, e) for e in plan.rows])
        transaction.send([("insert_entries", rows)])
        transaction.update_run(plan.run)
        writer.forget([run_id])
        doubt = InDoubtCommit(plan.run.commit_id, row.commit_id, row.incarnation, Committed(plan.run))
        return transaction.commit(lambda: EntriesPruned(plan.entries, doubt))


def sweep(
    writer: Writer,
    sql: Statements,
    family: int,
    batch: list[bytes],
    seen: dict[int, ScanMark],
    mark: Mark,
    before: EarlierAttempt,
) -> tuple[SweepResult, set[bytes]]:
    """Remove these chunks, except those that newer roots need; also return all chunks that newer roots need."""
    transaction = writer.begin(("lock_family", (family,)))
    with transaction.rolled_back_on_error():
        rows = [verify_run(row) for row in _whole_family(transaction, family)]
        late = []
        for row in rows:
            known = seen.get(row.run, ScanMark())
            late += roots_after(
                fetch_on(writer.link, sql), row.run, known if known.rewrites == row.rewrites else ScanMark()
            )
        spared = mark(late)
        removed = remove_chunks(transaction, family, [name for name in batch if name not in spared])
        for row in rows:
            transaction.update_run(next_epoch(row))
        writer.forget(row.run_id for row in rows)
        if not removed.chunks and before.result is not None:
            return transaction.commit(lambda: (before.result[0], spared))
        return transaction.commit(lambda: (removed, spared))


def _whole_family(transaction: Transaction, family: int) -> list[RunRow]:
    """All rows of the family, locked. Reads again, as runs may join while it waits for the locks of others."""
    rows = transaction.rows
    while True:
        found = {row.run_id: row for row in (row_from(RunRow, r) for r in transaction.execute("lock_family", family))}
        if found.keys() == rows.keys():
            return list(found.values())
        rows = found


def delete_run(
    writer: Writer,
    sql: Statements,
    run_id: str,
    seen: bytes | None,
    known: frozenset[int] | None,
    before: EarlierAttempt,
) -> RunRow | Refused | None:
    """Remove the run with all its rows, and the chunks of its family if it was the last member."""
    found = first(writer.link, sql["run_by_id"], (run_id,))
    earlier: RunRow | Refused | None = before.result
    is_another = isinstance(earlier, RunRow) and found and row_from(RunRow, found).incarnation != earlier.incarnation
    if found is None or is_another:
        if earlier is not None:
            writer.link.execute(sql["barrier"])
        return earlier
    family = row_from(RunRow, found).family
    transaction = writer.begin(("lock_family", (family,)))
    with transaction.rolled_back_on_error():
        rows = {row.run_id: row for row in _whole_family(transaction, family)}
        row = rows.get(run_id)
        if row is None:
            raise RetryTransaction  # it was deleted since, and may exist again in another family
        if is_live(row, transaction.lease):
            return transaction.commit(lambda: Refused(Reason.CLAIMED, row))
        is_joined = known is not None and any(each.run not in known for each in rows.values())
        if is_joined or (seen is not None and row.commit_id != seen):
            return transaction.commit(lambda: Refused(Reason.CHANGED, row))
        keys, number = (key_of(row.run, 0), last_key(row.run)), (row.run,)
        tags = [(key.encode(), tag(key, value)[1], row.run) for key, value in read_metadata(row.metadata).items()]
        statements: list[tuple[str, Columns]] = [("delete_tags", columns_of("bbi", tags))]
        statements += [(f"delete_{table}", keys) for table in _KEYED]
        statements += [(f"delete_{table}", number) for table in ("lanes", "gates", "timers", "run")]
        if len(rows) == 1:
            statements += [(f"delete_{table}", (family,)) for table in ("chunks", "places", "packs")]
        transaction.send(statements)
        writer.forget([run_id])
        return transaction.commit(lambda: row)
