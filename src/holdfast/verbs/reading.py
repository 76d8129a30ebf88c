"""Reading: load, history, runs, journal, effects, attachments. None of them holds anything when it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

from holdfast.errors import CheckpointNotFound, DamagedData, InvalidCursor, InvalidInput, RunNotFound
from holdfast.ids import check_id, check_lane
from holdfast.limits import NUMBER_MAX, RUNS_PAGE_MAX, STEP_MAX
from holdfast.model.rows import CheckpointRow, RunRow
from holdfast.model.status import check_status
from holdfast.model.views import Change, Checkpoint, CheckpointInfo, Effect, Entry, RunList
from holdfast.state.decoder import decode
from holdfast.state.diff import diff as state_diff
from holdfast.store.port import RunQuery, Select
from holdfast.store.pruning import last_of
from holdfast.store.seal import check_run, check_seal
from holdfast.verbs.core import Core, Place
from holdfast.verbs.plans import Plan
from holdfast.verbs.shown import (
    RUN_CURSOR,
    checked_checkpoint,
    checkpoint_info,
    checkpoint_place,
    checkpoint_view,
    effect_view,
    entry_view,
    followed,
    run_info,
)
from holdfast.verbs.values import converted, metadata_tags
from holdfast.verbs.writing import position_of

PAGE = 200
Result = TypeVar("Result")

_RACES_MAX = 20


class Loaded(NamedTuple):
    """A checkpoint with its state."""

    run: RunRow
    row: CheckpointRow
    state: Any


def selection(step: int | None, at: int | str | None, checkpoint_id: str | None, lane: str) -> Select:
    """A caller's choice of a checkpoint, checked."""
    if sum(choice is not None for choice in (step, at, checkpoint_id)) > 1:
        raise InvalidInput("step, at and checkpoint_id choose a checkpoint each in its own way; give one of them")
    if step is not None and (type(step) is not int or not 0 <= step <= 2 * STEP_MAX):
        raise InvalidInput(f"step must be a whole number from 0 on, not {step!r}")
    if checkpoint_id is not None:
        check_id("checkpoint_id", checkpoint_id)
    return Select(check_lane(lane), checkpoint_id, step, None if at is None else position_of(at))


def load(
    place: Place,
    run_id: str,
    *,
    step: int | None = None,
    at: int | str | None = None,
    checkpoint_id: str | None = None,
    lane: str = "",
    as_type: Any = None,
    damaged: Literal["error", "previous"] = "error",
) -> Plan[Checkpoint[Any] | None]:
    """The plan of `Store.load`, where it is described."""
    check_id("run_id", run_id)
    if damaged not in ("error", "previous"):
        raise InvalidInput(f"damaged must be 'error' or 'previous', not {damaged!r}")
    select = selection(step, at, checkpoint_id, lane)
    look = load_checkpoint if damaged == "error" else load_undamaged
    found: Loaded | None = yield lambda: look(place.core, run_id, select)
    if found is None:
        return None
    run, row, state = found
    if as_type is not None:
        state = converted(state, as_type, f"the state in {checkpoint_place(run_id, row)}")
    return checkpoint_view(run, row, state)


def find_checkpoint(core: Core, run_id: str, select: Select) -> tuple[RunRow, CheckpointRow] | None:
    """The run and the checkpoint, both checked."""
    found = core.port.checkpoint(run_id, select)
    if found is None:
        return None
    run, row = found
    check_run(run)
    if row is not None:
        return run, checked_checkpoint(run, row)
    if select == Select() and run.head:
        raise DamagedData(f"run {run_id!r}", f"its newest checkpoint, number {run.head}, is missing")
    return None


def load_checkpoint(core: Core, run_id: str, select: Select) -> Loaded | None:
    """The checkpoint with its state. A checkpoint that is pruned while it is read is not taken for a damaged one."""
    for _ in range(_RACES_MAX):
        found = find_checkpoint(core, run_id, select)
        if found is None:
            return None
        run, row = found
        try:
            return _with_state(core, run, row)
        except DamagedData:
            if find_checkpoint(core, run_id, select) == found:
                raise
    raise DamagedData(f"run {run_id!r}", f"its checkpoints changed {_RACES_MAX} times while one was read")


def _with_state(core: Core, run: RunRow, row: CheckpointRow) -> Loaded:
    state, hashes = decode(row.root, core.fetch(run.family), checkpoint_place(run.run_id, row))
    if hashes:
        core.memory.note(run, hashes)
    return Loaded(run, row, state)


