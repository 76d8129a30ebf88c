"""Reads inside the transaction of a commit, on SQLite."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

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
from holdfast.store.sql.rows import built, key_of
from holdfast.store.sql.statements import statements
from holdfast.store.sqlite.rows import effect_row, find_checkpoint, first, item_row


class SqliteLook:
    """The decisions' questions, answered by one connection."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._execute = connection.execute
        self._sql = statements()

    def source(self, run_id: str) -> RunRow | None:
        found = first(self._execute, self._sql["run_by_id"], (run_id,))
        return built(RunRow, found) if found else None

    def new_run(self) -> int:
        number: int = self._execute(self._sql["new_run_number"]).get
        return number

    def checkpoint(self, run: int, lane: str, checkpoint_id: str) -> CheckpointRow | None:
        return find_checkpoint(self._execute, run, lane, checkpoint_id)

    def lane(self, run: int, lane: str) -> LaneRow | None:
        found = first(self._execute, self._sql["lane"], (run, lane))
        return built(LaneRow, found) if found else None

    def effect(self, run: int, key: str) -> EffectRow | None:
        found = first(self._execute, self._sql["effect"], (run, key))
        return effect_row(found) if found else None

    def attachment(self, run: int, lane: str, checkpoint_id: str, key: str) -> AttachmentRow | None:
        found = first(self._execute, self._sql["attachment"], (run, lane, checkpoint_id, key))
        return built(AttachmentRow, found) if found else None

    def gate(self, run: int, gate: str) -> GateRow | None:
        found = first(self._execute, self._sql["gate"], (run, gate))
        return built(GateRow, found) if found else None

    def timer(self, run: int, timer: str) -> TimerRow | None:
        found = first(self._execute, self._sql["timer"], (run, timer))
        return built(TimerRow, found) if found else None

    def item(self, run: int, key: str) -> ItemRow | None:
        found = first(self._execute, self._sql["item_by_key"], (run, key))
        return item_row(found) if found else None

    def items(self, run: int, numbers: Sequence[int]) -> list[ItemRow]:
        rows = [first(self._execute, self._sql["item"], (key_of(run, number),)) for number in numbers]
        return [item_row(row) for row in rows if row]
