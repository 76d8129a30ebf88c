"""Rehearsal: replay a stored run against the code of today, without doing or writing anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.engine import commands as c
from holdfast.engine.failures import failure_of
from holdfast.engine.record import shown
from holdfast.errors import Diverged, Interrupt, Suspended
from holdfast.model.rows import RunRow
from holdfast.model.status import CANCELLED, COMPLETED, FAILED
from holdfast.model.views import View
from holdfast.runtime.carrier import Carried, Carrier
from holdfast.runtime.codec import CODEC
from holdfast.runtime.moving import Invoke, execution_of, set_edits
from holdfast.runtime.outside import known_run
from holdfast.runtime.reads import Past, edited, past_of
from holdfast.runtime.starting import Acts
from holdfast.verbs.core import Holder, Place

if TYPE_CHECKING:
    from holdfast.runtime.app import App
    from holdfast.runtime.core import AppCore


class Replayed(View, frozen=True, kw_only=True):
    """What a rehearsal found: the code does what the journal says it did."""

    run_id: str
    status: str
    position: int
    """The journal's end."""
    entries: int
    """How many entries were replayed; finished turns of loops are not."""


class _Frontier(Suspended):
    """The code has come to the end of what is recorded."""


class _Rehearsal(Carrier):
    """Carries out what only looks, and stops at whatever would act."""

    def _carried(self, command: Any) -> Carried[Any]:
        if type(command) is c.RunChild and command.detached:
            return None  # that it was started is recorded, and nothing is read of it
        if type(command) in (c.Write, c.Call, c.Wait, c.RunChild):
            self.exe.waits_read = 0
            raise _Frontier("the rehearsal has come to the end of what is recorded")
        return (yield from super()._carried(command))


def replay(app: App, run_id: str) -> Replayed:
    """Replay a stored run against the code of today; nothing is called, committed or changed.

    Raises Diverged if the code does not do what the journal says, with both sides and the place. A run that has ended
    must come to the same end.

    Example:
        holdfast.testing.replay(app, "order-17").entries
    """
    core = app._core
    row: RunRow = app._run("replay", known_run(core, run_id))
    workflow = core.registry.find(row.workflow)
    if workflow.is_async:
        found: Replayed = core.loop.run(core.awaiting.run(_rehearsed(core, row)))
        return found
    return core.blocking.run(_rehearsed(core, row))


def _rehearsed(app: AppCore, row: RunRow) -> Acts[Replayed]:
    workflow = app.registry.find(row.workflow)
    past: Past = yield lambda: past_of(app.core, row)
    place = Place(app.core, Holder("rehearsal", row.incarnation, 0, b""))
    carrier = _Rehearsal(app, place, row, app.lease_s, 0.0)
    exe = carrier.exe = execution_of(app, workflow, row, past)
    if past.line.edits:
        set_edits(exe, (yield lambda: edited(app.core, row, past.line)))
    exe.inbox_newest = 0  # what waits in the inbox has not been acted on yet
    started, result, error = exe.record.started, None, None
    args, kwargs = workflow.typed_input(started["args"], started["kwargs"])
    try:
        result = yield Invoke(workflow, carrier, args, kwargs)
    except (Exception, Interrupt, SystemExit) as raised:
        error = raised
    if exe.record.diverged is not None:
        raise exe.record.diverged
    missing = exe.find_missing_await(error)
    if missing is not None and exe.record.ended is None:
        raise missing
    error = missing or error
    if not exe.is_waiting:
        left = exe.record.unseen()
        if left is not None:
            raise Diverged(exe.run_id, shown(left), "nothing more: the workflow has ended", left["position"])
        _check_end(exe.record.ended, row, result, error)
    elif exe.record.ended is not None and not _is_unfinished(exe.record.ended):
        raise Diverged(exe.run_id, f"the end of the run, {row.status}", "something more", row.position)
    return Replayed(run_id=row.run_id, status=row.status, position=row.position, entries=len(past.entries))


def _is_unfinished(ended: dict[str, Any]) -> bool:
    """Whether the run ended before its code did all that it recorded: cancelled, or stopped at a call not awaited."""
    return ended["kind"] == CANCELLED or (ended.get("error") or {}).get("type") == "MissingAwait"


def _check_end(ended: dict[str, Any] | None, row: RunRow, result: Any, error: BaseException | None) -> None:
    """A run that has ended must end the same way again."""
    if ended is None or ended["kind"] == CANCELLED:
        return
    if error is not None:
        found = f"{FAILED} with {failure_of(error)['type']}"
    else:
        found = f"{COMPLETED} with {CODEC.settled(result)!r}"
    expected = f"{COMPLETED} with {ended['result']!r}" if ended["kind"] == COMPLETED else (
        f"{FAILED} with {ended['error']['type']}"
    )  # fmt: skip
    if found != expected:
        raise Diverged(row.run_id, expected, found, row.position)
