"""Reads: load, history, runs, journal, effects, attachments, diff.

None of them holds a lock or a transaction when it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar

from holdfast.drivers import Plan
from holdfast.errors import CheckpointNotFound, DamagedData, InvalidCursor, InvalidInput, RunNotFound
from holdfast.ids import check_id, check_lane
from holdfast.limits import NUMBER_MAX, RUNS_PAGE_MAX, STEP_MAX
from holdfast.model.rows import AttachmentRow, CheckpointRow, EffectRow, EntryRow, RunRow, check_status
from holdfast.model.views import Change, Checkpoint, CheckpointInfo, Effect, Entry, RunList, StoredDict
from holdfast.operations import views
from holdfast.operations.context import Access, RunCache, StoreContext
from holdfast.operations.views import position_of
from holdfast.state.diff import diff as state_diff
from holdfast.state.rope import Outline, decode
from holdfast.store.checksum import verify_checksum, verify_run
from holdfast.store.journal_prune import last_of
from holdfast.store.port import RunQuery, Select

PAGE = 200
Result = TypeVar("Result")

_RACES_MAX = 20
_EFFECTS_PAGE = 100


class Loaded(NamedTuple):
    """A checkpoint with its state."""

    run: RunRow
    row: CheckpointRow
    state: object
    cache: RunCache | None
    """None: the state has no chunks."""


class Selectors(TypedDict, total=False):
    """Which checkpoint to read; see `Store.load`."""

    step: int | None
    at: int | str | None
    checkpoint_id: str | None
    lane: str


class CheckpointChoice(Selectors, total=False):
    """The same, and what to do if it is damaged."""

    damaged: Literal["error", "previous"]


def selection(step: int | None, at: int | str | None, checkpoint_id: str | None, lane: str) -> Select:
    """A caller's choice of a checkpoint, checked."""
    if sum(choice is not None for choice in (step, at, checkpoint_id)) > 1:
        raise InvalidInput("step, at and checkpoint_id exclude each other; pass only one of them")
    if step is not None and (type(step) is not int or not 0 <= step <= 2 * STEP_MAX):
        raise InvalidInput(f"step must be an integer of at least 0, not {step!r}")
    if checkpoint_id is not None:
        check_id("checkpoint_id", checkpoint_id)
    return Select(check_lane(lane), checkpoint_id, step, None if at is None else position_of(at))


def load(
    access: Access,
    run_id: str,
    *,
    step: int | None = None,
    at: int | str | None = None,
    checkpoint_id: str | None = None,
    lane: str = "",
    as_type: object = None,
    damaged: Literal["error", "previous"] = "error",
) -> Plan[Checkpoint[Any] | None]:
    """The plan of `Store.load`, which documents it."""
    check_id("run_id", run_id)
    if damaged not in ("error", "previous"):
        raise InvalidInput(f"damaged must be 'error' or 'previous', not {damaged!r}")
    select = selection(step, at, checkpoint_id, lane)
    work = load_checkpoint if damaged == "error" else load_undamaged
    found: Loaded | None = yield lambda: work(access.core, run_id, select)
    if found is None:
        return None
    run, row, state, _ = found
    if as_type is not None:
        state = views.convert_state(state, as_type, f"the state in {views.checkpoint_place(run_id, row)}")
    return views.checkpoint_view(run, row, state)


def find_checkpoint(core: StoreContext, run_id: str, select: Select) -> tuple[RunRow, CheckpointRow] | None:
    """The run and the checkpoint, both checked."""
    found = core.port.checkpoint(run_id, select)
    if found is None:
        return None
    run, row, _ = found
    verify_run(run)
    if row is not None:
        return run, views.checked_checkpoint(run, row)
    if select == Select() and run.head:
        raise DamagedData(f"run {run_id!r}", f"its newest checkpoint, number {run.head}, is missing")
    return None


def load_checkpoint(core: StoreContext, run_id: str, select: Select, outline: Outline | None = None) -> Loaded | None:
    """The checkpoint with its state. One that is pruned while it is read is not reported as damaged.

    An `outline` is filled with that of the state.
    """
    for _ in range(_RACES_MAX):
        found = find_checkpoint(core, run_id, select)
        if found is None:
            return None
        run, row = found
        try:
            return _with_state(core, run, row, outline)
        except DamagedData:
            if find_checkpoint(core, run_id, select) == found:
                raise
    raise DamagedData(f"run {run_id!r}", f"its checkpoints changed {_RACES_MAX} times while one was read")


def _with_state(core: StoreContext, run: RunRow, row: CheckpointRow, outline: Outline | None = None) -> Loaded:
    place = views.checkpoint_place(run.run_id, row)
    state, hashes = decode(row.root, core.fetch(run.family), place, outline=outline)
    return Loaded(run, row, state, core.memory.note(run, hashes) if hashes else None)


