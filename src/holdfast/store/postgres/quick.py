"""The common save in one statement: commits that only move a remembered run on.

A decision is made on the row as it was remembered, and written under the condition that the row still has the commit id
it had then. Nothing is read and nothing is locked before. Several commits of one run become a chain: its rows are all
written, its last state of the run is the one that counts. If any row is not what was remembered, or something is there
already that was thought to be new, nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg.errors import DivisionByZero, UniqueViolation

from holdfast.limits import MIB
from holdfast.model.commit import Commit, Committed, Refused, commit_bytes
from holdfast.model.rows import RunRow
from holdfast.store.decide import Decision, decide
from holdfast.store.postgres.arrays import columns_of
from holdfast.store.postgres.batch import checkpoint_columns
from holdfast.store.postgres.dialect import Statements
from holdfast.store.postgres.look import Asked, Hopeful, no_lease
from holdfast.store.sql.rows import entry_columns, key_of

Cursor = psycopg.Cursor[tuple[Any, ...]]

_MOVED: Final = "ibiiiitibi"
_HOPEFUL: Final = Hopeful()
_QUICK_BYTES_MAX: Final = 1 * MIB
"""A larger commit goes the long way, which cuts large statements and gives the server time for them."""


class Chain:
    """Commits of one run, each decided on what the one before it makes of the run."""

    __slots__ = ("links", "old", "row")

    def __init__(self, row: RunRow) -> None:
        self.old = row
        self.row = row
        self.links: list[tuple[int, Decision, Commit]] = []
        """Which commit of the batch, and what it does."""

    def add(self, index: int, made: Decision, commit: Commit) -> None:
        self.links.append((index, made, commit))
        self.row = made.run


def quickly_decided(row: RunRow, commit: Commit, now_us: int) -> Decision | None:
    """What the commit does to a remembered row, if it is to be written the short way; else None.

    It leaves a checkpoint or an entry behind, by which it can be recognised if the connection is lost.
    """
    if commit_bytes(commit) > _QUICK_BYTES_MAX:
        return None
    if commit.timers or commit.sent or commit.drop_timers or commit.send or commit.take_items or commit.metadata:
        return None
    try:
        made = decide(row, commit, now_us, no_lease, _HOPEFUL)
    except Asked:
        return None
    if isinstance(made, Refused) or not made.fresh:
        return None
    if made.effects or made.gates or made.items or made.lanes or made.replaced:
        return None
    if made.attachments:
        return made if _only_attaches(row, made) else None
    return made if made.progress and (made.checkpoints or made.entries) else None


def _only_attaches(row: RunRow, made: Decision) -> bool:
    """Whether nothing happens but that something new is attached."""
    changed = {"attached", "updated_us", "commit_id", "seal"}
    same = all(getattr(row, name) == getattr(made.run, name) for name in row.__struct_fields__ if name not in changed)
    places = {(a.lane, a.checkpoint_id, a.key) for a in made.attachments}
    return same and len(places) == len(made.attachments) and not (made.checkpoints or made.entries)


def save(cursor: Cursor, sql: Statements, chains: Sequence[Chain]) -> dict[int, Committed] | None:
    """Write the chains; the outcomes by the commits' places in the batch, or None if nothing was written."""
    try:
        return _save(cursor, sql, chains)
    except UniqueViolation:  # it is there already
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
    """What most saves are, without arrays for what there is one of: half the time of `_save_many`."""
    index, made, commit = chain.links[0]
    row, (checkpoint,) = made.run, made.checkpoints
    key, _, *columns = checkpoint_columns(row.run, checkpoint)
    bindings = (
        row.updated_us, row.position, row.serial, row.head, row.head_id, row.step, row.commit_id, row.seal, row.run,
        chain.old.commit_id, key, *columns,
    )  # fmt: skip
    if not commit.chunks:
        cursor.execute(sql["save_one"], bindings)
        return {index: committed(made, len(checkpoint.root))} if cursor.rowcount == 1 else None
    chunks = columns_of("bb", [(chunk.hash, chunk.body) for chunk in commit.chunks])
    found = cursor.execute(sql["save_one_with_chunks"], (*bindings, *chunks)).fetchall()
    return {index: committed(made, added_bytes(made, commit, set(found)))} if found else None


def _attach(cursor: Cursor, statement: bytes, chain: Chain) -> dict[int, Committed] | None:
    """What a task of a graph writes."""
    index, made, commit = chain.links[0]
    row = made.run
    rows = [
        (key_of(row.run, a.number), a.lane, a.checkpoint_id, a.key, a.created_us, a.root, a.seal)
        for a in made.attachments
    ]
    bindings = (
        row.updated_us, row.attached, row.commit_id, row.seal, row.run, chain.old.commit_id,
        *columns_of("itttibi", rows), *columns_of("bb", [(chunk.hash, chunk.body) for chunk in commit.chunks]),
    )  # fmt: skip
    found = cursor.execute(statement, bindings).fetchall()
    return {index: committed(made, added_bytes(made, commit, set(found)))} if found else None


def _append_one(cursor: Cursor, sql: Statements, chain: Chain) -> dict[int, Committed] | None:
    """What a step of a workflow is: one entry."""
    index, made, _ = chain.links[0]
    row, (entry,) = made.run, made.entries
    bindings = (
        row.updated_us, row.position, row.commit_id, row.seal, row.run, chain.old.commit_id,
        *entry_columns(row.run, entry),
    )  # fmt: skip
    cursor.execute(sql["append_one"], bindings)
    return {index: committed(made, 0)} if cursor.rowcount == 1 else None


def _save_many(cursor: Cursor, statement: bytes, chains: Sequence[Chain]) -> dict[int, Committed] | None:
    moved, checkpoints, entries, chunks = [], [], [], []
    for chain in sorted(chains, key=lambda chain: (chain.old.family, chain.old.run)):
        row, old = chain.row, chain.old
        moved.append((row.run, old.commit_id, row.updated_us, row.position, row.serial, row.head, row.head_id, row.step,
                      row.commit_id, row.seal))  # fmt: skip
        for _, made, commit in chain.links:
            checkpoints += [checkpoint_columns(row.run, c) for c in made.checkpoints]
            entries += [entry_columns(row.run, e) for e in made.entries]
            chunks += [(row.run, row.family, chunk.hash, chunk.body) for chunk in commit.chunks]
    bindings: tuple[Any, ...] = (
        *columns_of(_MOVED, moved), *columns_of("iittotititbibi", checkpoints), *columns_of("itibbi", entries),
        *columns_of("iibb", chunks), len(moved),
    )  # fmt: skip
    try:
        _, *found = cursor.execute(statement, bindings).fetchall()
    except DivisionByZero:
        return None
    stored = set(found)
    return {
        index: committed(made, added_bytes(made, commit, stored))
        for chain in chains
        for index, made, commit in chain.links
    }


def added_bytes(made: Decision, commit: Commit, stored: set[tuple[Any, ...]]) -> int:
    """How many bytes of state a commit added; the chunks it stored are taken out of `stored`."""
    roots = [row.root for row in (*made.checkpoints, *made.replaced)] + [row.root for row in made.attachments]
    added = sum(map(len, roots))
    for chunk in commit.chunks:
        key = (made.run.family, chunk.hash)
        if key in stored:
            stored.discard(key)
            added += len(chunk.body)
    return added


def committed(made: Decision, added: int) -> Committed:
    """The outcome of a decision that was carried out."""
    return Committed(made.run, made.numbers, added, made.checkpoint_id, made.covers, made.step)
