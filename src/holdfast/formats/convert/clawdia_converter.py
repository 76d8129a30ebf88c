"""Converter of Clawdia's runs: records become journal entries at the same positions.

The entry at position 41 is the record with `journal_seq` 41, under `record`. Positions without a record are covered by
an entry of the kind `pruned`, as in any pruned journal. Effects whose result is unknown are in doubt, including those
that only the newest checkpoint lists as pending. If a recovery declared effects unsafe, Clawdia refuses to resume the
run; the imported run waits at a gate that names them.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Literal

from holdfast.errors import Conflict, InvalidInput, LimitExceeded
from holdfast.formats.clawdia import Directory, replay, run_directory
from holdfast.formats.clawdia.operations import JournalEnd
from holdfast.formats.clawdia.replay import EffectLine, effects_of
from holdfast.formats.clawdia.run_records import conforming_checkpoint, conforming_record, is_terminal, order
from holdfast.formats.convert import run_parts
from holdfast.formats.folder import Folder
from holdfast.formats.schema import JsonObject, read_json, write_json
from holdfast.limits import NUMBER_MAX
from holdfast.model.commit import NewEffect, NewEntry
from holdfast.model.rows import TERMINAL
from holdfast.model.views import Problem
from holdfast.operations.context import StoreContext
from holdfast.operations.views import encode_body

WORKFLOW: Final = "clawdia"
_KIND_NAMES: Final = """
run turn context message model_attempt structured_output stream_rule realtime_session hook approval tool isolation
child_lifecycle agent_pool run_message wake output_dispatch subagent extension_action telemetry recovery checkpoint
effect_intent effect_result
"""
_KINDS: Final = frozenset(_KIND_NAMES.split())
"""Records of other kinds become entries of the kind `record`."""


class ClawdiaConverter:
    """Converts Clawdia's files to runs, and runs to its files."""

    def sources(self, path: str) -> list[run_parts.Source]:
        directory = Directory(path)
        readable = [run_parts.Source(directory.place(run), partial(_read, directory, run)) for run in directory.runs()]
        problems = directory.unreadable_homes()
        return readable + [run_parts.Source(problem.place, partial(_unreadable, problem)) for problem in problems]

    def files(self, whole: run_parts.WholeRun) -> list[run_parts.File]:
        run_id = whole.run.run_id
        bare_home = run_directory.bare_segment(run_id)
        bare = whole.run.metadata.get(run_parts.FILE) == bare_home
        home = (run_directory.RUNS, (bare_home if bare else None) or run_directory.segment(run_id))
        states = [c.state for c in whole.checkpoints if isinstance(c.state, dict) and "checkpoint_id" in c.state]
        contents = [conforming_checkpoint(state) for state in states]
        records = [found for e in whole.entries if isinstance(found := e.data.get("record"), dict)]
        for found in (*contents, *records):
            run_parts.require_same_id(run_id, found.get("run_id"))
        if not contents and not records:
            raise InvalidInput(f"run {run_id!r} has neither checkpoints nor records of Clawdia")
        files = []
        for c in contents:
            name = run_directory.checkpoint_name(c["covers_journal_seq"], c["checkpoint_id"], bare=bare)
            files.append(run_parts.File((*home, run_directory.CHECKPOINTS, name), write_json(c)))
        if records:
            data = b"".join(write_json(conforming_record(record), compact=True) + b"\n" for record in records)
            files.append(run_parts.File((*home, run_directory.JOURNAL), data))
        return files

    def merge_with_existing(
        self, folder: Folder, whole: run_parts.WholeRun, files: list[run_parts.File], *, replace: bool
    ) -> list[run_parts.File]:
        """A journal is only appended to: records that Clawdia has appended since are kept."""
        file = files[-1]
        if not replace or not run_parts.is_of_lines(file) or folder.identity(*file.name) is None:
            return files
        records = [read_json(line, "") for line in file.data.split(b"\n") if line]
        _append_missing(run_directory.Journal(folder, whole.run.run_id, file.name[1]), records, folder.at(*file.name))
        return [*files[:-1], file._replace(is_written=True)]


def _append_missing(journal: run_directory.Journal, records: list[JsonObject], place: str) -> None:
    """Append the records that a journal lacks. Raises Conflict if it has another record with one of their numbers."""
    while True:
        end: JournalEnd | None = journal.end()
        there: dict[int, list[JsonObject]] = {}
        for record in journal.read()[0]:
            there.setdefault(record["journal_seq"], []).append(record)
        missing = [record for record in records if record not in there.get(record["journal_seq"], [])]
        for record in missing:
            seq = record["journal_seq"]
            if seq <= max(there, default=0):
                found = f"record {there[seq][0]['record_id']!r}" if seq in there else "no record"
                raise Conflict(
                    f"{place} has {found} at journal_seq {seq}, but the run has record {record['record_id']!r}; "
                    "export to another directory"
                )
        while missing and end is not None and journal.append(missing[0], end):
            end = journal.appended_end
            del missing[0]
        if not missing:
            return


