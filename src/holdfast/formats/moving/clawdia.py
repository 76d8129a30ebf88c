"""A Clawdia run: its records as journal entries at the same numbers, its checkpoints covering them.

The entry at position 41 is the record with `journal_seq` 41, under `record`. Numbers that were never given, or whose
records are not there, are held by one entry of the kind `pruned`, as in any journal whose beginning was let go. Effects
whose result is not known are in doubt, also those that only the newest checkpoint lists as pending. If a recovery
declared effects unsafe, Clawdia refuses to resume the run: here it waits at a gate that names them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, Literal

from holdfast.errors import Conflict, InvalidInput, LimitExceeded
from holdfast.formats.clawdia import Directory, replay
from holdfast.formats.clawdia.directory import CHECKPOINTS, RUNS
from holdfast.formats.clawdia.effects import EffectLine, effects_of
from holdfast.formats.clawdia.journal import JOURNAL, Journal
from holdfast.formats.clawdia.places import bare_segment, checkpoint_name, segment
from holdfast.formats.clawdia.shape import conforming_checkpoint, conforming_record, is_terminal, order
from holdfast.formats.clawdia.verbs import JournalEnd
from holdfast.formats.folder import Folder
from holdfast.formats.lines import line_of
from holdfast.formats.lossless import read_json, write_json
from holdfast.formats.moving.gates import recovery_gate
from holdfast.formats.moving.parts import (
    FILE,
    File,
    Parts,
    Source,
    Step,
    Whole,
    acceptable,
    entry,
    missing_entries,
    same_id,
    small_step,
)
from holdfast.limits import NUMBER_MAX
from holdfast.model.commit import NewEffect, NewEntry
from holdfast.model.status import TERMINAL
from holdfast.model.views import Problem
from holdfast.verbs.core import Core
from holdfast.verbs.values import value_body

WORKFLOW: Final = "clawdia"
_KINDS: Final = frozenset(
    (
        "run", "turn", "context", "message", "model_attempt", "structured_output", "stream_rule",
        "realtime_session", "hook", "approval", "tool", "isolation", "child_lifecycle", "agent_pool", "run_message",
        "wake", "output_dispatch", "subagent", "extension_action", "telemetry", "recovery", "checkpoint",
        "effect_intent", "effect_result"
    )
)  # fmt: skip
"""Records of other kinds become entries of the kind `record`."""


class ClawdiaMover:
    """How Clawdia's files become runs, and runs its files."""

    def sources(self, path: str) -> list[Source]:
        directory = Directory(path)
        found = [Source(directory.place(run_id), partial(_read, directory, run_id)) for run_id in directory.runs()]
        return found + [
            Source(problem.place, partial(_unreadable, problem)) for problem in directory.unreadable_homes()
        ]

    def files(self, whole: Whole) -> list[File]:
        run_id = whole.run.run_id
        bare = whole.run.metadata.get(FILE) == bare_segment(run_id)
        home = (bare_segment(run_id) if bare else None) or segment(run_id)
        states = [checkpoint.state for checkpoint in whole.checkpoints]
        contents = [
            conforming_checkpoint(state) for state in states if isinstance(state, dict) and "checkpoint_id" in state
        ]
        records = [found for e in whole.entries if isinstance(found := e.data.get("record"), dict)]
        for found in (*contents, *records):
            same_id(run_id, found.get("run_id"))
        if not contents and not records:
            raise InvalidInput(f"run {run_id!r} has neither checkpoints nor records of Clawdia")
        files = [
            File((RUNS, home, CHECKPOINTS, checkpoint_name(c["covers_journal_seq"], c["checkpoint_id"], bare=bare)),
                 write_json(c))
            for c in contents
        ]  # fmt: skip
        lines = [conforming_record(record) for record in records]
        if lines:
            data = b"".join(line_of(write_json(line, compact=True)) for line in lines)
            files.append(File((RUNS, home, JOURNAL), data))
        return files

    def facing(self, folder: Folder, whole: Whole, files: list[File], *, replace: bool) -> list[File]:
        """A journal is only appended to: what Clawdia has appended there since stays."""
        journal = files[-1]
        if not replace or journal.name[-1] != JOURNAL or folder.identity(*journal.name) is None:
            return files
        records = [read_json(line, "") for line in journal.data.split(b"\n") if line]
        _append_missing(Journal(folder, whole.run.run_id, journal.name[1]), records, folder.at(*journal.name))
        return [*files[:-1], journal._replace(is_written=True)]


