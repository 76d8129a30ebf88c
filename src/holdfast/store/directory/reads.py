"""Reading verbs of the directory store. A damaged file is reported to who asks for its run, and leaves others be."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar

from holdfast.errors import DamagedData
from holdfast.model.rows import (
    AttachmentRow,
    CheckpointRow,
    EffectRow,
    EntryRow,
    GateRow,
    ItemRow,
    MessageRow,
    RunRow,
    TimerRow,
)
from holdfast.store.decide import is_live
from holdfast.store.directory.base import FORMAT, VERSION, DirectoryBase
from holdfast.store.directory.chunks import read_chunks, sizes_of_chunks
from holdfast.store.finding import found_in
from holdfast.store.folding import FoldedRun
from holdfast.store.port import About, CheckpointQuery, RunQuery, RunRows, Seen, Select, Usage
from holdfast.store.tags import read_metadata, tag

Listed = TypeVar("Listed")


class DirectoryReads(DirectoryBase):
    """What can be asked."""

    def run(self, run_id: str) -> RunRow | None:
        with self._inside():
            file = self._tree.find(run_id)
            if file is None:
                return None
            if file.folded is None:
                file.checked()
            return file.shown_row()

    def run_rows(self, run_id: str) -> RunRows | None:
        with self._inside():
            file = self._tree.find(run_id)
            return file.checked().all_rows() if file else None

    def runs(self, query: RunQuery) -> list[RunRow]:
        with self._inside():
            family = self._tree.family(query.family) if query.family is not None else None
            files = self._tree.runs() if query.family is None else family.runs.values() if family is not None else ()
            rows = [row for row in (file.shown_row() for file in files) if row is not None and _matches(row, query)]
            return sorted(rows, key=lambda row: -row.run)[: query.limit]

    def checkpoint(self, run_id: str, select: Select) -> tuple[RunRow, CheckpointRow | None] | None:
        with self._inside():
            file = self._tree.find(run_id)
            if file is None:
                return None
            if file.folded is None or select.before is None:
                file.checked()
            row = file.shown_row()
            assert file.folded is not None
            assert row is not None
            return row, file.folded.select(select)

    def checkpoints(self, run: int, after: int, limit: int) -> list[CheckpointRow]:
        with self._inside():
            folded = self._at(run)
            rows = folded.checkpoints if folded else {}
            return _cut([rows[number] for number in sorted(rows) if number > after], limit)

    def find_checkpoints(self, query: CheckpointQuery) -> list[tuple[RunRow, CheckpointRow]]:
        with self._inside():
            if query.run_id is None:
                return found_in(self._sound(), query)
            file = self._tree.find(query.run_id)
            return found_in([file.checked()], query) if file else []

    def entries(self, run: int, after: int, limit: int) -> list[EntryRow]:
        with self._inside():
            folded = self._at(run)
            return _cut([entry for entry in (folded.entries if folded else ()) if entry.position > after], limit)

    def entry_at(self, run: int, position: int) -> EntryRow | None:
        with self._inside():
            folded = self._at(run)
            return folded.entry_at(position) if folded else None

    def effects(self, run: int) -> list[EffectRow]:
        with self._inside():
            folded = self._at(run)
            return sorted(folded.effects.values(), key=lambda effect: effect.number) if folded else []

    def effect(self, run: int, key: str) -> EffectRow | None:
        with self._inside():
            folded = self._at(run)
            return folded.effects.get(key) if folded else None

    def family_effects(self, family: int, key: str) -> list[tuple[RunRow, EffectRow]]:
        with self._inside():
            found = self._tree.family(family)
            # One damaged run is an error: what is left out would look as if it had never been done.
            runs = [file.checked() for file in found.runs.values()] if found else []
            pairs = [(run.row, run.effects[key]) for run in runs if key in run.effects]
            return sorted(pairs, key=lambda pair: pair[0].run)

    def attachments(self, run: int, lane: str | None, checkpoint_id: str | None) -> list[AttachmentRow]:
        with self._inside():
            folded = self._at(run)
            found = sorted(folded.attachments.items()) if folded else []
            return [
                row for _, row in found if lane in (None, row.lane) and checkpoint_id in (None, row.checkpoint_id)
            ]  # fmt: skip

    def attachments_of(self, run: int, places: Sequence[tuple[str, str]]) -> list[AttachmentRow]:
        with self._inside():
            folded, wanted = self._at(run), set(places)
            found = sorted(folded.attachments.items()) if folded else []
            return [row for key, row in found if key[:2] in wanted]

    def gates(self, run: int | None, state: str | None, limit: int) -> list[tuple[RunRow, GateRow]]:
        with self._inside():
            if run is None:
                runs = self._sound()
            else:
                folded = self._at(run)
                runs = [folded] if folded else []
            found = [(r.row, gate) for r in runs for gate in r.gates.values() if state in (None, gate.state)]
            return _cut(sorted(found, key=lambda pair: (pair[1].opened_us, pair[0].run, pair[1].gate)), limit)

    def expired_gates(self, limit: int) -> list[tuple[RunRow, GateRow]]:
        now_us = self._clock.now_us()
        found = [pair for pair in self.gates(None, "open", -1) if (pair[1].expires_us or 2**62) <= now_us]
        return sorted(found, key=lambda pair: pair[1].expires_us or 0)[:limit]

    def timers(self, run: int) -> list[TimerRow]:
        with self._inside():
            folded = self._at(run)
            return sorted(folded.timers.values(), key=lambda timer: timer.due_us) if folded else []

    def due_timers(self, limit: int) -> list[tuple[RunRow, TimerRow]]:
        with self._inside():
            now_us = self._clock.now_us()
            found = [(r.row, timer) for r in self._sound() for timer in r.timers.values() if timer.due_us <= now_us]
            return sorted(found, key=lambda pair: pair[1].due_us)[:limit]

    def expired_claims(self, limit: int) -> list[RunRow]:
        with self._inside():
            lease = self._clock.lease_time
            return [r.row for r in self._sound() if r.row.owner and not is_live(r.row, lease)][:limit]

    def held(self, limit: int, after: int = 0) -> list[RunRow]:
        with self._inside():
            return _cut([r.row for r in self._sound() if r.row.run > after and r.row.owner], limit)

    def inbox(self, run: int, after: int, limit: int) -> list[ItemRow]:
        with self._inside():
            folded = self._at(run)
            items = sorted(folded.items.items()) if folded else []
            return _cut([item for number, item in items if number > after and not item.taken], limit)

    def outbox(self, limit: int) -> list[tuple[RunRow, MessageRow]]:
        with self._inside():
            found = [(r.row, message) for r in self._sound() for message in r.messages.values()]
            return sorted(found, key=lambda pair: (pair[1].created_us, pair[0].run, pair[1].number))[:limit]

    def chunks(self, family: int, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        with self._inside():
            found = self._tree.family(family)
            return read_chunks(self._disk, found.chunks, hashes) if found else {}

    def chunk_sizes(self, family: int) -> dict[bytes, int]:
        with self._inside():
            found = self._tree.family(family)
            return sizes_of_chunks(self._disk, found.chunks) if found else {}

    def roots(self, family: int) -> tuple[list[bytes], dict[int, Seen]]:
        with self._inside():
            found = self._tree.family(family)
            runs = [file.checked() for file in found.runs.values()] if found else []
            seen = {r.row.run: Seen(r.row.serial, r.row.attached, r.row.rewrites) for r in runs}
            return [root for run in runs for root in run.all_roots()], seen

    def usage(self) -> Usage:
        with self._inside():
            runs = self._sound()
            statuses: dict[str, int] = {}
            for run in runs:
                statuses[run.row.status] = statuses.get(run.row.status, 0) + 1
            sizes = [
                size for f in self._tree.families.values() for size in sizes_of_chunks(self._disk, f.chunks).values()
            ]
            return Usage(
                runs=statuses,
                checkpoints=sum(len(run.checkpoints) for run in runs),
                entries=sum(len(run.entries) for run in runs),
                effects=sum(len(run.effects) for run in runs),
                attachments=sum(len(run.attachments) for run in runs),
                chunks=len(sizes),
                chunk_bytes=sum(sizes),
                root_bytes=sum(len(root) for run in runs for root in run.all_roots()),
                file_bytes=sum(sizes) + self._other_bytes(),
            )

    def _other_bytes(self) -> int:
        """What is on the disk beside chunks."""
        places = [self.path, *(family.path for family in self._tree.families.values())]
        found = [self._files.identity(os.path.join(place, name)) for place in places for name in _files_in(self, place)]
        return sum(identity.size for identity in found if identity is not None)

    def about(self) -> About:
        facts = {"format": f"{FORMAT} {VERSION}", "sync": "every commit, file and directory"}
        return About(facts, self.path)

    def check(self) -> list[str]:
        with self._inside():
            self._tree.forget()
            self._tree.refresh()
            return [f"{damage.place}: {damage.reason}" for damage in self._tree.damages()]

    # --- what they share ---------------------------------------------------------------------------------------------

    def _at(self, run: int) -> FoldedRun | None:
        """The run of this number; None if it has gone."""
        file = self._tree.at(run)
        return file.checked() if file else None

    def _sound(self) -> list[FoldedRun]:
        """All runs whose files are whole."""
        return [file.checked() for file in self._tree.runs() if file.damage is None]


def _files_in(store: DirectoryReads, place: str) -> Iterable[str]:
    return [name for name in store._files.listdir(place) if "." in name]


def _cut(rows: list[Listed], limit: int) -> list[Listed]:
    return rows if limit < 0 else rows[:limit]


def _matches(row: RunRow, query: RunQuery) -> bool:
    if not row.run_id.startswith(query.prefix) or query.family not in (None, row.family):
        return False
    if query.statuses and row.status not in query.statuses:
        return False
    if query.workflow is not None and row.workflow != query.workflow:
        return False
    if query.before is not None and row.run >= query.before:
        return False
    if not query.tags:
        return True
    try:
        return set(query.tags) <= {tag(key, value) for key, value in read_metadata(row.metadata).items()}
    except (ValueError, DamagedData):
        return False