def load_undamaged(core: StoreContext, run_id: str, select: Select) -> Loaded | None:
    """The checkpoint or, if it is damaged, the newest undamaged one before it on its lane."""
    try:
        return load_checkpoint(core, run_id, select)
    except DamagedData as damage:
        first = damage
    try:
        found = core.port.checkpoint(run_id, select)
    except DamagedData:  # the run can only be read in part
        found = None
    before = NUMBER_MAX if found is None or found[1] is None or select == Select() else found[1].number
    while True:
        found = core.port.checkpoint(run_id, Select(select.lane, before=before))
        if found is None or found[1] is None:
            raise first
        run, row, _ = found
        assert row is not None
        try:
            return _with_state(core, run, views.checked_checkpoint(run, row))
        except DamagedData:
            before = row.number


def history_page(
    core: StoreContext, run_id: str, lane: str | None, after: int, incarnation: bytes | None
) -> HistoryPage:
    """The next checkpoints of a run, oldest first."""
    run = core.port.run(run_id)
    if run is None or (incarnation is not None and run.incarnation != incarnation):
        return HistoryPage([], after, b"", last=True)
    verify_run(run)
    rows = core.port.rows(CheckpointRow, run.run, after, PAGE)
    infos = [views.checkpoint_info(run, views.checked_checkpoint(run, row)) for row in rows if lane in (None, row.lane)]
    return HistoryPage(infos, rows[-1].number if rows else after, run.incarnation, last=len(rows) < PAGE)


class HistoryPage(NamedTuple):
    """Checkpoints of a run, and where the next page starts."""

    infos: list[CheckpointInfo]
    after: int
    incarnation: bytes
    last: bool


