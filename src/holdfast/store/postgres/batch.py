"""The rows of several decisions, gathered by table, and sent in one go.

Everything about one kind of row goes in one statement, whatever number of commits it comes from. The order of the
statements is the order of `SHAPES`; chunks are written in the order of their hashes, so that two batches never wait for
each other in a circle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from holdfast.limits import MIB
from holdfast.model.commit import Commit, commit_bytes
from holdfast.model.rows import RunRow
from holdfast.store.decide import Decision
from holdfast.store.postgres.arrays import Column, Texts, columns_of
from holdfast.store.sql.rows import entry_columns, key_of

_RUN: Final = "itibttbbiiiiitiiiiiiitbitiibi"
_CHECKPOINT: Final = "iittotititbibi"
SHAPES: Final = {
    "insert_runs": _RUN,
    "update_runs": _RUN,
    "insert_chunks": "ibb",
    "insert_checkpoints": _CHECKPOINT,
    "replace_checkpoints": _CHECKPOINT,
    "set_lanes": "ititi",
    "insert_entries": "itibbi",
    "delete_tags": "bbi",
    "insert_tags": "bbi",
    "set_effects": "iittttoiiiibbbi",
    "set_attachments": "iitttibi",
    "set_gates": "ittiiitbi",
    "drop_timers": "it",
    "set_timers": "iti",
    "insert_items": "iittttiobi",
    "take_items": "iobi",
    "insert_messages": "ittttibi",
    "drop_messages": "i",
}
"""The statements, in their order, with the types of their columns."""
_KEYS: Final = {
    "replace_checkpoints": slice(0, 1),
    "set_lanes": slice(0, 2),
    "set_effects": slice(0, 1),
    "set_attachments": slice(1, 5),
    "set_gates": slice(0, 2),
    "set_timers": slice(0, 2),
    "take_items": slice(0, 1),
}
"""The key among the columns, where one commit may say something twice about a row: the last counts."""


def run_columns(row: RunRow) -> tuple[Any, ...]:
    """The row as columns."""
    return (
        row.run, row.run_id, row.family, row.incarnation, row.workflow, row.status, row.metadata, row.origin,
        row.created_us, row.updated_us, row.position, row.serial, row.head, row.head_id, row.step, row.effects,
        row.attached, row.rewrites, row.inbox, row.outbox, row.fence, row.owner, row.nonce, row.lease_us, row.boot,
        row.gc_epoch, row.ready_us, row.commit_id, row.seal,
    )  # fmt: skip


def checkpoint_columns(run: int, c: Any) -> tuple[Any, ...]:
    """A checkpoint as columns."""
    return (
        key_of(run, c.number), run, c.lane, c.checkpoint_id, c.named, c.parent_id, c.step, c.next_node, c.covers,
        c.status, c.metadata, c.created_us, c.root, c.seal,
    )  # fmt: skip


_STATEMENT_BYTES: Final = 64 * MIB
"""What one statement carries, unless a single row is larger: PostgreSQL takes no message of a gigabyte or more."""


def _parts(shape: str, rows: Sequence[tuple[Any, ...]]) -> Iterator[Sequence[tuple[Any, ...]]]:
    """The rows, cut where one statement would carry too much."""
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
    """Rows that are still to be written. A run is in it at most once."""

    def __init__(self) -> None:
        self._rows: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self._chunks: dict[tuple[int, bytes], bytes] = {}
        self._heard: list[str] = []
        """Runs that whoever listens is to be told of."""
        self.runs: set[str] = set()
        self.bytes = 0

    def update_run(self, row: RunRow) -> None:
        """Write a run's row, which was read in this transaction."""
        self._rows["update_runs"].append(run_columns(row))

    def add(self, made: Decision, commit: Commit, old: RunRow | None) -> None:
        """Put in all rows of a decision."""
        run, rows = made.run.run, self._rows
        self.runs.add(commit.run_id)
        self.bytes += commit_bytes(commit)
        rows["insert_runs" if made.created else "update_runs"].append(run_columns(made.run))
        for chunk in commit.chunks:
            self._chunks.setdefault((made.run.family, chunk.hash), chunk.body)
        rows["insert_checkpoints"] += [checkpoint_columns(run, c) for c in made.checkpoints]
        rows["replace_checkpoints"] += [checkpoint_columns(run, c) for c in made.replaced]
        rows["set_lanes"] += [(run, lane.lane, lane.head, lane.head_id, lane.step) for lane in made.lanes]
        rows["insert_entries"] += [entry_columns(run, e) for e in made.entries]
        rows["delete_tags"] += [(key.encode(), value, run) for key, value in made.old_tags]
        rows["insert_tags"] += [(key.encode(), value, run) for key, value in made.new_tags]
        rows["set_effects"] += [
            (key_of(run, f.number), run, f.key, f.state, f.tool, f.target, f.reversible, f.after_checkpoint,
             f.after_position, f.created_us, f.updated_us, f.commit_id, f.body, f.call, f.seal)
            for f in made.effects
        ]  # fmt: skip
        rows["set_attachments"] += [
            (key_of(run, a.number), run, a.lane, a.checkpoint_id, a.key, a.created_us, a.root, a.seal)
            for a in made.attachments
        ]
        self._add_outside(made, commit)
        woken = made.run.ready_us > 0 and (old is None or old.ready_us != made.run.ready_us)
        if woken or made.items:
            self._heard.append(commit.run_id)

    def _add_outside(self, made: Decision, commit: Commit) -> None:
        """Gates, timers, inbox and outbox."""
        run, rows = made.run.run, self._rows
        rows["set_gates"] += [
            (run, g.gate, g.state, g.opened_us, g.expires_us, g.answered_us, g.answered_by, g.body, g.seal)
            for g in made.gates
        ]
        rows["drop_timers"] += [(run, name) for name in made.drop_timers]
        rows["set_timers"] += [(run, timer.timer, timer.due_us) for timer in commit.timers]
        rows["insert_items"] += [
            (key_of(run, i.number), run, i.kind, i.name, i.key, i.by, i.created_us, i.taken, i.body, i.seal)
            for i in made.items
        ]
        rows["take_items"] += [(key_of(run, i.number), i.taken, i.body, i.seal) for i in made.taken]
        rows["insert_messages"] += [
            (key_of(run, m.number), m.target, m.kind, m.name, m.key, m.created_us, m.body, m.seal)
            for m in made.messages
        ]
        rows["drop_messages"] += [(key_of(run, number),) for number in commit.sent]

    def statements(self, channel: str) -> Iterator[tuple[str, tuple[Column | str, ...]]]:
        """What is to be executed: names of statements and what is bound to them."""
        self._rows["insert_chunks"] = [(*key, self._chunks[key]) for key in sorted(self._chunks)]
        for name, shape in SHAPES.items():
            rows = self._rows.get(name)
            if rows and name in _KEYS:
                rows = list({row[_KEYS[name]]: row for row in rows}.values())
            for part in _parts(shape, rows or ()):
                yield name, columns_of(shape, part)
        if self._heard:
            yield "notify", (channel, Texts(self._heard))
