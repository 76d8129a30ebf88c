"""What blocking and awaiting apps share: how a run is started, taken up and moved on."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import HoldfastError
from holdfast.model.status import AT_WORK, READY
from holdfast.runtime.moving import Moved
from holdfast.runtime.starting import Acts, Claimed, Move, Start, claim, create, new_run_id

if TYPE_CHECKING:
    from holdfast.runtime.core import AppCore

_log: Final = logging.getLogger("holdfast")


def started(
    app: AppCore, workflow: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run_id: str | None,
    metadata: dict[str, Any] | None, *, here: bool,
) -> Acts[tuple[str, Claimed | None]]:  # fmt: skip
    """Create the run, or find it; and hold it if it is to be moved on here."""
    is_elsewhere = not here and isinstance(workflow, str) and app.known(workflow) is None
    known = None if is_elsewhere else app.registry.find(workflow)
    name, version = (known.name, known.version) if known is not None else (workflow, 1)
    run_id = run_id if run_id is not None else new_run_id(app, name)
    start = Start(run_id, name, version, args, kwargs, metadata)
    if known is not None:
        start = known.prepared(start)
    row, claimed = yield from create(app, start, take=here)
    if claimed is None and here and (row.status == READY or row.status in AT_WORK):  # perhaps of a dead process
        claimed = yield from claim(app, run_id)
    return run_id, claimed


def claim_known(app: AppCore, run_id: str) -> Acts[Claimed | None]:
    """Hold a run that was woken, if this process can move it on."""
    row = yield lambda: app.core.port.run(run_id)
    if row is None or row.status != "ready" or app.known(row.workflow) is None:
        return None
    return (yield from claim(app, run_id))


def advanced(app: AppCore, claimed: Claimed, *, once: bool = False) -> Acts[None]:
    """Move a run on until it waits or ends, then those it woke. What happens to the others is not its caller's."""
    moved: Moved = yield Move(claimed)
    if moved.error is not None:
        raise moved.error
    todo = [] if once else _next(moved)
    while todo:
        run_id = todo.pop(0)
        try:
            taken = yield from claim_known(app, run_id)
            if taken is None:
                continue
            moved = yield Move(taken)
        except HoldfastError as error:
            _log.warning("run %r, which was woken, stopped: %s", run_id, error)
            continue
        if moved.error is not None and (run_id == claimed.row.run_id or not isinstance(moved.error, Exception)):
            raise moved.error
        if moved.error is not None:
            _log.warning("run %r, which was woken, stopped: %s", run_id, moved.error)
        todo += _next(moved)


def _next(moved: Moved) -> list[str]:
    """What to move on next: the run itself if something came in meanwhile, and what it woke."""
    itself = [moved.run_id] if moved.status == "ready" else []
    return [*itself, *moved.woken]