def runs(
    access: Access,
    *,
    status: str | tuple[str, ...] | list[str] | None = None,
    workflow: str | None = None,
    metadata: StoredDict | None = None,
    limit: int = 50,
    after: str | None = None,
    damaged: Literal["raise", "skip"] = "raise",
    prefix: str = "",
) -> Plan[RunList]:
    """List runs, newest first: of a status, of a workflow, with this metadata, whose ids begin with `prefix`.

    `after` is the cursor of an earlier page or run. Metadata is compared exactly: keys and values may be anything that
    can be stored. A damaged run is an error; with `damaged="skip"` it is left out, and only `verify` reports it.

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
    query = RunQuery(statuses, workflow, views.metadata_tags(metadata), _run_cursor(after), limit, prefix)
    if status is not None and not statuses:
        return RunList([], None)
    rows: list[RunRow] = yield lambda: access.core.port.runs(query)
    infos = [views.run_info(row) for row in rows if damaged == "raise" or _is_undamaged(row)]
    return RunList(infos, f"{views.RUN_CURSOR}{rows[-1].run}" if len(rows) == limit else None)


def _is_undamaged(row: RunRow) -> bool:
    try:
        verify_run(row)
    except DamagedData:
        return False
    return True


def _run_cursor(after: object) -> int | None:
    if after is None:
        return None
    if type(after) is str and after.startswith(views.RUN_CURSOR):
        digits = after.removeprefix(views.RUN_CURSOR)
        if digits.isascii() and digits.isdigit() and len(digits) < 19 and int(digits) > 0:
            return int(digits)
    raise InvalidCursor(f"{after!r} is not a cursor of a list of runs; use the cursor of a run or of an earlier page")


def journal(access: Access, run_id: str, *, after: int | str = 0, limit: int | None = None) -> Plan[list[Entry]]:
    """The run's journal after position `after`, in order.

    An entry of the kind "pruned" replaces all that were removed from its position through `entry["through"]`.

    Example:
        for entry in store.journal("run-1", after="journal.0"):
            entry.position, entry.kind, entry.data
    """
    check_id("run_id", run_id)
    start = position_of(after)
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidInput(f"limit must be 1 or more, not {limit!r}")
    run = yield lambda: known_run(access.core, run_id)
    rows = yield lambda: access.core.port.rows(
        EntryRow, run.run, start, -1 if limit is None else min(limit, NUMBER_MAX)
    )
    if rows and rows[0].position != start + 1:  # it may be pruned; then an earlier row covers it
        pruned = yield lambda: access.core.port.rows(EntryRow, run.run, keys=[start])
        for before in pruned:
            views.entry_view(run, before)
            start = max(start, min(last_of(before), rows[0].position - 1))
    for row in rows:
        start = views.next_position(run_id, start, row)
    return [views.entry_view(run, row) for row in rows]


def effects(access: Access, run_id: str, *, key: str | None = None) -> Plan[list[Effect]]:
    """The run's ledger of side effects, in the order in which they were first recorded; with `key` only that one.

    Example:
        [effect.key for effect in store.effects("run-1") if effect.state == "in_doubt"]
    """
    check_id("run_id", run_id)
    run = yield lambda: known_run(access.core, run_id)
    if key is None:
        rows = yield lambda: access.core.port.rows(EffectRow, run.run)
    else:
        check_id("effect key", key)
        rows = yield lambda: access.core.port.rows(EffectRow, run.run, keys=[key])
    return [views.effect_view(run, row) for row in rows]


def effects_since(core: StoreContext, run: RunRow, position: int, keys: set[str]) -> list[EffectRow]:
    """The effects with these keys, and all that were recorded first after a position; as stored."""
    found = {row.number: row for row in (core.port.rows(EffectRow, run.run, keys=keys) if keys else [])}
    end = run.effects
    while end > 0:
        first = max(0, end - _EFFECTS_PAGE)
        page = core.port.rows(EffectRow, run.run, first, end - first)
        found |= {row.number: row for row in page}
        if any(row.after_position < position for row in page):
            break  # their numbers are in the order in which they were recorded first
        end = first
    return [found[number] for number in sorted(found)]


def is_done(access: Access, run_id: str, key: str) -> Plan[bool]:
    """Whether the side effect `key` was marked as done. False for a run that does not exist.

    Example:
        store.is_done("run-1", "tool-use-7")
    """
    check_id("run_id", run_id)
    check_id("effect key", key)
    run = yield lambda: access.core.port.run(run_id)
    if run is None:
        return False
    verify_run(run)
    found = yield lambda: access.core.port.rows(EffectRow, run.run, keys=[key])
    return any(views.effect_view(run, row).done for row in found)


def attachments(access: Access, run_id: str, checkpoint_id: str, *, lane: str = "") -> Plan[StoredDict]:
    """The values attached to a checkpoint, by key.

    Example:
        store.attachments("run-1", checkpoint_id)
    """
    check_id("run_id", run_id)
    check_id("checkpoint_id", checkpoint_id)
    check_lane(lane)
    return (yield lambda: _read_attachments(access.core, run_id, lane, checkpoint_id))  # type: ignore[no-any-return]


def _read_attachments(core: StoreContext, run_id: str, lane: str, checkpoint_id: str) -> StoredDict:
    run = known_run(core, run_id)
    for _ in range(_RACES_MAX):
        values, rows = {}, core.port.rows(AttachmentRow, run.run, keys=[(lane, checkpoint_id)])
        try:
            for row in rows:
                name = f"attachment {row.key!r} of checkpoint {checkpoint_id!r} in run {run_id!r}"
                verify_checksum(row, run.incarnation, name)
                values[row.key], _hashes = decode(row.root, core.fetch(run.family), name)
        except DamagedData:
            if core.port.rows(AttachmentRow, run.run, keys=[(lane, checkpoint_id)]) == rows:
                raise
            continue
        return values
    raise DamagedData(f"run {run_id!r}", f"its attachments changed {_RACES_MAX} times while they were read")


def retry_if_changed(core: StoreContext, run_id: str, read: Callable[[], Result]) -> Result:
    """Read again if something seems damaged but the run has changed: it may have been pruned meanwhile."""
    for _ in range(_RACES_MAX):
        before = core.port.run(run_id)
        try:
            return read()
        except DamagedData:
            if core.port.run(run_id) == before:
                raise
    raise DamagedData(f"run {run_id!r}", f"it changed {_RACES_MAX} times while it was read")


def known_run(core: StoreContext, run_id: str) -> RunRow:
    """The run's row, checked; RunNotFound if it does not exist."""
    run = core.port.run(run_id)
    if run is None:
        raise RunNotFound(run_id)
    return verify_run(run)


def diff(
    access: Access, run_id: str, a: str | int | CheckpointInfo, b: str | int | CheckpointInfo, *, lane: str = ""
) -> Plan[list[Change]]:
    """The changes of the state from checkpoint `a` to `b`, each given by id, by step (a number) or as an object.

    Only the parts that differ are read.

    Example:
        for change in store.diff("run-1", 1, 2):
            change.op, change.pointer, change.old, change.new
    """
    check_id("run_id", run_id)
    selects = [_compared(which, lane) for which in (a, b)]
    core = access.core
    changes: list[Change] = yield lambda: retry_if_changed(core, run_id, lambda: _diff(core, run_id, selects))
    return changes


def _compared(which: object, lane: str) -> Select:
    if isinstance(which, CheckpointInfo):
        return Select(which.lane, which.checkpoint_id)
    if type(which) is int:
        return selection(which, None, None, lane)
    return selection(None, None, check_id("checkpoint_id", which), lane)


def _diff(core: StoreContext, run_id: str, selects: list[Select]) -> list[Change]:
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
