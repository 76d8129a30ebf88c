"""What an execution reads: its journal, its inbox, its state, the ledgers of its family."""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.engine.commands import EntryData, Item, Performed
from holdfast.engine.edits import Edit, Replacement
from holdfast.engine.line import Line, line_of
from holdfast.engine.record import Positioned, live_path
from holdfast.errors import DamagedData, InvalidInput
from holdfast.limits import NUMBER_MAX
from holdfast.model.rows import CheckpointRow, EntryRow, RunRow
from holdfast.store.port import Select
from holdfast.store.seal import check_seal
from holdfast.verbs.core import Core
from holdfast.verbs.reading import find_checkpoint, load_checkpoint
from holdfast.verbs.values import body_value, metadata_dict

RESUME = "holdfast"
"""Under this key a checkpoint's metadata says what is needed to resume from it."""


class Past(NamedTuple):
    """What a run has done, as far as it is needed to go on."""

    entries: list[Positioned]
    line: Line


def past_of(core: Core, run: RunRow) -> Past:
    """Read the run's journal: what its newest checkpoint says is needed, and all that came after."""
    line, edit = Line(), None
    found = find_checkpoint(core, run.run_id, Select()) if run.head else None
    while found is not None:
        row = found[1]
        resume = resume_of(run, row)
        if resume is not None:
            line = line_of(resume, row.covers, row.checkpoint_id)
            break
        edit = edit or Edit(row.covers, row.checkpoint_id)  # saved by hand: the run goes on with that state
        found = find_checkpoint(core, run.run_id, Select(before=row.number))
    line.edits += [edit] if edit is not None else []
    entries: list[Positioned] = []
    for first, last in line.spans:
        entries += _entries(core, run, first - 1, last - first + 1)
    entries += _entries(core, run, line.covers, -1)
    return Past(entries if line.covers else live_path(entries), line)


def edited(core: Core, run: RunRow, line: Line) -> list[Replacement]:
    """The edits of a run, read."""
    found = []
    for edit in line.edits:
        if edit.entry:
            row = core.port.entry_at(run.run, edit.entry)
            entry = entry_data(run, row) if row is not None and row.kind == "forked" else {}
            changes = [(tuple(path), value) for path, value in entry.get("set", [])]
            found.append(Replacement(edit.at, None, None, changes))
        else:
            state, version = state_of(core, run, edit.checkpoint)
            if not isinstance(state, dict):
                place = f"checkpoint {edit.checkpoint!r} of run {run.run_id!r}"
                raise InvalidInput(f"{place} was saved by hand and is not a dict, so the run cannot go on with it")
            found.append(Replacement(edit.at, state, version, []))
    return found


def resume_of(run: RunRow, row: CheckpointRow) -> dict[str, Any] | None:
    """What a checkpoint says is needed to resume from it; None if it does not say."""
    found = metadata_dict(row.metadata, f"checkpoint {row.checkpoint_id!r} of run {run.run_id!r}").get(RESUME)
    return found if isinstance(found, dict) and "spans" in found else None


def _entries(core: Core, run: RunRow, after: int, limit: int) -> list[Positioned]:
    rows = core.port.entries(run.run, after, limit)
    for expected, row in enumerate(rows, start=after + 1):
        if row.position != expected:
            raise DamagedData(f"the journal of run {run.run_id!r}", f"entry {expected} is missing")
    if 0 <= limit != len(rows):
        raise DamagedData(f"the journal of run {run.run_id!r}", f"entries behind {after + len(rows)} are missing")
    return [(row.position, entry_data(run, row)) for row in rows]


def entry_data(run: RunRow, row: EntryRow) -> EntryData:
    """An entry as data, checked."""
    place = f"entry {row.position} in the journal of run {run.run_id!r}"
    check_seal(row, run.incarnation, place)
    data = body_value(row.body, place)
    if not isinstance(data, dict) or data.get("kind") != row.kind:
        raise DamagedData(place, "it is not an entry of a workflow")
    return data


def first_entry(core: Core, run: RunRow) -> EntryData:
    """The entry a workflow's run starts with; empty if it has none."""
    rows = core.port.entries(run.run, 0, 1)
    return entry_data(run, rows[0]) if rows and rows[0].kind == "started" else {}


def last_entry(core: Core, run: RunRow) -> EntryData:
    """The newest entry."""
    rows = core.port.entries(run.run, run.position - 1, 1) if run.position else []
    return entry_data(run, rows[0]) if rows else {}


def inbox_items(core: Core, run: RunRow, after: int) -> list[Item]:
    """The items behind `after` that were not taken."""
    items = []
    for row in core.port.inbox(run.run, after, NUMBER_MAX):
        place = f"inbox item {row.number} of run {run.run_id!r}"
        check_seal(row, run.incarnation, place)
        value = body_value(row.body, place)
        items.append(Item(row.number, row.kind, row.name, row.by, row.created_us, value))
    return items


def state_of(core: Core, run: RunRow, checkpoint_id: str) -> tuple[Any, int | None]:
    """The state in a checkpoint, and the version of the workflow that saved it; None if it was saved by hand."""
    found = load_checkpoint(core, run.run_id, Select("", checkpoint_id))
    if found is None:
        raise DamagedData(
            f"run {run.run_id!r}", f"checkpoint {checkpoint_id!r}, from which it would resume, is missing"
        )
    resume = resume_of(run, found.row) or {}
    return found.state, resume.get("version")


def family_lines(core: Core, run: RunRow, key: str) -> list[Performed]:
    """What the ledgers of the family, our own among them, say of an effect, newest run first."""
    found = []
    for other, row in reversed(core.port.family_effects(run.family, key)):
        place = f"effect {key!r} of run {other.run_id!r}"
        check_seal(row, other.incarnation, place)
        found.append(Performed(other.run_id, row.state, body_value(row.body, place), body_value(row.call, place)))
    return found
