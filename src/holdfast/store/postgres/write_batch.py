"""The statements that write a batch of commits, and the fast path of common saves.

All rows of one kind are written by one statement, whatever number of commits they come from. Statements are executed in
the order of `SHAPES` and chunks in the order of their hashes, so that two batches do not deadlock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import psycopg
from psycopg.errors import DivisionByZero, UniqueViolation

from holdfast.limits import MIB
from holdfast.model.commit import Commit, Committed, Refused, commit_bytes
from holdfast.model.rows import RunRow
from holdfast.store.decide import Decision, decide
from holdfast.store.postgres.dialect import Column, Statements, Texts, columns_of
from holdfast.store.postgres.postgres_reads import NeedsRead, OptimisticReads, no_lease
from holdfast.store.sql.statements import (
    APPENDED,
    ATTACHED,
    ATTACHMENTS,
    CHECKPOINTS,
    EFFECTS,
    ENTRIES,
    GATES,
    ITEMS,
    LANES,
    MESSAGES,
    PROGRESS,
    RUNS,
    TIMERS,
    Columns,
    Table,
    key_of,
)

SHAPES: Final = {
    "insert_runs": RUNS.shape,
    "update_runs": RUNS.shape,
    "insert_chunks": "ibb",
    "insert_checkpoints": CHECKPOINTS.shape,
    "replace_checkpoints": CHECKPOINTS.shape,
    "set_lanes": LANES.shape,
    "insert_entries": ENTRIES.shape,
    "delete_tags": "bbi",
    "insert_tags": "bbi",
    "set_effects": EFFECTS.shape,
    "set_attachments": ATTACHMENTS.shape,
    "set_gates": GATES.shape,
    "drop_timers": "it",
    "set_timers": TIMERS.shape,
    "insert_items": ITEMS.shape,
    "take_items": f"i{ITEMS.changing_shape}",
    "insert_messages": MESSAGES.shape,
    "drop_messages": "i",
}
"""The statements, in the order of their execution, with the types of their columns."""
_KEYS: Final = {
    "replace_checkpoints": slice(0, 1),
    "set_lanes": slice(0, 2),
    "set_effects": slice(0, 1),
    "set_attachments": slice(1, 5),
    "set_gates": slice(0, 2),
    "set_timers": slice(0, 2),
    "take_items": slice(0, 1),
}
"""The key among the columns, where one commit may write a row twice: the last write is used."""


_STATEMENT_BYTES: Final = 64 * MIB
"""The size of one statement, unless a single row is larger. PostgreSQL rejects messages of a gigabyte or more."""


def _split(shape: str, rows: Sequence[Columns]) -> Iterator[Sequence[Columns]]:
    """The rows, split where one statement would become too large."""
    bytea = [at for at, kind in enumerate(shape) if kind == "b"]
    start = size = 0
    for end, row in enumerate(rows):
        added = sum([len(row[at]) for at in bytea])
        if size and size + added > _STATEMENT_BYTES:
            yield rows[start:end]
            start, size = end, 0
        size += added
    if rows:
        yield rows[start:]


class Batch:
    """Rows to be written. A run is in it at most once."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Columns]] = defaultdict(list)
        self._chunks: dict[tuple[int, bytes], bytes] = {}
        self._notify: list[str] = []
        """Runs that listeners are notified of."""
        self.runs: set[str] = set()
        self.bytes = 0

    def update_run(self, row: RunRow) -> None:
        """Write a run's row, which was read in this transaction."""
        self._add("update_runs", RUNS, row.run, [row])

    def add(self, made: Decision, commit: Commit, old: RunRow | None) -> None:
        """Add all rows of a decision."""
        run, rows = made.run.run, self._rows
        self.runs.add(commit.run_id)
        self.bytes += commit_bytes(commit)
        self._add("insert_runs" if made.created else "update_runs", RUNS, run, [made.run])
        for chunk in commit.chunks:
            self._chunks.setdefault((made.run.family, chunk.hash), chunk.body)
        self._add("insert_checkpoints", CHECKPOINTS, run, made.checkpoints)
        self._add("replace_checkpoints", CHECKPOINTS, run, made.replaced)
        self._add("set_lanes", LANES, run, made.lanes)
        self._add("insert_entries", ENTRIES, run, made.entries)
        rows["delete_tags"] += [(key.encode(), value, run) for key, value in made.old_tags]
        rows["insert_tags"] += [(key.encode(), value, run) for key, value in made.new_tags]
        self._add("set_effects", EFFECTS, run, made.effects)
        self._add("set_attachments", ATTACHMENTS, run, made.attachments)
        self._add("set_gates", GATES, run, made.gates)
        rows["drop_timers"] += [(run, name) for name in made.drop_timers]
        self._add("set_timers", TIMERS, run, commit.timers)
        self._add("insert_items", ITEMS, run, made.items)
        rows["take_items"] += [(key_of(run, i.number), *ITEMS.bind_changes(i)) for i in made.taken]
        self._add("insert_messages", MESSAGES, run, made.messages)
        rows["drop_messages"] += [(key_of(run, number),) for number in commit.sent]
        woken = made.run.ready_us > 0 and (old is None or old.ready_us != made.run.ready_us)
        if woken or made.items:
            self._notify.append(commit.run_id)

    def _add(self, name: str, table: Table, run: int, rows: Iterable[object]) -> None:
        self._rows[name] += [table.bind(run, row) for row in rows]

    def statements(self, channel: str) -> Iterator[tuple[str, tuple[Column | str, ...]]]:
        """The statements to execute: their names and bindings."""
        self._rows["insert_chunks"] = [(*key, self._chunks[key]) for key in sorted(self._chunks)]
        for name, shape in SHAPES.items():
            rows = self._rows.get(name)
            if rows and name in _KEYS:
                rows = list({row[_KEYS[name]]: row for row in rows}.values())
            for part in _split(shape, rows or ()):
                yield name, columns_of(shape, part)
        if self._notify:
            yield "notify", (channel, Texts(self._notify))


