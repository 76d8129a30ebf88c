"""Letting go, on PostgreSQL: prune, sweep, delete. Each is given a writer and is one transaction.

All of them can be done again without harm. If an earlier attempt may have been committed and what it was to remove is
gone, its result counts.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from holdfast.model import commit as why
from holdfast.model.commit import Committed, Refused
from holdfast.model.rows import CheckpointRow, EffectRow, EntryRow, RunRow
from holdfast.store.decide import is_live
from holdfast.store.heads import Retreat, heads_after
from holdfast.store.port import Choose, Mark, Seen, Swept
from holdfast.store.postgres.arrays import Bigints, Byteas, columns_of
from holdfast.store.postgres.dialect import Statements
from holdfast.store.postgres.look import first
from holdfast.store.postgres.reads import roots_after
from holdfast.store.postgres.transaction import Again, Before, Doubt, Transaction
from holdfast.store.postgres.writer import Writer
from holdfast.store.pruning import ChooseEntries, last_of, planned_pruning
from holdfast.store.seal import check_run, next_epoch
from holdfast.store.sql.rows import built, entry_columns, key_of, last_key
from holdfast.store.tags import read_metadata, tag

_KEYED: Final = ("checkpoints", "entries", "effects", "attachments", "items", "messages")


class CheckpointsPruned(NamedTuple):
    """What was removed and, if heads went back, how to recognise that they did."""

    rows: list[CheckpointRow]
    doubt: Doubt | None = None


def prune(writer: Writer, run_id: str, choose: Choose, before: Before, *, reopen: bool) -> CheckpointsPruned | None:
    """Remove the checkpoints that `choose` picks, with their attachments."""
    transaction = writer.begin([run_id])
    with transaction.rolled_back_on_error():
        earlier: CheckpointsPruned | None = before.result
        if earlier is not None and earlier.doubt is not None and transaction.is_there(run_id, earlier.doubt):
            return transaction.commit(lambda: earlier)
        row = transaction.rows.get(run_id)
        if row is None:
            return transaction.commit(lambda: None)
        check_run(row)
        start, end = key_of(row.run, 0), last_key(row.run)
        found = [built(CheckpointRow, c) for c in transaction.execute("checkpoints_after", start, end, None)]
        rows = {checkpoint.number: checkpoint for checkpoint in found}
        effects = [built(EffectRow, e) for e in transaction.execute("effects", start, end)]
        gone = [rows[number] for number in choose(found, effects)]
        doubt = _removed(writer, transaction, row, gone, heads_after(row, found, gone, reopen=reopen))
        if earlier is not None and earlier.doubt is None and not any(c.number in rows for c in earlier.rows):
            gone = [*earlier.rows, *gone]
        return transaction.commit(lambda: CheckpointsPruned(gone, doubt))


def _removed(
    writer: Writer, transaction: Transaction, row: RunRow, gone: list[CheckpointRow], moved: Retreat | None
) -> Doubt | None:
    """Remove checkpoints and have heads go back; how to recognise that they did."""
    keys = Bigints([key_of(row.run, c.number) for c in gone])
    owners = columns_of("itt", [(row.run, c.lane, c.checkpoint_id) for c in gone])
    statements: list[tuple[str, tuple[Any, ...]]] = [
        ("delete_checkpoints_by_key", (keys,)), ("delete_attachments_of_checkpoints", owners),
    ]  # fmt: skip
    if moved is None:
        transaction.send(statements)
        return None
    lanes = [(row.run, lane.lane, lane.head, lane.head_id, lane.step) for lane in moved.lanes if lane.head]
    statements.append(("set_lanes", columns_of("ititi", lanes)))
    statements += [("delete_lane", (row.run, lane.lane)) for lane in moved.lanes if not lane.head]
    transaction.send(statements)
    transaction.update_run(moved.run)
    writer.forget([row.run_id])
    return Doubt(moved.run.commit_id, row.commit_id, row.incarnation, Committed(moved.run))


class EntriesPruned(NamedTuple):
    """How many entries went, and how to recognise that they did."""

    entries: int
    doubt: Doubt | None = None


def prune_entries(writer: Writer, run_id: str, choose: ChooseEntries, before: Before) -> EntriesPruned | None:
    """Remove the journal entries that `choose` picks."""
    transaction = writer.begin([run_id])
    with transaction.rolled_back_on_error():
        earlier: EntriesPruned | None = before.result
        if earlier is not None and earlier.doubt is not None and transaction.is_there(run_id, earlier.doubt):
            return transaction.commit(lambda: earlier)
        row = transaction.rows.get(run_id)
        if row is None:
            return transaction.commit(lambda: None)
        check_run(row)
        start, end = key_of(row.run, 0), last_key(row.run)
        checkpoints = [built(CheckpointRow, c) for c in transaction.execute("checkpoints_after", start, end, None)]
        pruned = [built(EntryRow, e) for e in transaction.execute("entries_pruned", start, end)]
        plan = planned_pruning(row, choose(row, checkpoints), pruned, transaction.now_us())
        if plan is None:
            return transaction.commit(lambda: EntriesPruned(0))
        places = [(key_of(row.run, e.position - 1), key_of(row.run, last_of(e))) for e in plan.rows]
        plan.check(transaction.send([("delete_entries", place) for place in places]))
        rows = columns_of("itibbi", [entry_columns(row.run, e) for e in plan.rows])
        transaction.send([("insert_entries", rows)])
        transaction.update_run(plan.run)
        writer.forget([run_id])
        doubt = Doubt(plan.run.commit_id, row.commit_id, row.incarnation, Committed(plan.run))
        return transaction.commit(lambda: EntriesPruned(plan.entries, doubt))


def sweep(
    writer: Writer,
    sql: Statements,
    family: int,
    batch: list[bytes],
    seen: dict[int, Seen],
    mark: Mark,
    before: Before,
) -> tuple[Swept, set[bytes]]:
    """Remove these chunks, except those that late roots lead to; and what all late roots lead to."""
    transaction = writer.begin(("lock_family", (family,)))
    with transaction.rolled_back_on_error():
        rows = [check_run(row) for row in _whole_family(transaction, family)]
        late = []
        for row in rows:
            known = seen.get(row.run, Seen())
            late += roots_after(writer.link, sql, row.run, known if known.rewrites == row.rewrites else Seen())
        spared = mark(late)
        names = Byteas([name for name in batch if name not in spared])
        sizes = [size for (size,) in transaction.execute("delete_chunks_by_hash", family, names)]
        for row in rows:
            transaction.update_run(next_epoch(row))
        writer.forget(row.run_id for row in rows)
        if not sizes and before.result is not None:
            return transaction.commit(lambda: (before.result[0], spared))
        return transaction.commit(lambda: (Swept(len(sizes), sum(sizes)), spared))


def _whole_family(transaction: Transaction, family: int) -> list[RunRow]:
    """All rows of the family, locked. Looks again for runs that joined while others' rows were waited for."""
    rows = transaction.rows
    while True:
        found = {row.run_id: row for row in (built(RunRow, r) for r in transaction.execute("lock_family", family))}
        if found.keys() == rows.keys():
            return list(found.values())
        rows = found


