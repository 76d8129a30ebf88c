"""Writing to SQLite: one connection, one transaction for each batch of commits.

The writer remembers the rows of the runs it wrote last. A decision made on a remembered row is only applied if the row
still has the commit id it had then (every change of a row changes it), so in the common case a commit needs no read.
If it has not, or if the decision is to refuse, the row is read and the decision is made again.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from holdfast.clock import Clock
from holdfast.errors import DamagedData
from holdfast.model import commit as why
from holdfast.model.commit import Commit, Committed, Outcome, Refused
from holdfast.model.rows import LaneRow, RunRow
from holdfast.store.decide import Decision, decide
from holdfast.store.seal import check_run
from holdfast.store.sql.rows import built, entry_columns, key_of
from holdfast.store.sql.statements import statements
from holdfast.store.sqlite.connection import roll_back
from holdfast.store.sqlite.look import SqliteLook
from holdfast.store.sqlite.rows import first

_REMEMBERED_MAX = 4096
_CACHED_BYTES_MAX = 1024 * 1024
"""A cached statement keeps what was bound to it; one with a larger body is not cached."""


class Unclear(Exception):
    """COMMIT itself failed: what was to be committed may be there or not. Carries the outcomes it would have had."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        super().__init__("the outcome of a commit is not known")
        self.outcomes = outcomes