# The fast path: one statement for commits that only add to cached runs.
#
# A decision is made on the cached row, and written if the stored row still has the same commit id. Nothing is read or
# locked before. Several commits of one run form a chain: all their rows are written, and the run's row as the last of
# them leaves it. If a cached row is out of date, or a row assumed to be new exists, nothing is written.

Cursor = psycopg.Cursor[Columns]

_OPTIMISTIC: Final = OptimisticReads()
_FAST_BYTES_MAX: Final = 1 * MIB
"""A larger commit takes the slow path, which splits large statements and waits longer for the server."""


class Chain:
    """Commits of one run, each decided on the row that the one before it leaves."""

    __slots__ = ("links", "old", "row")

    def __init__(self, row: RunRow) -> None:
        self.old = row
        self.row = row
        self.links: list[tuple[int, Decision, Commit]] = []
        """Each commit with its place in the batch and its decision."""

    def add(self, index: int, made: Decision, commit: Commit) -> None:
        self.links.append((index, made, commit))
        self.row = made.run


def decide_fast(row: RunRow, commit: Commit, now_us: int) -> Decision | None:
    """The decision on a cached row, or None if the commit cannot take the fast path.

    Such a commit adds a checkpoint, an entry or an attachment, so it can be recognised if the connection is lost.
    """
    if commit_bytes(commit) > _FAST_BYTES_MAX:
        return None
    if commit.timers or commit.sent or commit.drop_timers or commit.send or commit.take_items or commit.metadata:
        return None
    try:
        made = decide(row, commit, now_us, no_lease, _OPTIMISTIC)
    except NeedsRead:
        return None
    if isinstance(made, Refused) or not made.fresh:
        return None
    if made.effects or made.gates or made.items or made.lanes or made.replaced:
        return None
    if made.attachments:
        return made if _only_attaches(row, made) else None
    return made if made.progress and (made.checkpoints or made.entries) else None


def _only_attaches(row: RunRow, made: Decision) -> bool:
    """Whether the commit only adds new attachments."""
    changed = {"attached", "updated_us", "commit_id", "seal"}
    same = all(getattr(row, name) == getattr(made.run, name) for name in row.__struct_fields__ if name not in changed)
    places = {(a.lane, a.checkpoint_id, a.key) for a in made.attachments}
    return same and len(places) == len(made.attachments) and not (made.checkpoints or made.entries)


def save(cursor: Cursor, sql: Statements, chains: Sequence[Chain]) -> dict[int, Committed] | None:
    """Write the chains. The outcomes by the commits' places in the batch, or None if nothing was written."""
    try:
        return _save(cursor, sql, chains)
    except UniqueViolation:  # a row that was assumed to be new exists
        return None


