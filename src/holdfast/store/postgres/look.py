"""Reads inside the transaction of a commit, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from holdfast.clock import LeaseTime
from holdfast.ids import own_checkpoint_number
from holdfast.model.commit import Commit
from holdfast.model.rows import (
    AttachmentRow,
    CheckpointRow,
    EffectRow,
    GateRow,
    ItemRow,
    LaneRow,
    RunRow,
    TimerRow,
)
from holdfast.store.postgres.arrays import Bigints
from holdfast.store.postgres.connection import Link
from holdfast.store.postgres.dialect import Statements
from holdfast.store.sql.rows import built, key_of


class Asked(Exception):
    """A decision asked for something that is not known without a look at the database."""


class Blind:
    """Looks at nothing: for decisions that need no look."""

    def __getattr__(self, name: str) -> Any:
        raise Asked(name)


class Hopeful(Blind):
    """Takes a checkpoint of a new name, or an attachment, for not being there, which it nearly always is not.

    If it is there after all, writing it meets an index that has it already, and nothing is written.
    """

    def checkpoint(self, run: int, lane: str, checkpoint_id: str) -> None:  # noqa: ARG002
        if own_checkpoint_number(checkpoint_id) is not None:
            raise Asked("checkpoint")

    def attachment(self, run: int, lane: str, checkpoint_id: str, key: str) -> None:
        """It is not there."""


def no_lease() -> LeaseTime:
    """Leases are measured by the database's clock, so asking for it is a look."""
    raise Asked("lease")


def first(link: Link, sql: bytes, bindings: tuple[Any, ...]) -> Any:
    """The first row, or None."""
    return link.execute(sql, bindings, binary=True).fetchone()


def find_checkpoint(link: Link, sql: Statements, run: int, lane: str, checkpoint_id: str) -> CheckpointRow | None:
    """A checkpoint by its id: chosen ones by their index, a store's own by the number they start with."""
    found = first(link, sql["checkpoint_by_id"], (run, lane, checkpoint_id))
    if found:
        return built(CheckpointRow, found)
    number = own_checkpoint_number(checkpoint_id)
    found = first(link, sql["checkpoint_by_key"], (key_of(run, number),)) if number else None
    row = built(CheckpointRow, found) if found else None
    return row if row and row.lane == lane and row.checkpoint_id == checkpoint_id else None


class Foreseen:
    """What decisions will probably look for, asked for before anybody looks: together with the runs' rows."""

    def __init__(self, link: Link, sql: Statements, commits: Sequence[Commit]) -> None:
        """Inside a pipeline: the answers come at its end."""
        self._asked: list[tuple[str, tuple[str, ...], Any, psycopg.Cursor[tuple[Any, ...]]]] = []
        for commit in commits:
            for new in commit.checkpoints:
                for name in {new.checkpoint_id, new.parent_id if new.needs_parent else ""} - {"", None}:
                    if own_checkpoint_number(name or "") is not None:
                        continue
                    bindings = (commit.run_id, new.lane, name or "")
                    found = link.execute(sql["checkpoint_of_run"], bindings, binary=True)
                    self._asked.append((commit.run_id, bindings[1:], CheckpointRow, found))
            for effect in commit.effects:
                found = link.execute(sql["effect_of_run"], (commit.run_id, effect.key), binary=True)
                self._asked.append((commit.run_id, (effect.key,), EffectRow, found))
            if commit.create is not None and commit.create.required:
                continue  # a run that is only now made has no attachments
            for place in {(new.lane, new.checkpoint_id, new.key): None for new in commit.attachments}:
                found = link.execute(sql["attachment_of_run"], (commit.run_id, *place), binary=True)
                self._asked.append((commit.run_id, place, AttachmentRow, found))

    def answers(self, rows: dict[str, RunRow]) -> dict[tuple[Any, ...], Any]:
        """What was found, or None, by what was looked for."""
        known: dict[tuple[Any, ...], Any] = {}
        for run_id, names, kind, cursor in self._asked:
            if run_id in rows:
                found = cursor.fetchone()
                known[rows[run_id].run, *names] = built(kind, found) if found else None
        return known


class PostgresLook:
    """The decisions' questions, answered by one connection inside its transaction.

    `rows` are the runs that are locked; `numbers` are new ones, fetched with them; `known` is what was foreseen, until
    the transaction itself has written something.
    """

    def __init__(
        self,
        link: Link,
        sql: Statements,
        rows: dict[str, RunRow],
        numbers: list[int],
        known: dict[tuple[Any, ...], Any],
    ) -> None:
        self._link = link
        self._sql = sql
        self._rows = rows
        self._numbers = numbers
        self.known = known

    def _row(self, kind: Any, name: str, *bindings: Any) -> Any:
        found = first(self._link, self._sql[name], bindings)
        return built(kind, found) if found else None

    def source(self, run_id: str) -> RunRow | None:
        return self._rows.get(run_id)

    def new_run(self) -> int:
        return self._numbers.pop()

    def checkpoint(self, run: int, lane: str, checkpoint_id: str) -> CheckpointRow | None:
        if (run, lane, checkpoint_id) in self.known:
            row: CheckpointRow | None = self.known[run, lane, checkpoint_id]
            return row
        return find_checkpoint(self._link, self._sql, run, lane, checkpoint_id)

    def lane(self, run: int, lane: str) -> LaneRow | None:
        row: LaneRow | None = self._row(LaneRow, "lane", run, lane)
        return row

    def effect(self, run: int, key: str) -> EffectRow | None:
        row: EffectRow | None = (
            self.known[run, key] if (run, key) in self.known else self._row(EffectRow, "effect", run, key)
        )
        return row

    def attachment(self, run: int, lane: str, checkpoint_id: str, key: str) -> AttachmentRow | None:
        place = (run, lane, checkpoint_id, key)
        row: AttachmentRow | None = (
            self.known[place] if place in self.known else self._row(AttachmentRow, "attachment", *place)
        )
        return row

    def gate(self, run: int, gate: str) -> GateRow | None:
        row: GateRow | None = self._row(GateRow, "gate", run, gate)
        return row

    def timer(self, run: int, timer: str) -> TimerRow | None:
        row: TimerRow | None = self._row(TimerRow, "timer", run, timer)
        return row

    def item(self, run: int, key: str) -> ItemRow | None:
        row: ItemRow | None = self._row(ItemRow, "item_by_key", run, key)
        return row

    def items(self, run: int, numbers: Sequence[int]) -> list[ItemRow]:
        keys = Bigints([key_of(run, number) for number in numbers])
        found = self._link.execute(self._sql["items"], (keys,), binary=True).fetchall()
        return [built(ItemRow, row) for row in found]