class Writer:
    """Applies commits. Used by one thread at a time."""

    def __init__(self, connection: apsw.Connection, clock: Clock) -> None:
        self.connection = connection
        self._clock = clock
        self._execute = connection.cursor().execute
        self._sql = statements()
        self._look = SqliteLook(connection)
        self._remembered: dict[str, RunRow] = {}

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        """Apply or refuse each commit, in one transaction. An error leaves nothing of any of them."""
        outcomes: list[Outcome] = []
        try:
            self._execute("BEGIN IMMEDIATE")
            for commit in commits:
                outcomes.append(self.one(commit))  # noqa: PERF401 - what there is must be known if the next line fails
            self._execute("COMMIT")
        except BaseException as error:
            self.forget()
            roll_back(self.connection)
            if isinstance(error, apsw.IOError) and len(outcomes) == len(commits):
                raise Unclear(outcomes) from error
            raise
        return outcomes

    def forget(self) -> None:
        """Read rows again before the next decision."""
        self._remembered.clear()

    def read(self, run_id: str) -> RunRow | None:
        """The run's row as of this transaction, checked."""
        found = first(self._execute, self._sql["run_by_id"], (run_id,))
        return check_run(built(RunRow, found)) if found else None

    def one(self, commit: Commit) -> Outcome:
        """Apply or refuse one commit within the transaction."""
        remembered = self._remembered.get(commit.run_id)
        if remembered is not None:
            outcome = self._decided(remembered, commit)
            if type(outcome) is Committed and outcome.fresh:
                return outcome
        try:
            row = self.read(commit.run_id)
        except DamagedData as damage:
            return Refused(why.DAMAGED, extra=damage)
        decided = self._decided(row, commit)
        assert decided is not None, "the row was read in this very transaction"
        return decided

    def _decided(self, row: RunRow | None, commit: Commit) -> Outcome | None:
        """The outcome, or None if `row` turned out to be out of date, and nothing was written."""
        made = decide(row, commit, self._clock.now_us(), self._clock.lease_time, self._look)
        if isinstance(made, Refused):
            return made
        if not made.fresh:
            return Committed(made.run, made.numbers, 0, made.checkpoint_id, made.covers, made.step, False)
        if row is None:
            self._insert_run(made)
        elif not self._update_run(row, made.run, progress=made.progress):
            return None
        added = self._write(made, commit)
        if len(self._remembered) >= _REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[commit.run_id] = made.run
        return Committed(made.run, made.numbers, added, made.checkpoint_id, made.covers, made.step)

    def _insert_run(self, made: Decision) -> None:
        row = made.run
        self._execute(self._sql["insert_run"], tuple(getattr(row, name) for name in row.__struct_fields__))

    def _update_run(self, old: RunRow, new: RunRow, *, progress: bool = False) -> bool:
        """Write the row if it still is `old`."""
        if progress:
            self._execute(
                self._sql["update_run_progress"],
                (new.updated_us, new.position, new.serial, new.head, new.head_id, new.step, new.commit_id, new.seal,
                 new.run, old.commit_id),
            )  # fmt: skip
        else:
            self._execute(
                self._sql["update_run"],
                (new.workflow, new.status, new.metadata, new.updated_us, new.position, new.serial, new.head,
                 new.head_id, new.step, new.effects, new.attached, new.rewrites, new.inbox, new.outbox, new.fence,
                 new.owner, new.nonce, new.lease_us, new.boot, new.gc_epoch, new.ready_us, new.commit_id, new.seal,
                 new.run, old.commit_id),
            )  # fmt: skip
        return self.connection.changes() == 1

    def update_run(self, old: RunRow, new: RunRow) -> None:
        """Write a row that was read in this transaction."""
        updated = self._update_run(old, new)
        assert updated, "the row was read in this very transaction"

    def set_lanes(self, run: int, lanes: Sequence[LaneRow]) -> None:
        """Write the heads of lanes; one on which nothing remains has none."""
        for lane in lanes:
            if lane.head:
                self._execute(self._sql["set_lane"], (run, lane.lane, lane.head, lane.head_id, lane.step))
            else:
                self._execute(self._sql["delete_lane"], (run, lane.lane))

    # --- the rows of a decision --------------------------------------------------------------------------------------

    def _write(self, made: Decision, commit: Commit) -> int:
        """Write the rows and chunks; the number of bytes of state that were added."""
        execute, sql, run = self._execute, self._sql, made.run.run
        added = 0
        for chunk in commit.chunks:
            execute(sql["insert_chunk"], (made.run.family, chunk.hash, chunk.body))
            if self.connection.changes():
                added += len(chunk.body)
        for c in made.checkpoints:
            execute(
                sql["insert_checkpoint"],
                (key_of(run, c.number), run, c.lane, c.checkpoint_id, c.named, c.parent_id, c.step, c.next_node,
                 c.covers, c.status, c.metadata, c.created_us, c.root, c.seal),
            )  # fmt: skip
            added += len(c.root)
        for e in made.entries:
            execute(sql["insert_entry"], entry_columns(run, e), can_cache=len(e.body) <= _CACHED_BYTES_MAX)
        if made.created or made.new_tags:
            self._write_tags(made)
        return added + self._write_rest(made, commit)

    def _write_tags(self, made: Decision) -> None:
        for key, value in made.old_tags:
            self._execute(self._sql["delete_tag"], (key, value, made.run.run))
        for key, value in made.new_tags:
            self._execute(self._sql["insert_tag"], (key, value, made.run.run))

    def _write_rest(self, made: Decision, commit: Commit) -> int:
        execute, sql, run = self._execute, self._sql, made.run.run
        added = 0
        for c in made.replaced:
            execute(
                sql["replace_checkpoint"],
                (c.parent_id, c.step, c.next_node, c.covers, c.status, c.metadata, c.created_us, c.root, c.seal,
                 key_of(run, c.number)),
            )  # fmt: skip
            added += len(c.root)
        self.set_lanes(run, made.lanes)
        for f in made.effects:
            execute(
                sql["set_effect"],
                (key_of(run, f.number), run, f.key, f.state, f.tool, f.target, f.reversible, f.after_checkpoint,
                 f.after_position, f.created_us, f.updated_us, f.commit_id, f.body, f.call, f.seal),
                can_cache=len(f.body) + len(f.call) <= _CACHED_BYTES_MAX,
            )  # fmt: skip
        for a in made.attachments:
            execute(
                sql["set_attachment"],
                (key_of(run, a.number), run, a.lane, a.checkpoint_id, a.key, a.created_us, a.root, a.seal),
            )  # fmt: skip
            added += len(a.root)
        for g in made.gates:
            execute(
                sql["set_gate"],
                (run, g.gate, g.state, g.opened_us, g.expires_us, g.answered_us, g.answered_by, g.body, g.seal),
                can_cache=len(g.body) <= _CACHED_BYTES_MAX,
            )
        for i in made.items:
            execute(
                sql["insert_item"],
                (key_of(run, i.number), run, i.kind, i.name, i.key, i.by, i.created_us, i.taken, i.body, i.seal),
                can_cache=len(i.body) <= _CACHED_BYTES_MAX,
            )
        for i in made.taken:
            execute(sql["take_item"], (i.taken, i.body, i.seal, key_of(run, i.number)))
        for m in made.messages:
            execute(
                sql["insert_message"],
                (key_of(run, m.number), m.target, m.kind, m.name, m.key, m.created_us, m.body, m.seal),
                can_cache=len(m.body) <= _CACHED_BYTES_MAX,
            )
        for name in made.drop_timers:
            execute(sql["drop_timer"], (run, name))
        for timer in commit.timers:
            execute(sql["set_timer"], (run, timer.timer, timer.due_us))
        for number in commit.sent:
            execute(sql["drop_message"], (key_of(run, number),))
        return added
