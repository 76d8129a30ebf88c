"""A run as a whole: all that is recorded of it, for those who go back in it."""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.engine.commands import EntryData
from holdfast.engine.edits import Edit
from holdfast.engine.goingback import LedgerLine, tells_of_effect, without
from holdfast.engine.line import Line, LoopMark, Span, line_of, minus
from holdfast.engine.positions import LISTED_MAX, find_places, known_names
from holdfast.engine.record import Positioned, live_path, record_of
from holdfast.errors import InvalidCursor, InvalidInput, NotFound, RunNotFound
from holdfast.errors.runs import close_matches
from holdfast.model.rows import CheckpointRow, EffectRow, EntryRow, RunRow
from holdfast.model.status import CANCELLED, TERMINAL
from holdfast.runtime.reads import entry_data, resume_of
from holdfast.store.pruning import PRUNED, last_of
from holdfast.store.seal import check_run, check_seal
from holdfast.verbs.core import Core
from holdfast.verbs.shown import checked_checkpoint
from holdfast.verbs.values import body_value
from holdfast.verbs.writing import position_of


class Base(NamedTuple):
    """The newest checkpoint at or before a position, and what is needed to resume from that position."""

    row: CheckpointRow | None
    spans: list[Span]
    loops: list[LoopMark]
    epoch: int
    forked: str
    version: int
    left: dict[str, int]
    edits: list[Edit]

    @property
    def needs(self) -> list[str]:
        """The checkpoints whose state must be restored on the way."""
        found = [*[mark.checkpoint for mark in self.loops], *[edit.checkpoint for edit in self.edits]]
        return [name for name in found if name]