def delete_run(
    writer: Writer, sql: Statements, run_id: str, seen: bytes | None, known: frozenset[int] | None, before: Before
) -> RunRow | Refused | None:
    """Remove the run and all that is its own, and the family's chunks if it was the last of its family."""
    found = first(writer.link, sql["run_by_id"], (run_id,))
    earlier: RunRow | Refused | None = before.result
    is_another = isinstance(earlier, RunRow) and found and built(RunRow, found).incarnation != earlier.incarnation
    if found is None or is_another:
        if earlier is not None:
            writer.link.execute(sql["barrier"])
        return earlier
    family = built(RunRow, found).family
    transaction = writer.begin(("lock_family", (family,)))
    with transaction.rolled_back_on_error():
        rows = {row.run_id: row for row in _whole_family(transaction, family)}
        row = rows.get(run_id)
        if row is None:
            raise Again  # it was deleted since, and may be there again in another family
        if is_live(row, transaction.lease):
            return transaction.commit(lambda: Refused(why.CLAIMED, row))
        is_joined = known is not None and any(each.run not in known for each in rows.values())
        if is_joined or (seen is not None and row.commit_id != seen):
            return transaction.commit(lambda: Refused(why.CHANGED, row))
        keys, number = (key_of(row.run, 0), last_key(row.run)), (row.run,)
        tags = [(key.encode(), tag(key, value)[1], row.run) for key, value in read_metadata(row.metadata).items()]
        statements: list[tuple[str, tuple[Any, ...]]] = [("delete_tags", columns_of("bbi", tags))]
        statements += [(f"delete_{table}", keys) for table in _KEYED]
        statements += [(f"delete_{table}", number) for table in ("lanes", "gates", "timers", "run")]
        if len(rows) == 1:
            statements.append(("delete_chunks", (family,)))
        transaction.send(statements)
        writer.forget([run_id])
        return transaction.commit(lambda: row)