def _save(cursor: Cursor, sql: Statements, chains: Sequence[Chain]) -> dict[int, Committed] | None:
    _, made, _ = chains[0].links[0]
    is_single = len(chains) == 1 and len(chains[0].links) == 1
    if is_single and made.attachments:
        return _attach(cursor, sql["attach_new"], chains[0])
    if any(made.attachments for chain in chains for _, made, _ in chain.links):
        return None
    if is_single and len(made.checkpoints) == 1 and not made.entries:
        return _save_one(cursor, sql, chains[0])
    if is_single and len(made.entries) == 1 and not made.checkpoints:
        return _append_one(cursor, sql, chains[0])
    return _save_many(cursor, sql["save_many"], chains)


def _save_one(cursor: Cursor, sql: Statements, chain: Chain) -> dict[int, Committed] | None:
    """The most common save. Without arrays it takes half the time of `_save_many`."""
    index, made, commit = chain.links[0]
    row, (checkpoint,) = made.run, made.checkpoints
    key, _, *columns = CHECKPOINTS.bind(row.run, checkpoint)
    bindings = (*PROGRESS.bind_changes(row), row.run, chain.old.commit_id, key, *columns)
    if not commit.chunks:
        cursor.execute(sql["save_one"], bindings)
        return {index: made.outcome(len(checkpoint.root))} if cursor.rowcount == 1 else None
    chunks = columns_of("bb", [(chunk.hash, chunk.body) for chunk in commit.chunks])
    found = cursor.execute(sql["save_one_with_chunks"], (*bindings, *chunks)).fetchall()
    return {index: made.outcome(added_bytes(made, commit, set(found)))} if found else None


def _attach(cursor: Cursor, statement: bytes, chain: Chain) -> dict[int, Committed] | None:
    """Attach values, as each task of a graph does."""
    index, made, commit = chain.links[0]
    row = made.run
    added = columns_of(ATTACHMENTS.shape, [ATTACHMENTS.bind(row.run, a) for a in made.attachments])
    chunks = columns_of("bb", [(chunk.hash, chunk.body) for chunk in commit.chunks])
    bindings = (*ATTACHED.bind_changes(row), row.run, chain.old.commit_id, *added, *chunks)
    found = cursor.execute(statement, bindings).fetchall()
    return {index: made.outcome(added_bytes(made, commit, set(found)))} if found else None


def _append_one(cursor: Cursor, sql: Statements, chain: Chain) -> dict[int, Committed] | None:
    """Append one entry, as each step of a workflow does."""
    index, made, _ = chain.links[0]
    row, (entry,) = made.run, made.entries
    bindings = (*APPENDED.bind_changes(row), row.run, chain.old.commit_id, *ENTRIES.bind(row.run, entry))
    cursor.execute(sql["append_one"], bindings)
    return {index: made.outcome()} if cursor.rowcount == 1 else None


def _save_many(cursor: Cursor, statement: bytes, chains: Sequence[Chain]) -> dict[int, Committed] | None:
    moved, checkpoints, entries, chunks = [], [], [], []
    for chain in sorted(chains, key=lambda chain: (chain.old.family, chain.old.run)):
        row, old = chain.row, chain.old
        moved.append((row.run, old.commit_id, *PROGRESS.bind_changes(row)))
        for _, made, commit in chain.links:
            checkpoints += [CHECKPOINTS.bind(row.run, c) for c in made.checkpoints]
            entries += [ENTRIES.bind(row.run, e) for e in made.entries]
            chunks += [(row.run, row.family, chunk.hash, chunk.body) for chunk in commit.chunks]
    bindings: Columns = (
        *columns_of(f"ib{PROGRESS.changing_shape}", moved),
        *columns_of(CHECKPOINTS.shape, checkpoints),
        *columns_of(ENTRIES.shape, entries),
        *columns_of("iibb", chunks),
        len(moved),
    )
    try:
        _, *found = cursor.execute(statement, bindings).fetchall()
    except DivisionByZero:
        return None
    stored = set(found)
    return {
        index: made.outcome(added_bytes(made, commit, stored))
        for chain in chains
        for index, made, commit in chain.links
    }


def added_bytes(made: Decision, commit: Commit, stored: set[Columns]) -> int:
    """How many bytes of state a commit added. Removes the chunks it stored from `stored`."""
    roots = [row.root for row in (*made.checkpoints, *made.replaced)] + [row.root for row in made.attachments]
    added = sum(map(len, roots))
    for chunk in commit.chunks:
        key = (made.run.family, chunk.hash)
        if key in stored:
            stored.discard(key)
            added += len(chunk.body)
    return added
