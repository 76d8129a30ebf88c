"""The statements that write a batch of commits, and the fast path of common saves.

All rows of one kind are written by one statement, whatever number of commits they come from. Statements are executed in
the order of `SHAPES` and chunks in the order of their hashes, so that two batches do not deadlock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from psycopg.errors import DivisionByZero, UniqueViolation

from holdfast.limits import MIB
from holdfast.model.commit import Commit, Committed, Refused, commit_bytes
from holdfast.model.rows import RunRow
from holdfast.store.decide import Decision, decide
from holdfast.store.postgres.dialect import Column, Texts, columns_of
from holdfast.store.postgres.postgres_reads import NeedsRead, OptimisticReads, no_lease
from holdfast.store.postgres.prepared import PreparedStatements, keys_of
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
        if made.items or _wakes(made.run, old):
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


# The fast path: one statement for commits that change cached runs and only add to them.
#
# A decision is made on the cached row, and written if the stored row still has the same commit id. Nothing is read or
# locked before. Several commits of one run form a chain: all their rows are written, and the run's row as the last of
# them leaves it. If a cached row is out of date, or a row assumed to be new exists, nothing is written.

_OPTIMISTIC: Final = OptimisticReads()
_FAST_BYTES_MAX: Final = 1 * MIB
"""A larger commit takes the slow path, which splits large statements and waits longer for the server."""


class Chain:
    """Commits of one run, each decided on the row that the one before it leaves."""

    __slots__ = ("links", "old", "progress", "row")

    def __init__(self, row: RunRow) -> None:
        self.old = row
        self.row = row
        self.progress = True
        """Whether the commits change nothing else in the run's row."""
        self.links: list[tuple[int, Decision, Commit]] = []
        """Each commit with its place in the batch and its decision."""

    def add(self, index: int, made: Decision, commit: Commit) -> None:
        self.links.append((index, made, commit))
        self.progress = self.progress and made.progress
        self.row = made.run


def decide_fast(row: RunRow, commit: Commit, now_us: int) -> Decision | None:
    """The decision on a cached row, or None if the commit cannot take the fast path."""
    if commit_bytes(commit) > _FAST_BYTES_MAX:
        return None
    if commit.sent or commit.drop_timers or commit.send or commit.take_items or commit.metadata:
        return None
    if commit.deliver or commit.close_gates or any(effect.state != "intent" for effect in commit.effects):
        return None  # these change gates and effects that exist
    try:
        made = decide(row, commit, now_us, no_lease, _OPTIMISTIC)
    except NeedsRead:
        return None
    if isinstance(made, Refused) or not made.fresh:
        return None
    if made.items or made.lanes or made.replaced:
        return None
    if made.attachments:
        return made if not commit.timers and _only_attaches(row, made) else None
    return made if made.progress or not _wakes(made.run, row) else None


def _wakes(run: RunRow, old: RunRow | None) -> bool:
    """Whether a change makes the run ready, so that listeners are notified."""
    return run.ready_us > 0 and (old is None or old.ready_us != run.ready_us)


def _only_attaches(row: RunRow, made: Decision) -> bool:
    """Whether the commit only adds new attachments."""
    changed = {"attached", "updated_us", "commit_id", "seal"}
    same = all(getattr(row, name) == getattr(made.run, name) for name in row.__struct_fields__ if name not in changed)
    places = {(a.lane, a.checkpoint_id, a.key) for a in made.attachments}
    return same and len(places) == len(made.attachments) and not (made.checkpoints or made.entries or made.gates)


def save(prepared: PreparedStatements, chains: Sequence[Chain]) -> dict[int, Committed] | None:
    """Write the chains. The outcomes by the commits' places in the batch, or None if nothing was written."""
    try:
        return _save(prepared, chains)
    except UniqueViolation:  # a row that was assumed to be new exists
        return None


def _save(prepared: PreparedStatements, chains: Sequence[Chain]) -> dict[int, Committed] | None:
    if len(chains) == 1 and len(chains[0].links) == 1:
        made = chains[0].links[0][1]
        if made.attachments:
            return _attach(prepared, chains[0])
        if _is_small(chains[0].links[0]):
            return _save_one(prepared, chains[0]) if made.checkpoints else _append_one(prepared, chains[0])
    elif any(made.attachments for chain in chains for _, made, _ in chain.links):
        return None
    return _save_many(prepared, chains)


def _is_small(link: tuple[int, Decision, Commit]) -> bool:
    """Whether a commit adds one checkpoint or one entry, and nothing else."""
    _, made, commit = link
    if not made.progress or made.effects or made.gates or commit.timers or (made.entries and commit.chunks):
        return False
    return len(made.checkpoints) + len(made.entries) == 1


