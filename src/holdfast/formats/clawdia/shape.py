"""What Clawdia keeps: an append-only journal per run, and checkpoints that cover it up to a sequence number.

    runs/<segment of the run's id>/journal.ndjson                                  one record per line
    runs/<segment of the run's id>/checkpoints/<covers, 20 digits>-<segment of the checkpoint's id>.json

A checkpoint is one JSON object; what has no value, and lists without items, are left out of it. Fields that are not
listed here are kept as they are. A cursor is written `journal.41`. What is read must have the shapes below; what is
written must also pass `validation`.
"""

from __future__ import annotations

import re
from typing import Any, Final

from holdfast.errors import InvalidCursor, InvalidInput
from holdfast.formats.clawdia.validation import check_conformance
from holdfast.formats.shapes import Count, Shape, checked
from holdfast.ids import check_id
from holdfast.limits import ID_BYTES_MAX

SCHEMA_VERSION: Final = 1
_SEQ_MAX: Final = 2**64 - 1
_CURSOR: Final = "journal."
_CURSOR_FORM: Final = re.compile(r"(?:journal\.)?\+?([0-9]+)")
"""What the original's file store takes for a cursor, too; of anything else it makes 0."""
_ENDED: Final = frozenset({"completed", "failed", "cancelled", "terminal"})
_OMITTED: Final = ("turn_id", "attempt_id", "pending_side_effects", "pending_approvals", "content_ref_manifest")


class PendingSideEffect(Shape):
    """An effect of which the journal has the intent and not the result."""

    effect_id: str
    intent_record_id: str
    unsafe_pending_reason: str
    idempotency_key: str | None = None
    dedupe_key: str | None = None


class RunCheckpoint(Shape):
    """A checkpoint."""

    checkpoint_id: str
    run_id: str
    checkpoint_seq: Count
    covers_journal_seq: Count
    loop_state: str
    runtime_package_fingerprint: str
    state_hash: str
    created_at_millis: Count
    writer_id: str
    turn_id: str | None = None
    attempt_id: str | None = None
    pending_side_effects: list[PendingSideEffect] = []  # noqa: RUF012 - msgspec copies it
    pending_approvals: list[str] = []  # noqa: RUF012 - msgspec copies it
    content_ref_manifest: list[str] = []  # noqa: RUF012 - msgspec copies it


class Record(Shape):
    """What must be known of a journal record to keep it in order."""

    journal_schema_version: Count
    journal_seq: Count
    record_id: str
    record_kind: str
    run_id: str


def to_write(checkpoint: object) -> dict[str, Any]:
    """A caller's checkpoint as it is written; InvalidInput if the original could not read it."""
    given = conforming_checkpoint(checkpoint)
    check_id("run_id", given["run_id"])
    check_id("checkpoint_id", given["checkpoint_id"])
    return {name: value for name, value in given.items() if name not in _OMITTED or value not in (None, [])}


def record_to_write(record: object, next_seq: int) -> dict[str, Any]:
    """A caller's record as it is written. One without a `journal_seq` gets the next."""
    if isinstance(record, dict) and record.get("journal_seq") is None:
        record = {"journal_schema_version": SCHEMA_VERSION, **record, "journal_seq": next_seq}
    given = conforming_record(record)
    if given["journal_schema_version"] != SCHEMA_VERSION:
        raise InvalidInput(
            f"journal_schema_version is {given['journal_schema_version']}, but {SCHEMA_VERSION} is what can be written"
        )
    check_id("run_id", given["run_id"])
    check_id("record_id", given["record_id"])
    return given


def conforming_checkpoint(checkpoint: object) -> dict[str, Any]:
    """The checkpoint, if the original can read it; else InvalidInput."""
    given = checked(checkpoint, RunCheckpoint, "a checkpoint")
    check_conformance(given, "RunCheckpoint", f"checkpoint {given['checkpoint_id']!r}")
    return given


def conforming_record(record: object) -> dict[str, Any]:
    """The journal record, if the original can read it; else InvalidInput."""
    given = checked(record, Record, "a journal record")
    check_conformance(given, "JournalRecord", f"journal record {given['record_id']!r}")
    return given


def is_terminal(checkpoint: dict[str, Any]) -> bool:
    """Whether the run had ended. The same rule for saving and pruning, in memory and in files."""
    state = str(checkpoint["loop_state"]).lower()
    return state.startswith("terminal:") or state in _ENDED


def order(checkpoint: dict[str, Any]) -> tuple[int, int, int, str]:
    """Checkpoints are compared by what they cover, then by number, date and, so that there is always one order, id."""
    return (
        checkpoint["covers_journal_seq"],
        checkpoint["checkpoint_seq"],
        checkpoint["created_at_millis"],
        checkpoint["checkpoint_id"],
    )


def cursor_of(seq: int) -> str:
    """A position in the journal as it is written."""
    return f"{_CURSOR}{seq}"


def seq_of(cursor: object) -> int:
    """The sequence number a cursor means, given as `41`, `"41"` or `"journal.41"`; anything else is an error."""
    if type(cursor) is int and 0 <= cursor <= _SEQ_MAX:
        return cursor
    found = _CURSOR_FORM.fullmatch(cursor) if type(cursor) is str and len(cursor) <= ID_BYTES_MAX else None
    if found is not None and int(found[1]) <= _SEQ_MAX:
        return int(found[1])
    raise InvalidCursor(f"{cursor!r} is not a journal cursor; write 41 or 'journal.41'")
