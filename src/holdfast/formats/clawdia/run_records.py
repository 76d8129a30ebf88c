"""Clawdia's records and checkpoints: schemas, order, cursors and conformance checks.

    runs/<segment of the run's id>/journal.ndjson                                  one record per line
    runs/<segment of the run's id>/checkpoints/<covers, 20 digits>-<segment of the checkpoint's id>.json

The journal is append-only; a checkpoint covers it up to a sequence number. A checkpoint is one JSON object without
null fields and empty lists. Fields that are not listed here are kept unchanged. A cursor is written `journal.41`.
Objects that are read must match the schemas below; objects that are written must also pass `check_conformance`, which
compares them with the types of the original in record_types.txt.
"""

from __future__ import annotations

import decimal
import functools
import math
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Final, NamedTuple

from holdfast.errors import InvalidCursor, InvalidId, InvalidInput
from holdfast.formats.schema import Count, JsonObject, Schema, require_schema
from holdfast.ids import check_id
from holdfast.limits import ID_BYTES_MAX

SCHEMA_VERSION: Final = 1
_SEQ_MAX: Final = 2**64 - 1
_CURSOR: Final = "journal."
_CURSOR_FORM: Final = re.compile(r"(?:journal\.)?\+?([0-9]+)")
"""The cursors that the original's file store accepts; it reads all other texts as 0."""
_ENDED: Final = frozenset({"completed", "failed", "cancelled", "terminal"})
_OMITTED: Final = ("turn_id", "attempt_id", "pending_side_effects", "pending_approvals", "content_ref_manifest")


class PendingSideEffect(Schema):
    """An effect with an intent but no result in the journal."""

    effect_id: str
    intent_record_id: str
    unsafe_pending_reason: str
    idempotency_key: str | None = None
    dedupe_key: str | None = None


class RunCheckpoint(Schema):
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


class Record(Schema):
    """The fields of a journal record that its order depends on."""

    journal_schema_version: Count
    journal_seq: Count
    record_id: str
    record_kind: str
    run_id: str


def to_write(checkpoint: object) -> JsonObject:
    """Return a caller's checkpoint as it is written. Raises InvalidInput if the original could not read it."""
    given = conforming_checkpoint(checkpoint)
    check_id("run_id", given["run_id"])
    check_id("checkpoint_id", given["checkpoint_id"])
    return {name: value for name, value in given.items() if name not in _OMITTED or value not in (None, [])}


def record_to_write(record: object, next_seq: int) -> JsonObject:
    """Return a caller's record as it is written. One without a `journal_seq` gets the next."""
    if isinstance(record, dict) and record.get("journal_seq") is None:
        record = {"journal_schema_version": SCHEMA_VERSION, **record, "journal_seq": next_seq}
    given = conforming_record(record)
    if given["journal_schema_version"] != SCHEMA_VERSION:
        raise InvalidInput(
            f"journal_schema_version is {given['journal_schema_version']}, but only {SCHEMA_VERSION} can be written"
        )
    check_id("run_id", given["run_id"])
    check_id("record_id", given["record_id"])
    return given


def conforming_checkpoint(checkpoint: object) -> JsonObject:
    """Return the checkpoint if the original can read it; else raise InvalidInput."""
    given = require_schema(checkpoint, RunCheckpoint, "a checkpoint")
    check_conformance(given, "RunCheckpoint", f"checkpoint {given['checkpoint_id']!r}")
    return given


def conforming_record(record: object) -> JsonObject:
    """Return the journal record if the original can read it; else raise InvalidInput."""
    given = require_schema(record, Record, "a journal record")
    check_conformance(given, "JournalRecord", f"journal record {given['record_id']!r}")
    return given


def is_terminal(checkpoint: JsonObject) -> bool:
    """Whether the run had ended. Saving and pruning use the same rule, in memory and in files."""
    state = str(checkpoint["loop_state"]).lower()
    return state.startswith("terminal:") or state in _ENDED


def order(checkpoint: JsonObject) -> tuple[int, int, int, str]:
    """Return the sort key of a checkpoint: covered records, number, date, and its id to break ties."""
    return (
        checkpoint["covers_journal_seq"],
        checkpoint["checkpoint_seq"],
        checkpoint["created_at_millis"],
        checkpoint["checkpoint_id"],
    )


def cursor_of(seq: int) -> str:
    """Return a sequence number as a cursor."""
    return f"{_CURSOR}{seq}"


def seq_of(cursor: object) -> int:
    """Return the sequence number of a cursor: `41`, `"41"` or `"journal.41"`. Raises InvalidCursor."""
    if type(cursor) is int and 0 <= cursor <= _SEQ_MAX:
        return cursor
    found = _CURSOR_FORM.fullmatch(cursor) if type(cursor) is str and len(cursor) <= ID_BYTES_MAX else None
    if found is not None and int(found[1]) <= _SEQ_MAX:
        return int(found[1])
    raise InvalidCursor(f"{cursor!r} is not a journal cursor; write 41 or 'journal.41'")


