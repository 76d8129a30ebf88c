"""Finds what must be announced.

The store is the only source of truth: an open gate or a failed run without a notification is what is left to do. What
a scanner remembers only saves reads, so it may be lost, and any number of scanners may work on one store.

A step of the scanner reads the newest gates and failures, the gates for which a time has come, and the next pages of a
sweep over everything that is open or failed. The sweep finds what the other reads cannot: gates that were reassigned or
committed late, and failures of old runs. It begins again after `SWEEP_S` seconds, or later if it took
long.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.clock import US
from holdfast.errors import DamagedData
from holdfast.model.rows import FAILED, GateRow, RunRow
from holdfast.notifications.composer import read_failure
from holdfast.notifications.events import NEVER_US, WORKFLOW, Event, gate_events
from holdfast.operations.gates import gate_info
from holdfast.store.checksum import verify_run
from holdfast.store.port import RunQuery

if TYPE_CHECKING:
    from holdfast.operations.store import Store

_log: Final = logging.getLogger("holdfast.notifications")
GATES_PAGE: Final = 200
RUNS_PAGE: Final = 500
NEWEST: Final = 100
"""How many of the newest failed runs are read in each step."""
SWEEP_S: Final = 30.0
OVERLAP_US: Final = 5 * US
"""Gates of the last seconds are read again: they may be committed in another order than they were opened in."""
PAUSES: Final = 20
BUDGET_S: Final = 0.2
"""How long each sweep goes on reading pages in one step."""

Announce = Callable[[Event, str], int]
"""Starts the notifications of an event of a workflow, one for each target; returns how many were started."""


class Due(NamedTuple):
    """When the next event of a gate happens."""

    at_us: int
    run_id: str
    gate: str


class Memory:
    """What was seen since the last sweep began, or in the one before. The rest is forgotten."""

    def __init__(self) -> None:
        self._now: dict[object, object] = {}
        self._before: dict[object, object] = {}

    def is_known(self, key: object, mark: object) -> bool:
        """Whether it was remembered with this mark."""
        known = mark in (self._now.get(key), self._before.get(key))
        if known:
            self._now[key] = mark
        return known

    def remember(self, key: object, mark: object) -> None:
        """Remember it until it is not seen for a whole sweep."""
        self._now[key] = mark

    def turn(self) -> None:
        """A sweep has ended: forget what was not seen in it."""
        self._now, self._before = {}, self._now


class Sweep:
    """Reads everything of one kind page by page, and begins again after a while.

    The pause is at least `PAUSES` times as long as the reading took, so a large store is not read all the time.
    """

    def __init__(self, pages: Callable[[], Iterator[int]], pause_s: float = SWEEP_S) -> None:
        self._pages = pages
        self._pause_s = pause_s
        self._left: Iterator[int] | None = None
        self._worked_s = 0.0
        self._begins_at = float("-inf")

    def advance(self, budget_s: float = BUDGET_S) -> int:
        """Read pages for this time, at least one; return the sum of what they yield."""
        began_at = time.monotonic()
        if self._left is None:
            if began_at < self._begins_at:
                return 0
            self._left, self._worked_s, self._begins_at = self._pages(), 0.0, float("-inf")
        count = 0
        try:
            for found in self._left:
                count += found
                if time.monotonic() >= began_at + budget_s:
                    self._worked_s += time.monotonic() - began_at
                    return count
        except BaseException:
            self._left = None  # begin again at once
            raise
        self._worked_s += time.monotonic() - began_at
        self._left, self._begins_at = None, time.monotonic() + max(self._pause_s, PAUSES * self._worked_s)
        return count


class Scanner:
    """Reads a store step by step and announces what happened.

    `failed_since_us` returns from when on failures are announced; None: they are not.
    """

    def __init__(
        self,
        store: Store,
        announce: Announce,
        *,
        lead_us: int,
        watch_gates: bool,
        failed_since_us: Callable[[], int | None],
        sweep_s: float = SWEEP_S,
    ) -> None:
        self._core = store.access.core
        self._announce = announce
        self._lead_us = lead_us
        self._watch_gates = watch_gates
        self._failed_since_us = failed_since_us
        self._gates, self._failures = Memory(), Memory()
        self._due: list[Due] = []
        self._newest_us = self._core.clock.now_us()
        self._sweeps = Sweep(self._gate_pages, sweep_s), Sweep(self._failure_pages, sweep_s)

    def step(self) -> int:
        """Read a part of the store; return how many notifications were started."""
        count = self._read_newest_gates() + self._read_due_gates() + self._read_newest_failures()
        return count + sum(sweep.advance() for sweep in self._sweeps)

    def read_all(self) -> int:
        """Read everything that is open or failed; return how many notifications were started."""
        return sum(self._gate_pages()) + sum(self._failure_pages()) + self._read_due_gates()

    # --- gates -------------------------------------------------------------------------------------------------------

    def _gate_pages(self) -> Iterator[int]:
        place: tuple[int, int, str] | None = None
        while self._watch_gates:
            found = self._core.port.gates("open", GATES_PAGE, place)
            yield sum(self._check_gate(run, row) for run, row in found)
            if len(found) < GATES_PAGE:
                break
            run, row = found[-1]
            place = row.opened_us, run.run, row.gate
        self._gates.turn()

    def _read_newest_gates(self) -> int:
        count, place = 0, (self._newest_us - OVERLAP_US, 0, "")
        while self._watch_gates:
            found = self._core.port.gates("open", GATES_PAGE, place)
            count += sum(self._check_gate(run, row) for run, row in found)
            if found:
                run, row = found[-1]
                place = row.opened_us, run.run, row.gate
                # The clock of the process that opened it may be ahead; others that follow must be found, too.
                self._newest_us = min(max(self._newest_us, row.opened_us), self._core.clock.now_us())
            if len(found) < GATES_PAGE:
                break
        return count

    def _read_due_gates(self) -> int:
        """Read the gates again for which a time has come."""
        count = 0
        while self._due and self._due[0].at_us <= self._core.clock.now_us():
            due = self._due[0]
            run = self._core.port.run(due.run_id)
            for row in self._core.port.rows(GateRow, run.run) if run is not None else []:
                if run is not None and row.gate == due.gate and row.state == "open":
                    count += self._announce_gate(run, row)
            heapq.heappop(self._due)  # not before it was announced; what was pushed meanwhile is due later
        return count

    def _check_gate(self, run: RunRow, row: GateRow) -> int:
        if self._gates.is_known((run.run, row.gate), row.seal):
            return 0
        return self._announce_gate(run, row)

    def _announce_gate(self, run: RunRow, row: GateRow) -> int:
        """Announce what has happened to an open gate, and remember when more will."""
        count, now_us = 0, self._core.clock.now_us()
        if run.workflow != WORKFLOW:
            try:
                found = gate_events(run, row, gate_info(run, row, now_us), now_us, self._lead_us)
            except DamagedData as error:
                _log.warning("gate %r of run %r cannot be announced: %s", row.gate, run.run_id, error)
            else:
                count = sum(self._announce(event, run.workflow) for event in found.happened)
                if found.next_us < NEVER_US:
                    heapq.heappush(self._due, Due(found.next_us, run.run_id, row.gate))
        self._gates.remember((run.run, row.gate), row.seal)
        return count

    # --- failures ----------------------------------------------------------------------------------------------------

    def _failure_pages(self) -> Iterator[int]:
        before: int | None = None
        while (since_us := self._failed_since_us()) is not None:
            found = self._core.port.runs(RunQuery((FAILED,), before=before, limit=RUNS_PAGE))
            yield sum(self._check_failure(run, since_us) for run in found)
            if len(found) < RUNS_PAGE:
                break
            before = found[-1].run
        self._failures.turn()

    def _read_newest_failures(self) -> int:
        since_us = self._failed_since_us()
        if since_us is None:
            return 0
        found = self._core.port.runs(RunQuery((FAILED,), limit=NEWEST))
        return sum(self._check_failure(run, since_us) for run in found)

    def _check_failure(self, run: RunRow, since_us: int) -> int:
        if run.updated_us < since_us or run.workflow == WORKFLOW:
            return 0
        if self._failures.is_known(run.run, run.commit_id):
            return 0
        count = 0
        try:
            event = read_failure(self._core.port, verify_run(run))
        except DamagedData as error:
            _log.warning("the failure of run %r cannot be announced: %s", run.run_id, error)
        else:
            count = self._announce(event, run.workflow) if event.at_us >= since_us else 0
        self._failures.remember(run.run, run.commit_id)
        return count
