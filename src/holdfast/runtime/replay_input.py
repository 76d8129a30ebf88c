"""What an execution reads: its journal, its inbox, its state, the ledgers of its family.

All that is read is verified; a missing entry or checkpoint is DamagedData. `ValueCodec` makes of a new value what a
replay will read, so that code sees the same value in both cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from blake3 import blake3

from holdfast.engine.commands import EntryData, Item, Performed, StateData
from holdfast.engine.record import Positioned, live_path
from holdfast.engine.resume_point import ResumePoint, resume_point_from
from holdfast.engine.state_edits import Edit, Replacement
from holdfast.errors import DamagedData, InvalidInput, Unstorable
from holdfast.ids import via_of
from holdfast.limits import KIB, MIB, NUMBER_MAX, VALUE_BYTES_MAX
from holdfast.model.rows import CheckpointRow, EntryRow, ItemRow, RunRow
from holdfast.operations.context import StoreContext
from holdfast.operations.read import Loaded, find_checkpoint, load_checkpoint
from holdfast.operations.tracked_state import load_tracked, replace_content
from holdfast.operations.views import RESUME, decode_body, metadata_dict, value_too_large
from holdfast.state.values import canonical_bytes, check_storable, pack, pack_sorted, unpack
from holdfast.store.checksum import verify_checksum
from holdfast.store.port import Select


class ReplayInput(NamedTuple):
    """What a run has done, as far as it is needed to continue."""

    entries: list[Positioned]
    line: ResumePoint


def read_replay_input(core: StoreContext, run: RunRow) -> ReplayInput:
    """Read the entries that the newest checkpoint of a run needs, and all after it."""
    line, edit = ResumePoint(), None
    found = find_checkpoint(core, run.run_id, Select()) if run.head else None
    while found is not None:
        row = found[1]
        resume = resume_of(run, row)
        if resume is not None:
            line = resume_point_from(resume, row.covers, row.checkpoint_id)
            break
        edit = edit or Edit(row.covers, row.checkpoint_id)  # saved by hand: the run continues with that state
        found = find_checkpoint(core, run.run_id, Select(before=row.number))
    line.edits += [edit] if edit is not None else []
    entries: list[Positioned] = []
    for first, last in line.spans:
        entries += _entries(core, run, first - 1, last - first + 1)
    entries += _entries(core, run, line.covers, -1)
    return ReplayInput(entries if line.covers else live_path(entries), line)


def read_edits(core: StoreContext, run: RunRow, line: ResumePoint) -> list[Replacement]:
    """Read the edits of the state of a run."""
    found = []
    for edit in line.edits:
        if edit.entry:
            rows = core.port.rows(EntryRow, run.run, keys=[edit.entry])
            entry = entry_data(run, rows[0]) if rows and rows[0].kind == "forked" else {}
            changes = [(tuple(path), value) for path, value in entry.get("set", [])]
            found.append(Replacement(edit.at, None, None, changes))
        else:
            state, version = state_of(core, run, edit.checkpoint)
            if not isinstance(state, dict):
                place = f"checkpoint {edit.checkpoint!r} of run {run.run_id!r}"
                raise InvalidInput(f"{place} was saved by hand and is not a dict, so the run cannot continue with it")
            found.append(Replacement(edit.at, state, version, []))
    return found


def resume_of(run: RunRow, row: CheckpointRow) -> EntryData | None:
    """What a checkpoint records as needed to resume from it; None if it was saved by hand."""
    found = metadata_dict(row.metadata, f"checkpoint {row.checkpoint_id!r} of run {run.run_id!r}").get(RESUME)
    return found if isinstance(found, dict) and "spans" in found else None


def _entries(core: StoreContext, run: RunRow, after: int, limit: int) -> list[Positioned]:
    rows = core.port.rows(EntryRow, run.run, after, limit)
    for expected, row in enumerate(rows, start=after + 1):
        if row.position != expected:
            raise DamagedData(f"the journal of run {run.run_id!r}", f"entry {expected} is missing")
    if 0 <= limit != len(rows):
        raise DamagedData(f"the journal of run {run.run_id!r}", f"entries after {after + len(rows)} are missing")
    return [(row.position, entry_data(run, row)) for row in rows]


def entry_data(run: RunRow, row: EntryRow) -> EntryData:
    """An entry as data, checked."""
    place = f"entry {row.position} in the journal of run {run.run_id!r}"
    verify_checksum(row, run.incarnation, place)
    data = decode_body(row.body, place)
    if not isinstance(data, dict) or data.get("kind") != row.kind:
        raise DamagedData(place, "it is not an entry of a workflow")
    return data


def first_entry(core: StoreContext, run: RunRow) -> EntryData:
    """The entry a workflow's run starts with; empty if it has none."""
    rows = core.port.rows(EntryRow, run.run, 0, 1)
    return entry_data(run, rows[0]) if rows and rows[0].kind == "started" else {}