def load_undamaged(core: Core, run_id: str, select: Select) -> Loaded | None:
    """The checkpoint, or if it is damaged the newest undamaged one of the lane before it."""
    try:
        return load_checkpoint(core, run_id, select)
    except DamagedData as damage:
        first = damage
    try:
        found = core.port.checkpoint(run_id, select)
    except DamagedData:  # the run itself cannot be read to its end
        found = None
    before = NUMBER_MAX if found is None or found[1] is None or select == Select() else found[1].number
    while True:
        found = core.port.checkpoint(run_id, Select(select.lane, before=before))
        if found is None or found[1] is None:
            raise first
        run, row = found
        assert row is not None
        try:
            return _with_state(core, run, checked_checkpoint(run, row))
        except DamagedData:
            before = row.number


def history_page(core: Core, run_id: str, lane: str | None, after: int, incarnation: bytes | None) -> _HistoryPage:
    """The next checkpoints of a run, oldest first."""
    run = core.port.run(run_id)
    if run is None or (incarnation is not None and run.incarnation != incarnation):
        return _HistoryPage([], after, b"", last=True)
    check_run(run)
    rows = core.port.checkpoints(run.run, after, PAGE)
    infos = [checkpoint_info(run, checked_checkpoint(run, row)) for row in rows if lane in (None, row.lane)]
    return _HistoryPage(infos, rows[-1].number if rows else after, run.incarnation, last=len(rows) < PAGE)


class _HistoryPage(NamedTuple):
    infos: list[CheckpointInfo]
    after: int
    incarnation: bytes
    last: bool


def runs(
    place: Place,
    *,
    status: str | tuple[str, ...] | list[str] | None = None,
    workflow: str | None = None,
    metadata: dict[str, Any] | None = None,
    limit: int = 50,
    after: str | None = None,
    damaged: Literal["raise", "skip"] = "raise",
    prefix: str = "",
) -> Plan[RunList]:
    """List runs, newest first: of a status, of a workflow, with this metadata, whose ids begin with `prefix`.

    `after` is the cursor of an earlier page or run. Metadata is compared exactly, as data: key and value may be
    anything that can be stored. A damaged run is an error; with `damaged="skip"` it is left out, and `verify` tells.

    Example:
        page = store.runs(metadata={"team": "a"}, limit=50)
        store.runs(limit=50, after=page[-1].cursor)
        store.runs(prefix="order-")
    """
    statuses = (
        () if status is None else tuple(check_status(s) for s in ((status,) if isinstance(status, str) else status))
    )
    if workflow is not None:
        check_id("workflow", workflow)
    if type(limit) is not int or not 1 <= limit <= RUNS_PAGE_MAX:
        raise InvalidInput(f"limit must be 1 to {RUNS_PAGE_MAX}, not {limit!r}")
    if damaged not in ("raise", "skip"):
        raise InvalidInput(f'damaged must be "raise" or "skip", not {damaged!r}')
    if prefix != "":
        check_id("prefix", prefix)
    query = RunQuery(statuses, workflow, metadata_tags(metadata), _run_cursor(after), limit, prefix)
    if status is not None and not statuses:
        return RunList([], None)
    rows: list[RunRow] = yield lambda: place.core.port.runs(query)
    infos = [run_info(row) for row in rows if damaged == "raise" or _is_sound(row)]
    return RunList(infos, f"{RUN_CURSOR}{rows[-1].run}" if len(rows) == limit else None)


def _is_sound(row: RunRow) -> bool:
    try:
        check_run(row)
    except DamagedData:
        return False
    return True


def _run_cursor(after: object) -> int | None:
    if after is None:
        return None
    if type(after) is str and after.startswith(RUN_CURSOR):
        digits = after.removeprefix(RUN_CURSOR)
        if digits.isascii() and digits.isdigit() and len(digits) < 19 and int(digits) > 0:
            return int(digits)
    raise InvalidCursor(f"{after!r} is not a cursor of runs(); use the `cursor` of a run or of a page")


def journal(place: Place, run_id: str, *, after: int | str = 0, limit: int | None = None) -> Plan[list[Entry]]:
    """The run's journal behind position `after`, in order.

    An entry of the kind "pruned" stands for all that were removed from its position through `entry["through"]`.

    Example:
        for entry in store.journal("run-1", after="journal.0"):
            entry.position, entry.kind, entry.data
    """
    check_id("run_id", run_id)
    start = position_of(after)
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidInput(f"limit must be 1 or more, not {limit!r}")
    run = yield lambda: known_run(place.core, run_id)
    rows = yield lambda: place.core.port.entries(run.run, start, -1 if limit is None else min(limit, NUMBER_MAX))
    if rows and rows[0].position != start + 1:  # perhaps it was pruned, and what stands for it stands before
        before = yield lambda: place.core.port.entry_at(run.run, start)
        if before is not None:
            entry_view(run, before)
            start = max(start, min(last_of(before), rows[0].position - 1))
    for row in rows:
        start = followed(run_id, start, row)
    return [entry_view(run, row) for row in rows]


