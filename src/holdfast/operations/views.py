"""Conversion between stored rows and what users see.

Every row is verified before it is shown.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from holdfast.errors import DamagedData, InvalidCursor, InvalidInput, LimitExceeded, Unstorable
from holdfast.limits import ID_BYTES_MAX, METADATA_BYTES_MAX, NUMBER_MAX, VALUE_BYTES_MAX, VALUE_READ_BYTES_MAX
from holdfast.model.rows import CheckpointRow, EffectRow, EntryRow, RunRow
from holdfast.model.views import Checkpoint, CheckpointInfo, Effect, Entry, RunInfo, StoredDict
from holdfast.operations.context import StoreContext
from holdfast.state import compression as bodies
from holdfast.state.headers import map_header
from holdfast.state.values import pack, pack_sorted, unpack
from holdfast.store.checksum import verify_checksum, verify_run
from holdfast.store.journal_prune import last_of
from holdfast.store.search import read_metadata, tag

RUN_CURSOR = "runs."
RESUME = "holdfast"
"""The metadata key under which a checkpoint records what is needed to resume from it."""


def checkpoint_place(run_id: str, row: CheckpointRow) -> str:
    """The name of a checkpoint in errors."""
    lane = f" on lane {row.lane!r}" if row.lane else ""
    return f"checkpoint {row.checkpoint_id!r}{lane} (number {row.number}) of run {run_id!r}"


def checked_checkpoint(run: RunRow, row: CheckpointRow) -> CheckpointRow:
    """The checkpoint's row, if it matches its checksum."""
    return verify_checksum(row, run.incarnation, checkpoint_place(run.run_id, row))


def checkpoint_info(run: RunRow, row: CheckpointRow) -> CheckpointInfo:
    return CheckpointInfo(**_checkpoint_fields(run, row))


def checkpoint_view(run: RunRow, row: CheckpointRow, state: object) -> Checkpoint[Any]:
    return Checkpoint(**_checkpoint_fields(run, row), state=state)


def _checkpoint_fields(run: RunRow, row: CheckpointRow) -> StoredDict:
    return {
        "run_id": run.run_id,
        "checkpoint_id": row.checkpoint_id,
        "parent_id": row.parent_id,
        "lane": row.lane,
        "step": row.step,
        "next_node": row.next_node,
        "covers": row.covers,
        "status": row.status,
        "metadata": metadata_dict(row.metadata, checkpoint_place(run.run_id, row)) if row.metadata else {},
        "created_at": moment(row.created_us),
        "number": row.number,
    }


def run_info(row: RunRow) -> RunInfo:
    verify_run(row)
    place = f"run {row.run_id!r}"
    return RunInfo(
        run_id=row.run_id,
        workflow=row.workflow,
        status=row.status,
        metadata=metadata_dict(row.metadata, place),
        created_at=moment(row.created_us),
        updated_at=moment(row.updated_us),
        position=row.position,
        checkpoint_id=row.head_id or None,
        step=row.step,
        owner=row.owner or None,
        forked_from=unpack(row.origin, place) if row.origin else None,
        cursor=f"{RUN_CURSOR}{row.run}",
    )


def entry_view(run: RunRow, row: EntryRow) -> Entry:
    place = f"entry {row.position} of run {run.run_id!r}"
    verify_checksum(row, run.incarnation, place)
    data = decode_body(row.body, place)
    return Entry(position=row.position, kind=row.kind, data=data, created_at=moment(row.created_us))


def next_position(run_id: str, after: int, row: EntryRow) -> int:
    """The last position that a row covers; DamagedData if it does not follow position `after`."""
    if row.position != after + 1:
        raise DamagedData(f"the journal of run {run_id!r}", f"entry {after + 1} is missing")
    return last_of(row)


def effect_view(run: RunRow, row: EffectRow) -> Effect:
    place = f"effect {row.key!r} of run {run.run_id!r}"
    verify_checksum(row, run.incarnation, place)
    state: Any = "in_doubt" if row.state == "intent" else row.state
    call = decode_body(row.call, place)
    return Effect(
        key=row.key,
        state=state,
        tool=row.tool,
        target=row.target,
        reversible=row.reversible,
        result=decode_body(row.body, place),
        created_at=moment(row.created_us),
        updated_at=moment(row.updated_us),
        idempotency_key=call.get("token") if isinstance(call, dict) else None,
    )