def _save_one(prepared: PreparedStatements, chain: Chain) -> dict[int, Committed] | None:
    """The most common save. Without arrays it takes half the time of `_save_many`."""
    index, made, commit = chain.links[0]
    row, (checkpoint,) = made.run, made.checkpoints
    key, _, *columns = CHECKPOINTS.bind(row.run, checkpoint)
    bindings = (*PROGRESS.bind_changes(row), row.run, chain.old.commit_id, key, *columns)
    if not commit.chunks:
        done = prepared.execute(("save_one",), bindings)
        return {index: made.outcome(len(checkpoint.root))} if done.command_tuples == 1 else None
    chunks = columns_of("bb", [(chunk.hash, chunk.body) for chunk in commit.chunks])
    found = keys_of(prepared.execute(("save_one_with_chunks",), (*bindings, *chunks)))
    return {index: made.outcome(added_bytes(made, commit, set(found)))} if found else None


def _attach(prepared: PreparedStatements, chain: Chain) -> dict[int, Committed] | None:
    """Attach values, as each task of a graph does."""
    index, made, commit = chain.links[0]
    row = made.run
    added = columns_of(ATTACHMENTS.shape, [ATTACHMENTS.bind(row.run, a) for a in made.attachments])
    chunks = columns_of("bb", [(chunk.hash, chunk.body) for chunk in commit.chunks])
    bindings = (*ATTACHED.bind_changes(row), row.run, chain.old.commit_id, *added, *chunks)
    found = keys_of(prepared.execute(("attach_new",), bindings))
    return {index: made.outcome(added_bytes(made, commit, set(found)))} if found else None


def _append_one(prepared: PreparedStatements, chain: Chain) -> dict[int, Committed] | None:
    """Append one entry, as each step of a workflow does."""
    index, made, _ = chain.links[0]
    row, (entry,) = made.run, made.entries
    bindings = (*APPENDED.bind_changes(row), row.run, chain.old.commit_id, *ENTRIES.bind(row.run, entry))
    done = prepared.execute(("append_one",), bindings)
    return {index: made.outcome()} if done.command_tuples == 1 else None


class _NewRows(NamedTuple):
    """The rows that chains add, by kind."""

    checkpoints: list[Columns]
    entries: list[Columns]
    effects: list[Columns]
    gates: list[Columns]
    timers: list[Columns]
    chunks: list[Columns]

    def add(self, made: Decision, commit: Commit) -> None:
        run, family = made.run.run, made.run.family
        self.checkpoints.extend([CHECKPOINTS.bind(run, c) for c in made.checkpoints])
        self.entries.extend([ENTRIES.bind(run, e) for e in made.entries])
        self.effects.extend([EFFECTS.bind(run, e) for e in made.effects])
        self.gates.extend([GATES.bind(run, g) for g in made.gates])
        self.timers.extend([TIMERS.bind(run, t) for t in commit.timers])
        self.chunks.extend([(run, family, chunk.hash, chunk.body) for chunk in commit.chunks])


_ADDED: Final = {
    "add_checkpoints": CHECKPOINTS.shape,
    "add_entries": ENTRIES.shape,
    "add_effects": EFFECTS.shape,
    "add_gates": GATES.shape,
    "add_timers": TIMERS.shape,
    "add_chunks": "iibb",
}
"""The parts that insert them, in the order of `_NewRows`, with the types of their columns."""


def _save_many(prepared: PreparedStatements, chains: Sequence[Chain]) -> dict[int, Committed] | None:
    moved, rows = [], _NewRows([], [], [], [], [], [])
    is_progress = all(chain.progress for chain in chains)
    table, first = (PROGRESS, "move_progress") if is_progress else (RUNS, "move_runs")
    for chain in sorted(chains, key=lambda chain: (chain.old.family, chain.old.run)):
        row, old = chain.row, chain.old
        moved.append((row.run, old.commit_id, *table.bind_changes(row)))
        for _, made, commit in chain.links:
            rows.add(made, commit)
    names, bindings = [first], columns_of(f"ib{table.changing_shape}", moved)
    for added, (name, shape) in zip(rows, _ADDED.items(), strict=True):
        if added:
            names.append(name)
            bindings += columns_of(shape, added)
    names.append("stored_or_nothing" if rows.chunks else "moved_or_nothing")
    try:
        _, *found = keys_of(prepared.execute(tuple(names), (*bindings, len(moved))))
    except DivisionByZero:
        return None
    stored = set(found)
    return {
        index: made.outcome(added_bytes(made, commit, stored))
        for chain in chains
        for index, made, commit in chain.links
    }


def added_bytes(made: Decision, commit: Commit, stored: set[tuple[int, bytes | None]]) -> int:
    """How many bytes of state a commit added. Removes the chunks it stored from `stored`."""
    roots = [row.root for row in (*made.checkpoints, *made.replaced)] + [row.root for row in made.attachments]
    added = sum(map(len, roots))
    for chunk in commit.chunks:
        key = (made.run.family, chunk.hash)
        if key in stored:
            stored.discard(key)
            added += len(chunk.body)
    return added