def effects(place: Place, run_id: str, *, key: str | None = None) -> Plan[list[Effect]]:
    """The run's ledger of side effects, in the order in which they were first recorded; with `key` only that one.

    Example:
        [effect.key for effect in store.effects("run-1") if effect.state == "in_doubt"]
    """
    check_id("run_id", run_id)
    run = yield lambda: known_run(place.core, run_id)
    if key is None:
        rows = yield lambda: place.core.port.effects(run.run)
    else:
        check_id("effect key", key)
        found = yield lambda: place.core.port.effect(run.run, key)
        rows = [found] if found else []
    return [effect_view(run, row) for row in rows]


def is_done(place: Place, run_id: str, key: str) -> Plan[bool]:
    """Whether the side effect `key` was marked as done. False also for a run that is not there.

    Example:
        store.is_done("run-1", "tool-use-7")
    """
    check_id("run_id", run_id)
    check_id("effect key", key)
    run = yield lambda: place.core.port.run(run_id)
    if run is None:
        return False
    check_run(run)
    found = yield lambda: place.core.port.effect(run.run, key)
    return found is not None and effect_view(run, found).done


def attachments(place: Place, run_id: str, checkpoint_id: str, *, lane: str = "") -> Plan[dict[str, Any]]:
    """The values kept beside a checkpoint, by key.

    Example:
        store.attachments("run-1", checkpoint_id)
    """
    check_id("run_id", run_id)
    check_id("checkpoint_id", checkpoint_id)
    check_lane(lane)
    return (yield lambda: _attached(place.core, run_id, lane, checkpoint_id))  # type: ignore[no-any-return]


def _attached(core: Core, run_id: str, lane: str, checkpoint_id: str) -> dict[str, Any]:
    run = known_run(core, run_id)
    for _ in range(_RACES_MAX):
        values, rows = {}, core.port.attachments(run.run, lane, checkpoint_id)
        try:
            for row in rows:
                name = f"attachment {row.key!r} of checkpoint {checkpoint_id!r} in run {run_id!r}"
                check_seal(row, run.incarnation, name)
                values[row.key], _hashes = decode(row.root, core.fetch(run.family), name)
        except DamagedData:
            if core.port.attachments(run.run, lane, checkpoint_id) == rows:
                raise
            continue
        return values
    raise DamagedData(f"run {run_id!r}", f"its attachments changed {_RACES_MAX} times while they were read")


def in_peace(core: Core, run_id: str, read: Callable[[], Result]) -> Result:
    """Read again if something seemed damaged and the run was changed meanwhile: it may only have been pruned."""
    for _ in range(_RACES_MAX):
        before = core.port.run(run_id)
        try:
            return read()
        except DamagedData:
            if core.port.run(run_id) == before:
                raise
    raise DamagedData(f"run {run_id!r}", f"it changed {_RACES_MAX} times while it was read")


def known_run(core: Core, run_id: str) -> RunRow:
    """The run's row, checked; RunNotFound if it is not there."""
    run = core.port.run(run_id)
    if run is None:
        raise RunNotFound(run_id)
    return check_run(run)


def diff(
    place: Place, run_id: str, a: str | int | CheckpointInfo, b: str | int | CheckpointInfo, *, lane: str = ""
) -> Plan[list[Change]]:
    """What changed in the state from checkpoint `a` to `b`, each given by id, by step (a number) or as an object.

    Only the parts that differ are read.

    Example:
        for change in store.diff("run-1", 1, 2):
            change.op, change.pointer, change.old, change.new
    """
    check_id("run_id", run_id)
    selects = [_compared(which, lane) for which in (a, b)]
    core = place.core
    changes: list[Change] = yield lambda: in_peace(core, run_id, lambda: _diff(core, run_id, selects))
    return changes


def _compared(which: object, lane: str) -> Select:
    if isinstance(which, CheckpointInfo):
        return Select(which.lane, which.checkpoint_id)
    if type(which) is int:
        return selection(which, None, None, lane)
    return selection(None, None, check_id("checkpoint_id", which), lane)


def _diff(core: Core, run_id: str, selects: list[Select]) -> list[Change]:
    known_run(core, run_id)
    found = []
    for select in selects:
        checkpoint = find_checkpoint(core, run_id, select)
        if checkpoint is None:
            wanted = f"with step {select.step}" if select.step is not None else repr(select.checkpoint_id)
            raise CheckpointNotFound(run_id, wanted)
        found.append(checkpoint)
    (run, old), (_, new) = found
    return state_diff(old.root, new.root, core.fetch(run.family), f"run {run_id!r}")
