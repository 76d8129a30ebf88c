"""A handle: one run, seen from outside."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple

from holdfast.clock import US
from holdfast.engine.record import record_of
from holdfast.engine.waiting import seconds_us
from holdfast.errors import NotFinished, RunCancelled, RunFailed
from holdfast.model.gates import GateInfo
from holdfast.model.rows import RunRow
from holdfast.model.status import AT_WORK, CANCELLED, COMPLETED, READY, TERMINAL, WAITING
from holdfast.model.views import RunInfo
from holdfast.runtime import outside
from holdfast.runtime.reads import last_entry, past_of
from holdfast.runtime.reaper import redeliver, ring
from holdfast.runtime.registry import R
from holdfast.runtime.starting import Acts, Claimed, claim, is_held
from holdfast.runtime.waits import describe_waits
from holdfast.store.seal import check_run
from holdfast.verbs.shown import run_info

if TYPE_CHECKING:
    from holdfast.runtime.app import App
    from holdfast.runtime.core import AppCore

_FIRST_LOOK_S: Final = 0.005
_LATER_LOOKS_S: Final = 0.25


class Look(NamedTuple):
    """What a look at a run found: its result, a claim to move it on with, or how long to wait for the next look."""

    ended: bool = False
    result: Any = None
    claimed: Claimed | None = None
    status: str = ""


Memo = dict[str, tuple[int, list[str]]]
"""Which children a run waits for, and at which position of its journal that was read."""


def look(app: AppCore, run_id: str, memo: Memo, *, only_wait: bool) -> Acts[Look]:
    """Look at a run: raise or give its result if it has ended; claim it if it can go on here, unless `only_wait`."""
    row: RunRow = yield from outside.known_run(app, run_id)
    if row.status in TERMINAL:
        last = yield lambda: last_entry(app.core, row)
        if row.status == COMPLETED:
            known, result = app.known(row.workflow), last.get("result")
            return Look(True, result if known is None else known.typed_result(result))
        if row.status == CANCELLED:
            raise RunCancelled(run_id, last.get("by", ""))
        raise RunFailed(run_id, last.get("error") or {"type": "Unknown", "message": "nothing is recorded of it"})
    if only_wait:
        return Look(status=row.status)
    yield from ring(app)
    yield from redeliver(app)
    row = yield from outside.known_run(app, run_id)
    return Look(claimed=(yield from _to_move_on(app, row, memo)), status=row.status)


def _to_move_on(app: AppCore, row: RunRow, memo: Memo) -> Acts[Claimed | None]:
    """The run, if it can be moved on here; else a child it waits for that can be."""
    if app.known(row.workflow) is None:
        return None
    if row.status == READY or (row.status in AT_WORK and not (yield from is_held(app, row))):
        return (yield from claim(app, row.run_id))
    if row.status != WAITING:
        return None
    if memo.get(row.run_id, (0, []))[0] != row.position:
        past = yield lambda: past_of(app.core, row)
        children = record_of(past.entries).children
        memo[row.run_id] = row.position, [name for name, entry in children.items() if not entry["detached"]]
    for child in memo[row.run_id][1]:
        found = yield lambda child=child: app.core.port.run(child)
        claimed = (yield from _to_move_on(app, check_run(found), memo)) if found is not None else None
        if claimed is not None:
            return claimed
    return None


def until_of(timeout: float | None) -> float | None:
    """When a wait is to end, on the monotonic clock."""
    return None if timeout is None else time.monotonic() + seconds_us("timeout", timeout) / US


def next_look_s(looks: int) -> float:
    """How long to wait: short at first, then at leisure."""
    return min(_LATER_LOOKS_S, _FIRST_LOOK_S * 1.5 ** min(looks, 30))


def not_finished(
    app: AppCore, run_id: str, status: str, timeout: float | None, *, only_wait: bool
) -> Acts[NotFinished]:
    """The error of a wait that was too long: what the run waits for, and whether a living worker knows its workflow."""
    detail = f" after {timeout:g} s"
    row: RunRow = yield from outside.known_run(app, run_id)
    found: dict[str, tuple[str, ...]] | None = yield app.core.port.workers
    if found is not None and (only_wait or app.known(row.workflow) is None):
        knowing = [owner for owner, names in found.items() if row.workflow in names]
        if knowing:
            detail += f"; worker {knowing[0]!r} knows workflow {row.workflow!r}"
        else:
            detail += f"; no living worker knows workflow {row.workflow!r}: start one with `holdfast worker`"
    waits: str = yield lambda: describe_waits(app, row)
    return NotFinished(run_id, status, detail + (waits and f"; it {waits}"))


class Handle(Generic[R]):
    """One run, by its id, with the type of its result. `app.start` and `app.handle` give one.

    Example:
        handle = app.handle("order-17")
        handle.status(), handle.gates()
    """

    def __init__(self, app: App, run_id: str, *, only_wait: bool = False) -> None:
        self._app = app
        self._only_wait = only_wait
        self.run_id = run_id

    def info(self) -> RunInfo:
        """The run's facts.

        Example:
            handle.info().workflow
        """
        core = self._app._core
        return run_info(self._app._run("info", outside.known_run(core, self.run_id)))

    def status(self) -> str:
        """Where the run stands.

        Example:
            handle.status()
        """
        return self.info().status

    def gates(self) -> list[GateInfo]:
        """Its open gates.

        Example:
            handle.gates()
        """
        return self._app.gates(self.run_id)

    def result(self, timeout: float | None = None) -> R:
        """Wait until the run has ended and return its result.

        A handle of `app.handle(…)`, or of a verb that moved the run on here, keeps moving it on whenever it is ready,
        so that no worker is needed. A handle of a verb with `enqueue=True` only waits: a worker moves the run on.
        Raises RunFailed, RunCancelled, or NotFinished after `timeout` seconds, which says what the run waits for and
        whether a living worker knows the workflow.

        Example:
            app.answer("order-17", {"approve": True}).result(timeout=5)
        """
        until = until_of(timeout)
        looks, memo = 0, Memo()
        while True:
            found = self._app._run("result", look(self._app._core, self.run_id, memo, only_wait=self._only_wait))
            if found.ended:
                result: R = found.result
                return result
            if found.claimed is not None:
                self._app._advance(found.claimed)
                looks = 0
                continue
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                late = not_finished(
                    self._app._core, self.run_id, found.status, timeout, only_wait=self._only_wait
                )  # fmt: skip
                raise self._app._run("result", late)
            wait = next_look_s(looks)
            time.sleep(wait if left is None else min(wait, left))
            looks += 1

    def __repr__(self) -> str:
        return f"<run {self.run_id!r}>"
