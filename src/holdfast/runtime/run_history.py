"""The history of a run, for rollback, retry and fork: all that is recorded, or the end of it.

A run can go back to a position only if everything needed to resume from there is still stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

from holdfast.engine.journal_cut import is_about_effect
from holdfast.engine.record import LISTED_MAX, Positioned, find_places, known_names, live_path, record_of
from holdfast.engine.resume_point import LoopProgress, ResumePoint, Span, resume_point_from, subtract_span
from holdfast.engine.rollback import LedgerLine, without_positions
from holdfast.engine.state_edits import Edit
from holdfast.errors import InvalidCursor, InvalidInput, NotFound
from holdfast.errors.store import close_matches, did_you_mean
from holdfast.model.rows import CANCELLED, TERMINAL, CheckpointRow, EffectRow, EntryRow, RunRow
from holdfast.operations.context import StoreContext
from holdfast.operations.read import effects_since, known_run
from holdfast.operations.views import checked_checkpoint, decode_body, position_of
from holdfast.runtime.replay_input import entry_data, first_entry, resume_of
from holdfast.store.checksum import verify_checksum
from holdfast.store.journal_prune import PRUNED, last_of
from holdfast.store.port import Select

_ENDS: Final = ("completed", "failed", "cancelling", "cancelled")
_TRIES: Final = 50
"""How many checkpoints that do not say how to resume are skipped before the whole history is read."""
Kind = TypeVar("Kind")


class Base(NamedTuple):
    """The newest checkpoint at or before a position, and what is needed to resume from that position."""

    row: CheckpointRow | None
    spans: list[Span]
    loops: list[LoopProgress]
    epoch: int
    forked: str
    version: int
    left: dict[str, int]
    edits: list[Edit]

    @property
    def needs(self) -> list[str]:
        """The checkpoints whose state a replay restores."""
        found = [*[mark.checkpoint for mark in self.loops], *[edit.checkpoint for edit in self.edits]]
        return [name for name in found if name]


class RunHistory(NamedTuple):
    """What is recorded of a run, verified: all of it, or what matters from some position on."""

    run: RunRow
    rows: list[EntryRow]
    entries: list[Positioned]
    """All entries of the journal, without the rows that stand for pruned ones."""
    live: list[Positioned]
    effects: list[EffectRow]
    checkpoints: list[CheckpointRow]
    dead: list[Span]
    """The positions that rollbacks took back."""
    pruned: list[Span]
    voided: list[int]
    """Entries before its target that a rollback or a fork took back, even if that is itself taken back later."""

    def target(self, to: object) -> int:
        """Find the position of a checkpoint's id or a call's full name; refuse one the run cannot go back to.

        None is the end of what the run has done, before its own end and the cleanup of a cancellation.
        """
        position = self._find_position(self.end if to is None else to)
        if position > self.run.position:
            raise InvalidCursor(f"run {self.run.run_id!r} ends at position {self.run.position}, not at {position}")
        for first, last in (*self.dead, *self.pruned):
            if first <= position < last:
                raise InvalidInput(
                    f"position {position} of run {self.run.run_id!r} is in what was taken back or pruned "
                    f"({first} to {last}); choose another"
                )
        self._check_open_rollback(position)
        cancelled = next((at for at, entry in self.live if entry["kind"] in ("cancelling", CANCELLED)), None)
        if cancelled is not None and position >= cancelled:
            raise InvalidInput(
                f"run {self.run.run_id!r} was cancelled at position {cancelled}, and {position} is in its cleanup; "
                f"choose {cancelled - 1} or less"
            )
        self._check_reachable(max(1, position))
        return max(1, position)

    @property
    def end(self) -> int:
        """The end of what the run has done, before its own end and the cleanup of a cancellation."""
        return next((at - 1 for at, entry in self.live if entry["kind"] in _ENDS), self.run.position)

    def _check_reachable(self, position: int) -> None:
        """Refuse a position if entries or checkpoints needed to resume from it were pruned."""
        base = self.base(position)
        both = [(span, gone) for span in base.spans for gone in self.pruned]
        missing = [f"entry {max(span[0], gone[0])}" for span, gone in both if span[0] <= gone[1] and gone[0] <= span[1]]
        there = {row.checkpoint_id for row in self.checkpoints if row.lane == ""}
        missing += [f"checkpoint {name!r}" for name in base.needs if name not in there]
        covers = base.row.covers if base.row is not None else 0
        turns = [entry for at, entry in self.live if covers < at <= position and entry["kind"] == "turn"]
        missing += [f"the checkpoint of turn {turn['turn']} of {turn['loop']!r}" for turn in turns[-1:]]
        if missing:
            raise InvalidInput(
                f"run {self.run.run_id!r} cannot go back to position {position}: it would need {missing[0]}, which was "
                "pruned; choose a later position, or one of the checkpoints that were kept"
            )

    def _check_open_rollback(self, position: int) -> None:
        """Refuse a position after the target of an open rollback, which may have undone effects already."""
        begun = record_of(self.live).rollback
        if begun and position > begun[0]["to"]:
            raise InvalidInput(
                f"a rollback of run {self.run.run_id!r} to position {begun[0]['to']} has begun",
                "continue it with rollback(run_id), or go back further",
                hint_code="continue_rollback",
            )

    def _find_position(self, to: object) -> int:
        if type(to) is int or (type(to) is str and to.startswith("journal.")):
            return position_of(to)
        if type(to) is not str:
            raise InvalidInput(f"to must be a position, a checkpoint's id or the name of a stage or step, not {to!r}")
        for row in self.checkpoints:
            if row.checkpoint_id == to and row.lane == "":
                return row.covers
        nodes = {row.covers: row.next_node for row in reversed(self.checkpoints) if row.lane == ""}
        places = find_places(self.live, nodes, to)
        if len(places) > 1:
            listed = ", ".join(f"{place.position} ({place.name})" for place in places[-LISTED_MAX:])
            raise InvalidInput(
                f"{to!r} names {len(places)} places in run {self.run.run_id!r}; give the position of one: {listed}"
            )
        if places:
            return places[0].position
        known = known_names(self.live, nodes)
        listed, newest = ", ".join(known[-LISTED_MAX:]) or "none", "newest " if len(known) > LISTED_MAX else ""
        raise NotFound(
            f"run {self.run.run_id!r} has no checkpoint, stage or call named {to!r}: "
            + did_you_mean(close_matches(to, known), f"its {newest}stages and calls are {listed}")
        )

    def base(self, to: int) -> Base:
        """What is needed to resume from position `to`."""
        row, version, line = self._newest_before(to)
        spans = line.spans_to(to)
        for gone in self.dead:  # a checkpoint that is older than a rollback does not record what that took back
            if gone[1] <= to:
                spans = subtract_span(spans, gone)
        spans = without_positions(spans, self.voided)
        edits = [edit for edit in line.edits if edit.at <= to]
        return Base(row, spans, line.loops, line.epoch, line.forked, version, line.left, edits)

    def _newest_before(self, to: int) -> tuple[CheckpointRow | None, int, ResumePoint]:
        """The newest checkpoint to resume from, its version and resume point; else that of rollbacks and a fork."""
        for row in reversed(self.checkpoints):
            resume = resume_of(self.run, row) if row.lane == "" and row.covers <= to else None
            if resume is None or "keeps" in resume or any(first <= row.covers < last for first, last in self.dead):
                continue
            return row, resume.get("version", 1), resume_point_from(resume, row.covers, row.checkpoint_id)
        line = ResumePoint()
        for position, entry in self.entries:
            if position <= to and entry["kind"] == "rolled_back":
                line.epoch, line.left = entry["epoch"], entry.get("left", {})
            elif position <= to and entry["kind"] == "forked":
                line.forked = entry["effects"]
        return None, 1, line

    def recorded_keys(self) -> set[str]:
        """The keys of the effects in the journal."""
        return {entry["key"] for _, entry in self.live if is_about_effect(entry)}

    @property
    def has_ended(self) -> bool:
        """Whether the run has an end in its journal, which closed its gates and stopped its children."""
        return any(entry["kind"] in TERMINAL for _, entry in self.live)

    def undone_keys(self) -> set[str]:
        """Effects that the journal records as done and a rollback of the run's parent undid."""
        own = {entry["key"] for _, entry in self.live if entry["kind"] == "undone"}
        return {row.key for row in self.effects if row.state == "undone"} & self.recorded_keys() - own