class Whole(NamedTuple):
    """All that is recorded of a run, checked."""

    run: RunRow
    rows: list[EntryRow]
    entries: list[Positioned]
    """All that is in the journal, without what stands for pruned entries."""
    live: list[Positioned]
    effects: list[EffectRow]
    checkpoints: list[CheckpointRow]
    dead: list[Span]
    """What rollbacks took back."""
    pruned: list[Span]
    voided: list[int]
    """Entries that rollbacks, or a fork, have taken back although they stand before their mark. What was taken back
    stays so, even when the rollback that did it is itself taken back."""

    def target(self, to: Any) -> int:
        """The position meant by a position, a checkpoint's id or a call's full name."""
        position = self._meant(to)
        if position > self.run.position:
            raise InvalidCursor(f"run {self.run.run_id!r} ends at position {self.run.position}, not at {position}")
        for first, last in (*self.dead, *self.pruned):
            if first <= position < last:
                raise InvalidInput(
                    f"position {position} of run {self.run.run_id!r} lies in what was taken back or pruned "
                    f"({first} to {last}); choose another"
                )
        self._check_open_rollback(position)
        self._check_cleanup(position)
        self._check_reachable(max(1, position))
        return max(1, position)

    def _check_reachable(self, position: int) -> None:
        """Entries a run would need to go on from there may have been pruned, with the checkpoints that replace them."""
        missing = self.missing(position)
        if missing is not None:
            raise InvalidInput(
                f"run {self.run.run_id!r} cannot go back to position {position}: it would need {missing}, which was "
                "pruned; choose a later position, or one of the checkpoints that were kept"
            )

    def missing(self, position: int) -> str | None:
        """What is not there any more of what is needed to resume from a position; None if all is there."""
        base = self.base(position)
        for first, last in base.spans:
            for gone, through in self.pruned:
                if first <= through and gone <= last:
                    return f"entry {max(first, gone)}"
        there = {row.checkpoint_id for row in self.checkpoints if row.lane == ""}
        lost = [name for name in base.needs if name not in there]
        if lost:
            return f"checkpoint {lost[0]!r}"
        covers = base.row.covers if base.row is not None else 0
        turns = [entry for at, entry in self.live if covers < at <= position and entry["kind"] == "turn"]
        return f"the checkpoint of turn {turns[-1]['turn']} of {turns[-1]['loop']!r}" if turns else None

    def open_rollback(self) -> EntryData | None:
        """The entry of a rollback that has begun and not ended."""
        begun = record_of(self.live).rollback
        return begun[0] if begun else None

    def _check_open_rollback(self, position: int) -> None:
        """A rollback that was begun has perhaps undone something: nobody may go to behind that."""
        begun = self.open_rollback()
        if begun is not None and position > begun["to"]:
            raise InvalidInput(
                f"a rollback of run {self.run.run_id!r} to position {begun['to']} has begun; take it up with "
                "rollback(run_id), or go back further"
            )

    def _check_cleanup(self, position: int) -> None:
        """What code does after it was cancelled is no place to go on from."""
        first = next((at for at, entry in self.live if entry["kind"] in ("cancelling", CANCELLED)), None)
        if first is not None and position >= first:
            raise InvalidInput(
                f"run {self.run.run_id!r} was cancelled at position {first}, and {position} lies in its cleaning up; "
                f"choose {first - 1} or less"
            )

    def _meant(self, to: Any) -> int:
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
        near = " or ".join(map(repr, close_matches(to, known)))
        listed = ", ".join(known[-LISTED_MAX:]) or "none"
        raise NotFound(
            f"run {self.run.run_id!r} has no checkpoint, stage or call named {to!r}: "
            + (near and f"did you mean {near}? ")
            + f"its {'newest ' if len(known) > LISTED_MAX else ''}stages and calls are {listed}"
        )

    def base(self, to: int) -> Base:
        """What is needed to resume from position `to`."""
        for row in reversed(self.checkpoints):
            resume = resume_of(self.run, row) if row.lane == "" and row.covers <= to else None
            if resume is None or "keeps" in resume or any(first <= row.covers < last for first, last in self.dead):
                continue
            line = line_of(resume, row.covers, row.checkpoint_id)
            spans = self._live_spans(line.spans_to(to), to)
            edits = [edit for edit in line.edits if edit.at <= to]
            return Base(row, spans, line.loops, line.epoch, line.forked, resume.get("version", 1), line.left, edits)
        line = self._line_without_checkpoint(to)
        return Base(None, self._live_spans(line.spans_to(to), to), [], line.epoch, line.forked, 1, line.left, [])

    def _live_spans(self, spans: list[Span], to: int) -> list[Span]:
        """Spans without what rollbacks up to `to` have taken back, which a checkpoint older than them does not know."""
        for first, last in self.dead:
            if last <= to:
                spans = minus(spans, (first, last))
        return without(spans, self.voided)

    def _line_without_checkpoint(self, to: int) -> Line:
        """How far rollbacks and a fork had come by `to`, as the journal has it."""
        line = Line()
        for position, entry in self.entries:
            if position <= to and entry["kind"] == "rolled_back":
                line.epoch, line.left = entry["epoch"], entry.get("left", {})
            elif position <= to and entry["kind"] == "forked":
                line.forked = entry["effects"]
        return line

    def recorded_keys(self) -> set[str]:
        """The effects of which the journal tells."""
        return {entry["key"] for _, entry in self.live if tells_of_effect(entry)}

    @property
    def has_ended(self) -> bool:
        """Whether the run had ended, which closed its gates and stopped its children, before what is under way now."""
        return any(entry["kind"] in TERMINAL for _, entry in self.live)

    def undone_keys(self) -> set[str]:
        """Effects the journal has as done that were undone from outside, by a rollback of the run's parent."""
        own = {entry["key"] for _, entry in self.live if entry["kind"] == "undone"}
        return {row.key for row in self.effects if row.state == "undone"} & self.recorded_keys() - own


def whole_of(core: Core, run_id: str) -> Whole:
    """Read all of a run."""
    found = core.port.run(run_id)
    if found is None:
        raise RunNotFound(run_id)
    run = check_run(found)
    rows = core.port.entries(run.run, 0, -1)
    entries = [(row.position, entry_data(run, row)) for row in rows if row.kind != PRUNED]
    effects = core.port.effects(run.run)
    for effect in effects:
        check_seal(effect, run.incarnation, f"effect {effect.key!r} of run {run_id!r}")
    checkpoints = [checked_checkpoint(run, row) for row in core.port.checkpoints(run.run, 0, -1)]
    dead = [(entry["to"] + 1, position) for position, entry in entries if entry["kind"] == "rolled_back"]
    pruned = [(row.position, last_of(row)) for row in rows if row.kind == PRUNED]
    voided = [at for _, entry in entries if entry["kind"] in ("rolled_back", "forked") for at in entry["void"]]
    return Whole(run, rows, entries, live_path(entries), effects, checkpoints, dead, pruned, voided)


def ledger_lines(core: Core, run: RunRow) -> list[LedgerLine]:
    """The run's ledger for the engine."""
    return [ledger_line(run, row) for row in core.port.effects(run.run)]


def ledger_line(run: RunRow, row: EffectRow) -> LedgerLine:
    place = f"effect {row.key!r} of run {run.run_id!r}"
    check_seal(row, run.incarnation, place)
    return LedgerLine(
        row.number, row.key, row.state, row.tool, body_value(row.body, place), body_value(row.call, place),
        row.after_position,
    )  # fmt: skip