def _append_missing(journal: Journal, records: list[dict[str, Any]], place: str) -> None:
    """Append the records that a journal lacks. Conflict if it says something else under one of their numbers."""
    while True:
        end: JournalEnd | None = journal.end()
        there: dict[int, list[dict[str, Any]]] = {}
        for record in journal.read()[0]:
            there.setdefault(record["journal_seq"], []).append(record)
        missing = [record for record in records if record not in there.get(record["journal_seq"], [])]
        for record in missing:
            seq = record["journal_seq"]
            if seq <= max(there, default=0):
                found = f"record {there[seq][0]['record_id']!r}" if seq in there else "none"
                raise Conflict(
                    f"{place} has {found} where the run has record {record['record_id']!r}, at journal_seq {seq}; "
                    "export to another directory"
                )
        while missing and end is not None and journal.append(missing[0], end):
            end = journal.appended_end
            del missing[0]
        if not missing:
            return


def _unreadable(problem: Problem, _core: Core, _problems: list[Problem]) -> Parts:
    raise Conflict(problem.reason)


def _read(directory: Directory, run_id: str, core: Core, problems: list[Problem]) -> Parts:
    problems += directory.problems(run_id)
    place = directory.place(run_id)
    records = directory.records(run_id, damaged="skip")
    checkpoints = [c for c in directory.list(run_id) if _has_id(c["checkpoint_id"], place, problems)]
    replayed = replay(records)
    newest = max((*checkpoints, *filter(None, [replayed.latest_checkpoint])), key=order, default=None)
    effects = [line for line in effects_of(records, newest).values() if _has_id(line.effect_id, place, problems)]
    last = max([0, *(r["journal_seq"] for r in records), *(c["covers_journal_seq"] for c in checkpoints)])
    if last > NUMBER_MAX:
        raise LimitExceeded(f"the journal of run {run_id!r} goes to {last}, at most {NUMBER_MAX} can be kept")
    entries = _entries(core, records, last)
    ended = replayed.terminal_status  # the journal is the truth
    status = _ended(ended.lower()) if ended is not None else _status(checkpoints[-1]) if checkpoints else "paused"
    unsafe = {line.effect_id: line.unsafe for line in effects if line.unsafe is not None}
    is_blocked = bool(unsafe) and status == "paused"
    return Parts(
        run_id, WORKFLOW, "waiting" if is_blocked else status, directory.home(run_id), entries,
        [_step(checkpoint) for checkpoint in checkpoints],
        [_effect(core, line) for line in effects],
        [recovery_gate(core, unsafe)] if is_blocked else [],
    )  # fmt: skip


def _has_id(value: object, place: str, problems: list[Problem]) -> bool:
    """Whether it can be an id here. If not, what it names is listed and left out."""
    if acceptable(value) is not None:
        return True
    problems.append(Problem(place=place, reason=f"{value!r} cannot be an id here"))
    return False


def _entries(core: Core, records: list[dict[str, Any]], last: int) -> list[NewEntry]:
    """An entry at the number of every record, and what stands for the numbers between them."""
    found, at = [], 0
    for record in records:
        seq = record["journal_seq"]
        if seq <= at:
            raise Conflict(f"record {record['record_id']!r} has the number {seq}, which another record has as well")
        if seq > at + 1:
            found.append(missing_entries(at, seq - 1))
        kind = record["record_kind"] if record["record_kind"] in _KINDS else "record"
        found.append(entry(core, {"kind": kind, "record": record}, _us(record.get("timestamp_millis"))))
        at = seq
    if at < last:
        found.append(missing_entries(at, last))
    return found


def _step(checkpoint: dict[str, Any]) -> Step:
    return Step(
        checkpoint, checkpoint["checkpoint_id"], small_step(checkpoint["checkpoint_seq"]),
        covers=checkpoint["covers_journal_seq"], status=_status(checkpoint),
        checkpoint_id=checkpoint["checkpoint_id"], created_us=_us(checkpoint["created_at_millis"]),
    )  # fmt: skip


def _status(checkpoint: dict[str, Any]) -> str:
    if not is_terminal(checkpoint):
        return "paused"
    state = str(checkpoint["loop_state"]).lower()
    return "completed" if state == "terminal" else _ended(state.removeprefix("terminal:"))


def _ended(how: str) -> str:
    """The status of a run that has ended; whatever is not known to be well is not taken for it."""
    return how if how in TERMINAL else "failed"


def _effect(core: Core, line: EffectLine) -> NewEffect:
    done = line.result is not None and line.result.get("terminal_status") == "completed"
    state: Literal["intent", "done", "failed"] = "intent" if line.is_pending else "done" if done else "failed"
    return NewEffect(
        line.effect_id, state, acceptable(line.intent.get("kind")) or "", None, line.may_be_retried,
        value_body(core, line.result, "result") if state == "done" else b"", after_checkpoint=0,
        after_position=line.seq,
    )  # fmt: skip


def _us(millis: object) -> int | None:
    return millis * 1000 if type(millis) is int and 0 < millis < 2**50 else None