def read_history(core: StoreContext, run_id: str) -> RunHistory:
    """Read and verify all of a run."""
    run = known_run(core, run_id)
    rows = core.port.rows(EntryRow, run.run)
    effects = core.port.rows(EffectRow, run.run)
    checkpoints = [checked_checkpoint(run, row) for row in core.port.rows(CheckpointRow, run.run)]
    return _history(run, rows, effects, checkpoints)


def _history(
    run: RunRow, rows: list[EntryRow], effects: list[EffectRow], checkpoints: list[CheckpointRow]
) -> RunHistory:
    entries = [(row.position, entry_data(run, row)) for row in rows if row.kind != PRUNED]
    for effect in effects:
        verify_checksum(effect, run.incarnation, f"effect {effect.key!r} of run {run.run_id!r}")
    pruned = [(row.position, last_of(row)) for row in rows if row.kind == PRUNED]
    voided = [at for _, entry in entries if entry["kind"] in ("rolled_back", "forked") for at in entry["void"]]
    return RunHistory(run, rows, entries, live_path(entries), effects, checkpoints, _dead(entries), pruned, voided)


def _dead(entries: list[Positioned]) -> list[Span]:
    return [(entry["to"] + 1, position) for position, entry in entries if entry["kind"] == "rolled_back"]


# --- the end of a history --------------------------------------------------------------------------------------------