_BITS: Final = {"u8": 8, "u16": 16, "u32": 32, "u64": 64}
_SHOWN_MAX: Final = 60


class Field(NamedTuple):
    """A field of an object."""

    name: str
    type: str
    is_list: bool
    is_optional: bool


class Choice(NamedTuple):
    """One of several texts."""

    values: tuple[str, ...]


class Tagged(NamedTuple):
    """An object of one of several types."""

    tag: str
    """The field with the name of the type; empty if the object's only key is that name."""
    content: str
    """The field with the fields of that type; empty if they are beside the tag."""
    types: dict[str, str]


Type = tuple[Field, ...] | Choice | Tagged


def check_conformance(value: JsonObject, type_name: str, what: str) -> None:
    """Raise InvalidInput if the original could not read `value`; the error names the first field it fails on."""
    for problem in (*_problems(value, type_name, ""), *_number_problems(value.get("payload"), "payload")):
        raise InvalidInput(f"the original could not read {what}: {problem}; nothing was written")


def _problems(value: object, name: str, at: str) -> Iterator[str]:
    if name in _BITS:
        if type(value) is not int or not 0 <= value < 1 << _BITS[name]:
            yield f"`{at}` is {_shown(value)}, not an integer from 0 to 2^{_BITS[name]} - 1"
    elif name == "text":
        if not isinstance(value, str):
            yield f"`{at}` is {_shown(value)}, not text"
    elif name == "id":
        try:
            check_id(f"`{at}`", value)
        except InvalidId as error:
            yield str(error)
    elif name == "bool":
        if not isinstance(value, bool):
            yield f"`{at}` is {_shown(value)}, not true or false"
    else:
        yield from _composed_problems(value, _types()[name], at)


def _composed_problems(value: object, kind: Type, at: str) -> Iterator[str]:
    if isinstance(kind, Choice):
        if value not in kind.values:
            yield f"`{at}` is {_shown(value)}, not one of {', '.join(kind.values)}"
    elif not isinstance(value, dict):
        yield f"`{at}` is {_shown(value)}, not an object"
    elif isinstance(kind, Tagged):
        yield from _tagged_problems(value, kind, at)
    else:
        for field in kind:
            yield from _field_problems(value, field, at)


def _tagged_problems(value: JsonObject, kind: Tagged, at: str) -> Iterator[str]:
    tag = value.get(kind.tag) if kind.tag else next(iter(value), None)
    place = _join(at, kind.tag) if kind.tag else at
    if not isinstance(tag, str) or tag not in kind.types or (not kind.tag and len(value) != 1):
        yield f"`{place}` is {_shown(tag)}, not one of {', '.join(kind.types)}"
        return
    content = kind.content or ("" if kind.tag else tag)
    if content and content not in value:
        yield f"`{_join(at, content)}` is missing"
    elif kind.types[tag] != "nothing":
        yield from _problems(value[content] if content else value, kind.types[tag], _join(at, content))


def _field_problems(value: JsonObject, field: Field, at: str) -> Iterator[str]:
    place, found = _join(at, field.name), value.get(field.name)
    if field.name not in value:
        if not field.is_optional:
            yield f"`{place}` is missing"
    elif field.is_list:
        if not isinstance(found, (list, tuple)):
            yield f"`{place}` is {_shown(found)}, not a list"
            return
        for number, item in enumerate(found):
            yield from _problems(item, field.type, f"{place}[{number}]")
    elif found is not None or not field.is_optional:
        yield from _problems(found, field.type, place)


def _number_problems(value: object, at: str) -> Iterator[str]:
    """Find numbers that no float can represent: in a payload the original fails on them even in ignored fields."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _number_problems(part, _join(at, str(name)))
    elif isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            yield from _number_problems(part, f"{at}[{number}]")
    elif isinstance(value, (int, decimal.Decimal)) and not _is_float(value):
        yield f"`{at}` is a number that is too large"


def _is_float(value: int | decimal.Decimal) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _join(at: str, name: str) -> str:
    return f"{at}.{name}" if at and name else at or name


def _shown(value: object) -> str:
    if isinstance(value, (dict, list, tuple)):
        return "an object" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"


@functools.cache
def _types() -> dict[str, Type]:
    text = files(__package__).joinpath("record_types.txt").read_text("utf-8").replace("\n  ", " ")
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {name: _type_of(operator, words) for name, operator, *words in lines}


def _type_of(operator: str, words: list[str]) -> Type:
    if operator == "|":
        return Choice(tuple(words))
    pairs = [(name, kind) for name, _, kind in (word.partition(":") for word in words)]
    if operator == "=":
        return tuple(Field(name, kind.rstrip("*?"), "*" in kind, kind.endswith("?")) for name, kind in pairs)
    tag, _, content = operator.removeprefix("@").partition("/")
    return Tagged(tag, content, dict(pairs))