def last_entry(core: StoreContext, run: RunRow) -> EntryData:
    """The newest entry."""
    rows = core.port.rows(EntryRow, run.run, run.position - 1, 1) if run.position else []
    return entry_data(run, rows[0]) if rows else {}


def inbox_items(core: StoreContext, run: RunRow, after: int) -> list[Item]:
    """The items after number `after` that were not taken."""
    items = []
    for row in core.port.rows(ItemRow, run.run, after, NUMBER_MAX):
        place = f"inbox item {row.number} of run {run.run_id!r}"
        verify_checksum(row, run.incarnation, place)
        value = decode_body(row.body, place)
        items.append(Item(row.number, row.kind, row.name, row.by, row.created_us, value, via_of(row)))
    return items


def state_of(
    core: StoreContext, run: RunRow, checkpoint_id: str, load: Callable[..., Loaded | None] = load_checkpoint
) -> tuple[Any, int | None]:
    """The state in a checkpoint, and the version of the workflow that saved it; None: it was saved by hand."""
    found = load(core, run.run_id, Select("", checkpoint_id))
    if found is None:
        raise DamagedData(
            f"run {run.run_id!r}", f"checkpoint {checkpoint_id!r}, from which it would resume, is missing"
        )
    resume = resume_of(run, found.row) or {}
    return found.state, resume.get("version")


def tracked_state_of(core: StoreContext, run: RunRow, checkpoint_id: str) -> tuple[Any, int | None]:
    """Like `state_of`, with a tracked state, whose next save costs what changes in it."""
    return state_of(core, run, checkpoint_id, load_tracked)


def family_lines(core: StoreContext, run: RunRow, key: str) -> list[Performed]:
    """The lines about an effect in the ledgers of the family, the run's own among them, newest run first."""
    found = []
    for other, row in reversed(core.port.family_effects(run.family, key)):
        place = f"effect {key!r} of run {other.run_id!r}"
        verify_checksum(row, other.incarnation, place)
        found.append(Performed(other.run_id, row.state, decode_body(row.body, place), decode_body(row.call, place)))
    return found


_NOTHING: Final = blake3(pack_sorted([[], {}])).hexdigest(8)
_SMALL: Final = 2**62
_ENCODING_MIN: Final = 4 * KIB
_ENCODING_MAX: Final = 16 * MIB
"""The encoding of a result is kept for its entry within these sizes: a smaller result is cheaper to pack again, and a
larger one would take memory during the commit."""
_VALUE_BYTES_MAX: Final = VALUE_BYTES_MAX - 256 * KIB
"""Less than a body may have: an entry also has a header, and perhaps an error with its traceback."""


class ValueCodec:
    """Digests of arguments, and values as a replay will read them; the codec of `engine.execution`."""

    def digest(self, args: tuple[object, ...], kwargs: dict[str, object]) -> str | None:
        if not args and not kwargs:
            return _NOTHING
        try:
            return blake3(canonical_bytes([list(args), kwargs])).hexdigest(8)
        except (Unstorable, TypeError):
            return None

    def round_trip(self, value: object) -> Any:
        return self.record(value, "value")[0]

    def record(self, value: object, root: str = "result") -> tuple[Any, bytes]:
        if value is None or value is True or value is False or (type(value) is int and -_SMALL < value < _SMALL):
            return value, b""
        try:
            packed = pack([[[value]]])  # as deep as in an entry, where it must still fit
        except Unstorable:
            check_storable(value, root=root)
            raise Unstorable(f"the {root} cannot be stored: it is nested too deep", root) from None
        if len(packed) > _VALUE_BYTES_MAX:
            raise value_too_large("a value", len(packed), _VALUE_BYTES_MAX)
        again = value if type(value) in (str, bytes) else unpack(packed, "a result")[0][0][0]
        return again, packed[3:] if _ENCODING_MIN <= len(packed) <= _ENCODING_MAX else b""

    def effect_token(self, incarnation: bytes, key: str, epoch: int) -> str:
        return blake3(incarnation + pack([key, epoch])).hexdigest(16)

    def replace_content(self, state: StateData, new: StateData) -> None:
        replace_content(state, new)


CODEC: Final = ValueCodec()