def read_history_to(core: StoreContext, run_id: str, to: object) -> RunHistory:
    """Read what a rollback to a place needs; near the end of a loop that is little, however long the journal.

    The name of a call or stage is searched in the whole journal. So is everything in a child, whose effects a rollback
    of its parent may have undone, and in a run without a checkpoint before the place.
    """
    run = known_run(core, run_id)
    position = _position_of(core, run, to)
    found = _read_from(core, run, position) if position is not None else None
    if found is not None and to is None and found.end < found.run.position:
        found = _read_from(core, run, found.end)
    return found or read_history(core, run_id)


def _position_of(core: StoreContext, run: RunRow, to: object) -> int | None:
    """The position of a place, if it is found without a search of the journal."""
    if to is None:
        return run.position
    if type(to) is int or (type(to) is str and to.startswith("journal.")):
        return position_of(to)
    found = core.port.checkpoint(run.run_id, Select("", to)) if type(to) is str else None
    return found.checkpoint.covers if found is not None and found.checkpoint is not None else None


def _read_from(core: StoreContext, run: RunRow, to: int) -> RunHistory | None:
    """The part of a history that matters from a position on; None if that is not known without all of it.

    It consists of the checkpoint to resume from, the entries that this needs and all after it. Every call outside of
    them is in a turn that ended before the position, and a turn ends only when its calls have.
    """
    if not 1 <= to <= run.position or first_entry(core, run).get("parent"):
        return None
    rows: dict[int, EntryRow] = {}
    checkpoints: dict[int, CheckpointRow] = {}
    base = _find_base(core, run, Select(at=to), rows, checkpoints)
    if base is None or _find_base(core, run, Select(), rows, checkpoints) is None:
        return None
    line = resume_point_from(resume_of(run, base) or {}, base.covers, base.checkpoint_id)
    later = [entry_data(run, row) for row in rows.values() if row.kind != PRUNED]
    if any(_is_in_finished_turn(entry.get("in", ""), line.loops) for entry in later):
        return None
    for name in (*[mark.checkpoint for mark in line.loops], *[edit.checkpoint for edit in line.edits]):
        found = core.port.checkpoint(run.run_id, Select("", name)) if name else None
        if found is not None and found.checkpoint is not None:
            checkpoints[found.checkpoint.number] = checked_checkpoint(run, found.checkpoint)
    for row in core.port.rows(EntryRow, run.run, keys=[1, to, *[first for first, _ in line.spans]]):
        rows[row.position] = row
    for first, last in line.spans:
        more = core.port.rows(EntryRow, run.run, first, last - first) if first < last else []
        rows |= {row.position: row for row in more if row.position <= last}
    effects = effects_since(core, run, to, {key for entry in later if type(key := entry.get("key")) is str})
    return _history(run, _in_order(rows), effects, _in_order(checkpoints))


def _in_order(rows: dict[int, Kind]) -> list[Kind]:
    return [rows[number] for number in sorted(rows)]


def _find_base(
    core: StoreContext, run: RunRow, select: Select, rows: dict[int, EntryRow], checkpoints: dict[int, CheckpointRow]
) -> CheckpointRow | None:
    """The newest selected checkpoint to resume from. Adds the checkpoints that were read, and all entries after it."""
    for _ in range(_TRIES):
        found = core.port.checkpoint(run.run_id, select)
        if found is None or found.checkpoint is None:
            return None
        row = checkpoints[found.checkpoint.number] = checked_checkpoint(run, found.checkpoint)
        known = min(rows, default=run.position + 1)
        if row.covers + 1 < known:
            more = core.port.rows(EntryRow, run.run, row.covers, known - row.covers - 1)
            rows |= {each.position: each for each in more}
        entries = [(at, entry_data(run, each)) for at, each in rows.items() if each.kind == "rolled_back"]
        resume = resume_of(run, row)
        is_dead = any(first <= row.covers < last for first, last in _dead(entries))
        if resume is not None and "keeps" not in resume and not is_dead:
            return row
        select = Select(before=row.number)
    return None


def _is_in_finished_turn(path: str, loops: Iterable[LoopProgress]) -> bool:
    """Whether a scope is in a turn that has ended, or may be, because its path is shortened."""
    for mark in loops:
        turn = path[len(mark.call) + 1 :].partition("]")[0] if path.startswith(f"{mark.call}[") else ""
        if turn and (not turn.isdecimal() or int(turn) <= mark.turn):
            return True
    return path.startswith("…")


# --- the ledger ------------------------------------------------------------------------------------------------------


def ledger_lines(core: StoreContext, run: RunRow, keys: list[str] | None = None) -> list[LedgerLine]:
    """The run's ledger for the engine; all of it, or the lines with these keys."""
    return [ledger_line(run, row) for row in core.port.rows(EffectRow, run.run, keys=keys)]


def ledger_line(run: RunRow, row: EffectRow) -> LedgerLine:
    """A row of the run's ledger for the engine, verified."""
    place = f"effect {row.key!r} of run {run.run_id!r}"
    verify_checksum(row, run.incarnation, place)
    result, call = decode_body(row.body, place), decode_body(row.call, place)
    return LedgerLine(row.number, row.key, row.state, row.tool, result, call, row.after_position)