def position_of(value: object) -> int:
    """A journal position given as `41` or `"journal.41"`."""
    if type(value) is int and 0 <= value <= NUMBER_MAX:
        return value
    if type(value) is str and value.startswith("journal."):
        digits = value.removeprefix("journal.")
        if digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) <= NUMBER_MAX:
            return int(digits)
    raise InvalidCursor(f"{value!r} is not a journal position; write 41 or 'journal.41'")


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def moment(us: int) -> dt.datetime:
    """Microseconds since 1970 as a time."""
    return _EPOCH + dt.timedelta(microseconds=us)


def metadata_pairs(metadata: object) -> tuple[tuple[str, bytes], ...]:
    """The metadata of a caller as keys and encoded values. Keys are any text, values are anything storable."""
    if not isinstance(metadata, dict):
        raise InvalidInput(f"metadata must be a dict, not {type(metadata).__name__}")
    pairs, size = [], 0
    for key, value in metadata.items():
        if not isinstance(key, str):
            raise InvalidInput(f"metadata keys must be text; {key!r} is {type(key).__name__}")
        try:
            name = key.encode()
        except UnicodeEncodeError:
            raise InvalidInput(f"the metadata key {key!r} has a lone surrogate; use valid Unicode") from None
        if len(name) > ID_BYTES_MAX:
            raise LimitExceeded(f"a metadata key has {len(name)} bytes, at most {ID_BYTES_MAX} are allowed")
        try:
            pairs.append((str.__str__(key), pack_sorted(value)))
        except Unstorable as error:
            path = error.path.replace("state", f"metadata[{key!r}]", 1)
            raise Unstorable(str(error).replace(error.path, path, 1), path) from None
        size += len(name) + len(pairs[-1][1])
    if size > METADATA_BYTES_MAX:
        raise LimitExceeded(f"the metadata has {size} bytes when encoded, at most {METADATA_BYTES_MAX} are allowed")
    return tuple(pairs)


def metadata_tags(metadata: StoredDict | None) -> tuple[tuple[str, bytes], ...]:
    """A metadata filter as tags."""
    return tuple(tag(key, value) for key, value in metadata_pairs(metadata)) if metadata else ()


def metadata_dict(data: bytes, place: str) -> StoredDict:
    """Stored metadata as the caller passed it."""
    return {key: unpack(value, place) for key, value in read_metadata(data).items()} if data else {}


def encode_body(core: StoreContext, value: object, what: str) -> bytes:
    """The stored body of a value that is not split into chunks."""
    plain = pack(value)
    if len(plain) > VALUE_BYTES_MAX:
        raise value_too_large(what, len(plain), VALUE_BYTES_MAX)
    return core.body(plain)


def encode_entry(core: StoreContext, entry: StoredDict, result: bytes) -> bytes:
    """Like `encode_body` of an entry, with its "result" already encoded."""
    keys = list(entry)
    at = keys.index("result")
    before, after = pack({key: entry[key] for key in keys[:at]}), pack({key: entry[key] for key in keys[at + 1 :]})
    assert len(keys) < 16, "the header of a map this small is one byte"
    plain = b"".join((map_header(len(keys)), before[1:], pack("result"), result, after[1:]))
    if len(plain) > VALUE_BYTES_MAX:
        raise value_too_large("a journal entry", len(plain), VALUE_BYTES_MAX)
    return core.body(plain)


def value_too_large(what: str, size: int, size_max: int) -> LimitExceeded:
    """The error for a value above its limit: what it is, how large, and what to do instead."""
    return LimitExceeded(
        f"{what} has {size} bytes when encoded, at most {size_max} are allowed; store the data elsewhere (a file, an "
        "object store) and record its location, or split it into several steps or entries"
    )


def decode_body(body: bytes, place: str) -> Any:
    """The value of a stored body."""
    return unpack(bodies.plain(body, VALUE_READ_BYTES_MAX, place), place) if body else None


def convert_state(value: object, as_type: Any, place: str) -> Any:
    """`value` as the type that the caller passed: a dataclass, msgspec struct, TypedDict, Pydantic model, …"""
    from holdfast.engine.results import decode_model  # loaded only if a type is passed

    try:
        if hasattr(as_type, "__pydantic_fields__"):
            return as_type.model_validate(value)
        return msgspec.convert(value, as_type, dec_hook=decode_model)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        name = getattr(as_type, "__name__", str(as_type))
        raise InvalidInput(f"{place} does not fit {name}: {error}") from error