def _unreadable(problem: Problem, _core: StoreContext, _problems: list[Problem]) -> run_parts.Parts:
    raise Conflict(problem.reason)


def _read(directory: Directory, run_id: str, core: StoreContext, problems: list[Problem]) -> run_parts.Parts:
    problems += directory.problems(run_id)
    place = directory.place(run_id)
    records = directory.records(run_id, damaged="skip")
    checkpoints = [c for c in directory.list(run_id) if _has_id(c["checkpoint_id"], place, problems)]
    replayed = replay(records)
    newest = max((*checkpoints, *filter(None, [replayed.latest_checkpoint])), key=order, default=None)
    effects = [line for line in effects_of(records, newest).values() if _has_id(line.effect_id, place, problems)]
    last = max([0, *(r["journal_seq"] for r in records), *(c["covers_journal_seq"] for c in checkpoints)])
    if last > NUMBER_MAX:
        raise LimitExceeded(f"the journal of run {run_id!r} ends at {last}; the largest position is {NUMBER_MAX}")
    ended = replayed.terminal_status  # the journal takes precedence over checkpoints
    status = _ended(ended.lower()) if ended is not None else _status(checkpoints[-1]) if checkpoints else "paused"
    blocking = {line.effect_id: line.unsafe for line in effects if line.unsafe is not None and status == "paused"}
    return run_parts.Parts(
        run_id=run_id,
        workflow=WORKFLOW,
        status="waiting" if blocking else status,
        file=directory.home(run_id),
        entries=_entries(core, records, last),
        steps=[_step(checkpoint) for checkpoint in checkpoints],
        effects=[_effect(core, line) for line in effects],
        gates=[run_parts.recovery_gate(core, blocking)] if blocking else [],
    )


def _has_id(value: object, place: str, problems: list[Problem]) -> bool:
    """Whether a value is a valid id. If not, it is added to the problems."""
    if run_parts.id_or_none(value) is not None:
        return True
    problems.append(Problem(place=place, reason=f"{value!r} is not a valid id in Holdfast"))
    return False


def _entries(core: StoreContext, records: list[JsonObject], last: int) -> list[NewEntry]:
    """Return an entry at the number of every record, and entries that cover the numbers between them."""
    found, at = [], 0
    for record in records:
        seq = record["journal_seq"]
        if seq <= at:
            raise Conflict(f"record {record['record_id']!r} has journal_seq {seq}, as has another record")
        if seq > at + 1:
            found.append(run_parts.missing_entries(at, seq - 1))
        kind = record["record_kind"] if record["record_kind"] in _KINDS else "record"
        found.append(run_parts.entry(core, {"kind": kind, "record": record}, _us(record.get("timestamp_millis"))))
        at = seq
    if at < last:
        found.append(run_parts.missing_entries(at, last))
    return found


def _step(checkpoint: JsonObject) -> run_parts.Step:
    return run_parts.Step(
        state=checkpoint,
        file=checkpoint["checkpoint_id"],
        step=run_parts.step_or_none(checkpoint["checkpoint_seq"]),
        covers=checkpoint["covers_journal_seq"],
        status=_status(checkpoint),
        checkpoint_id=checkpoint["checkpoint_id"],
        created_us=_us(checkpoint["created_at_millis"]),
    )


def _status(checkpoint: JsonObject) -> str:
    if not is_terminal(checkpoint):
        return "paused"
    state = str(checkpoint["loop_state"]).lower()
    return "completed" if state == "terminal" else _ended(state.removeprefix("terminal:"))


def _ended(how: str) -> str:
    """Return the status of a run that has ended; an unknown status counts as failed."""
    return how if how in TERMINAL else "failed"


def _effect(core: StoreContext, line: EffectLine) -> NewEffect:
    done = line.result is not None and line.result.get("terminal_status") == "completed"
    state: Literal["intent", "done", "failed"] = "intent" if line.is_pending else "done" if done else "failed"
    return NewEffect(
        key=line.effect_id,
        state=state,
        tool=run_parts.id_or_none(line.intent.get("kind")) or "",
        reversible=line.may_be_retried,
        body=encode_body(core, line.result, "result") if state == "done" else b"",
        after_checkpoint=0,
        after_position=line.seq,
    )


def _us(millis: object) -> int | None:
    return millis * 1000 if type(millis) is int and 0 < millis < 2**50 else None
