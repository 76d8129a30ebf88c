"""Places in a run from which it can be rolled back or forked, and the state it had there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.engine.record import record_of
from holdfast.engine.state_edits import path_of
from holdfast.errors import HoldfastError, InvalidInput, RunError
from holdfast.ids import display_name
from holdfast.inspect.timeline import timeline
from holdfast.model.rows import CANCELLED, RunRow
from holdfast.operations.views import RESUME, checked_checkpoint, moment
from holdfast.runtime.replay_input import first_entry, resume_of
from holdfast.runtime.run_history import RunHistory, read_history
from holdfast.state.json_preview import to_jsonable
from holdfast.store.port import CheckpointQuery
from holdfast.web.mask import Masker, mask

if TYPE_CHECKING:
    import datetime as dt

    from holdfast.web.site import Context

_ENTRIES: Final = 400
"""How many of the newest entries are searched for calls."""
_PLACES_MAX: Final = 40
STATE_CHARS_MAX: Final = 64_000
"""A larger state is not edited as a whole."""
_WITHOUT_CALLS: Final = frozenset({"saved", "turn", "log"})
_BETWEEN_MAX: Final = 50
_CALLS: Final = frozenset({"step", "effect", "ask", "sleep", "wait", "child", "map", "gather", "call", "stage"})


class Place(NamedTuple):
    """A place that a user can choose."""

    value: str
    """What `rollback` and `fork` accept."""
    label: str
    at: dt.datetime | None


def parse_place(text: str) -> int | str:
    """A place as a user writes it: a position, a checkpoint's id, or the name of a call or stage."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else text


def require_workflow(c: Context, row: RunRow) -> None:
    """Raise RunError if no workflow executes the run: a program only saves states to it."""
    if not first_entry(c.store.access.core, row).get("workflow"):
        raise RunError(
            f"run {row.run_id!r} was not started by a workflow, so it cannot be rolled back or forked here; "
            "`holdfast fork` makes a copy of its states"
        )


def places_of(c: Context, row: RunRow) -> list[Place]:
    """The newest calls and checkpoints of a run, newest first."""
    rows = timeline(c.store, row.run_id, newest=_ENTRIES).rows
    calls = [
        (one.first - 1, Place(one.call, f"before {display_name(one.call)} (position {one.first - 1})", one.started_at))
        for one in rows
        if one.kind in _CALLS and one.call and one.first and one.state != "taken_back"
    ]
    found = c.store.port.find_checkpoints(CheckpointQuery(row.run_id, lane="", limit=_PLACES_MAX))
    checkpoints = [
        (
            one.covers,
            Place(
                one.checkpoint_id,
                f"checkpoint {one.checkpoint_id}, step {one.step} (position {one.covers})",
                moment(one.created_us),
            ),
        )
        for _, one in found
        if "keeps" not in (resume_of(row, checked_checkpoint(row, one)) or {})  # made for a rollback in progress
    ]
    both = sorted([*calls, *checkpoints], key=lambda pair: pair[0], reverse=True)
    history = read_history(c.store.access.core, row.run_id)
    last = _last_position(history)
    return [place for position, place in both[:_PLACES_MAX] if _is_reachable(history, position, last)]


def _last_position(history: RunHistory) -> int:
    """The last position that the run can go back to: before its cancellation, and before an open rollback."""
    ends = [at - 1 for at, entry in history.live if entry["kind"] in ("cancelling", CANCELLED)]
    begun: list[int] = [entry["to"] for entry in record_of(history.live).rollback[:1]]
    return min([*ends, *begun, history.run.position])


def _is_reachable(history: RunHistory, position: int, last: int) -> bool:
    """Whether the run can go back there: it was not taken back, and what it needs was not pruned."""
    if position > last or any(first <= position < end for first, end in (*history.dead, *history.pruned)):
        return False
    if not history.pruned and len(history.checkpoints) == history.run.serial:
        return True
    try:
        history.target(position)
    except InvalidInput:
        return False
    return True


class StateAt(NamedTuple):
    """The state that a fork from some position begins with, as far as it is known without executing the run."""

    shown: Any
    """As JSON, masked; None if there is no checkpoint before the position."""
    checkpoint_id: str
    covers: int
    why_not_whole: str
    """Why the state cannot be edited as a whole; empty if it can."""


def state_at(c: Context, row: RunRow, position: int, masker: Masker) -> StateAt:
    """The state at a position: that of the newest checkpoint before it."""
    try:
        found = c.store.load(row.run_id, at=position)
    except HoldfastError as error:
        return StateAt(None, "", 0, f"The state cannot be read: {error}.")
    if found is None:
        return StateAt(None, "", 0, "There is no checkpoint before this place, so the state is not known yet.")
    shown = to_jsonable(masker.value(found.state))
    return StateAt(shown, found.checkpoint_id, found.covers, _why_not_whole(c, row, position, found, shown))


def _why_not_whole(c: Context, row: RunRow, position: int, found: Any, shown: object) -> str:
    if not isinstance(found.state, dict):
        return "The state is not an object."
    between = c.store.journal(row.run_id, after=found.covers, limit=_BETWEEN_MAX)
    passed = [entry for entry in between if entry.position <= position]
    is_edited = bool((found.metadata.get(RESUME) or {}).get("edits"))
    if is_edited or len(passed) == _BETWEEN_MAX or any(entry.kind not in _WITHOUT_CALLS for entry in passed):
        return (
            f"The state was saved at position {found.covers}. What the code has set since is known only when it runs, "
            "so single values can be set, but the state cannot be replaced."
        )
    plain = to_jsonable(found.state)
    if shown != plain:
        return "Some values are masked, so the state cannot be replaced. Single values can be set."
    if plain != found.state or _has_other_types(found.state):
        return "The state has values that JSON does not have, so it cannot be replaced. Single values can be set."
    return ""


def masked_edit(
    c: Context, run_id: str, at: int | str | None, state: dict[str, Any] | None, update: dict[str, Any] | None
) -> str:
    """Why a fork from a place must not change its state so: it would replace masked values. Empty if it does not."""
    for path, value in (update or {}).items():
        if mask(value, c.site.mask, path_of(path)) != value:
            return f"{path} is masked, or contains a value that is; set other values"
    if state is None and not update:
        return ""
    found = c.store.load(run_id, at=c.app.rollback_plan(run_id, at).to)
    before = found.state if found is not None else None
    if state is not None and any(mask(part, c.site.mask) != part for part in (before, state)):
        return "some values of the state are masked, so it cannot be replaced; set single values"
    for path in update or {}:
        part = _part_at(before, path_of(path))
        if mask(part, c.site.mask, path_of(path)) != part:
            return f"{path} contains a masked value; set other values"
    return ""


def _part_at(state: Any, path: tuple[str | int, ...]) -> Any:
    """The value at a path of a state; None if there is none."""
    for part in path:
        if isinstance(state, dict):
            state = state.get(part, state.get(str(part)))
        else:
            state = state[part] if isinstance(state, list) and isinstance(part, int) and part < len(state) else None
    return state


def _has_other_types(value: object) -> bool:
    """Whether a value would not be read back from JSON as it is."""
    if isinstance(value, dict):
        return any(_has_other_types(part) for part in value.values())
    if isinstance(value, list):
        return any(_has_other_types(part) for part in value)
    return type(value) not in (str, int, float, bool, type(None))
