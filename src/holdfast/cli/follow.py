"""Follow a run in the terminal: print its progress and ask its questions.

Following stops when the run ends, or when this process cannot advance it.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from shlex import quote
from typing import TYPE_CHECKING, Final

from holdfast import errors
from holdfast.cli import exit_codes
from holdfast.cli.output import duration, one_line, plain
from holdfast.cli.prompts import ask_gate
from holdfast.cli.run_args import gate_facts
from holdfast.cli.run_reads import answer_line, open_gates
from holdfast.ids import display_name
from holdfast.model.rows import AT_WORK, PAUSED, READY, TERMINAL, WAITING, TimerRow

if TYPE_CHECKING:
    from holdfast.cli.session import Session
    from holdfast.engine.commands import EntryData
    from holdfast.model.views import Entry, GateInfo


_SLICE_S: Final = 0.5
_POLL_S: Final = 0.2


class Following:
    """Follows one run until it ends or this process cannot advance it."""

    def __init__(self, session: Session, run_id: str, *, by: str | None, wait_s: float) -> None:
        self.session = session
        self.app = session.app()
        self.handle = self.app.handle(run_id)
        self.run_id = run_id
        self.by = by
        self.wait_s = wait_s
        position = self.handle.info().position
        self._printed = position if position > 1 else 0  # entries from before this command are not printed
        self._narrator = Narrator()

    def until_blocked(self) -> int:
        """Follow the run and return the exit code."""
        while True:
            status = self.handle.status()
            if status in TERMINAL:
                return self._ended()
            if status in (READY, *AT_WORK):
                if not self._advance():
                    return self._report(exit_codes.OK, self.handle.status(), self._gates())
                continue
            gates = self._gates()
            if gates and self.session.out.can_ask:
                self._ask(gates[0])
            elif gates:
                return self._report(exit_codes.WAITING, status, gates)
            elif not self._wait(status):
                return self._report(exit_codes.OK, status, [])

    def _advance(self) -> bool:
        """Execute the run here, or wait for its owner. Return False if another process still executes it."""
        try:
            self._watch(lambda: self.app.resume(self.run_id))
        except errors.RunEnded:
            return True
        except errors.RunClaimed:
            until = time.monotonic() + self.wait_s
            while self.handle.status() in AT_WORK and time.monotonic() < until:
                time.sleep(_POLL_S)
                self._print_progress()
            return self.handle.status() not in AT_WORK
        return True

    def _watch(self, work: Callable[[], object]) -> None:
        """Do work that advances the run, and print its progress meanwhile."""
        over = threading.Event()

        def watch() -> None:
            with contextlib.suppress(errors.HoldfastError):  # `work` raises the errors of the store
                while not over.wait(_POLL_S):
                    self._print_progress()

        watcher = threading.Thread(target=watch, name="holdfast-watch", daemon=True)
        watcher.start()
        try:
            work()
        finally:
            over.set()
            watcher.join()
        self._print_progress()
        self._print_lines(self._narrator.rest())

    def report(self) -> int:
        """Print the status of the run without executing it, and return the exit code."""
        return self._report(exit_codes.OK, self.handle.status(), self._gates())

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _gates(self) -> list[GateInfo]:
        """Return the open gates of the run and of its children."""
        return open_gates(self.app.store, self.run_id)

    def _ask(self, gate: GateInfo) -> None:
        answer = ask_gate(self.session, gate)
        try:
            self._watch(lambda: self.app.answer(gate.run_id, answer, by=self.by, gate=gate.gate, via="cli"))
        except (errors.AlreadyAnswered, errors.GateClosed) as late:
            self.session.out.note(f"  {late}")

    def _wait(self, status: str) -> bool:
        """Wait for a timer that is due soon; at a breakpoint, ask whether to continue. Return False to stop here."""
        stopped = self._at_breakpoints()
        if stopped and self.session.out.can_ask:
            run_id, why = stopped[0]
            self.session.how_to_continue = f"The run is paused; continue it with: holdfast resume {quote(run_id)}"
            if self.session.out.confirm(f"Paused: {why}. Continue?", yes=False):
                self._watch(lambda: self.app.resume(run_id))
                return True
            return False
        due_s = self._due_s() if status == WAITING else None
        if due_s is None or due_s > self.wait_s:
            return False
        self.session.how_to_continue = f"The run is waiting; continue it with: holdfast resume {quote(self.run_id)}"
        with contextlib.suppress(errors.NotFinished, errors.RunFailed, errors.RunCancelled):
            self._watch(lambda: self.handle.result(min(_SLICE_S, max(0.01, due_s))))
        return True

    def _due_s(self) -> float | None:
        """Return the seconds until the next timer of this run or of its children; None without one."""
        core = self.app.store.access.core
        found = [core.port.run(run_id) for run_id in (self.run_id, *self._children("waiting"))]
        due = [timer.due_us for row in found if row is not None for timer in core.port.rows(TimerRow, row.run)]
        return (min(due) - core.clock.now_us()) / 1e6 if due else None

    def _children(self, status: str) -> list[str]:
        """Return the child runs that have this status."""
        return [info.run_id for info in self.app.runs(prefix=f"{self.run_id}/", status=status, limit=100)]

    def _at_breakpoints(self) -> list[tuple[str, str]]:
        """Return the runs, this one or its children, that are paused at a breakpoint, with its message."""
        found = []
        for run_id in (self.run_id, *self._children(PAUSED)):
            info = self.app.handle(run_id).info()
            entries = self.app.store.journal(run_id, after=max(0, info.position - 1))
            if info.status == PAUSED and entries and entries[-1].kind == "breakpoint":
                found.append((run_id, str(entries[-1].data.get("message", ""))))
        return found

    # --- printing ----------------------------------------------------------------------------------------------------

    def _print_progress(self) -> None:
        entries = self.app.store.journal(self.run_id, after=self._printed)
        if entries:
            self._printed = entries[-1].position
            self._print_lines(self._narrator.lines(entries))

    def _print_lines(self, lines: Iterable[str]) -> None:
        if self.session.json:
            return
        for line in lines:
            self.session.say(self.session.out.styled(line, fg="red") if line.startswith("  ✗") else line)
        self.session.out.stream.flush()

    def _facts(
        self, status: str, gates: list[GateInfo], result: object = None, error: errors.HoldfastError | None = None
    ) -> dict[str, object]:
        return {
            "run_id": self.run_id,
            "workflow": self.handle.info().workflow,
            "status": status,
            "result": plain(result),
            "error": None if error is None else str(error),
            "gates": gate_facts(gates),
        }

    def _ended(self) -> int:
        result, error = None, None
        try:
            result = self.handle.result()
        except (errors.RunFailed, errors.RunCancelled) as raised:
            error = raised
        status = self.handle.status()
        if self.session.json:
            self.session.out.give(self._facts(status, [], result, error))
        elif error is not None:
            self.session.say(self.session.out.styled(str(error), fg="red"))
            self.session.say(f"  holdfast show {quote(self.run_id)}")
        else:
            self.session.say(f"{self.run_id} is {self.session.out.status(status)}")
            self._print_result(result)
        return exit_codes.OK if error is None else exit_codes.ERROR

    def _print_result(self, result: object) -> None:
        import json

        if result is not None:
            text = result if isinstance(result, str) else json.dumps(plain(result), ensure_ascii=False, indent=2)
            self.session.say(text)

    def _report(self, code: int, status: str, gates: list[GateInfo]) -> int:
        if self.session.json:
            self.session.out.give(self._facts(status, gates))
            return code
        self.session.say(f"{self.run_id} is {self.session.out.status(status)}")
        for gate in gates:
            self.session.say(f"waits for an answer: {one_line(gate.prompt)}")
            self.session.say(one_line(f"  {answer_line(gate, among=gates)}"))
        stopped = self._at_breakpoints()
        for run_id, why in stopped:
            self.session.say(f"{one_line(why)}; continue with: holdfast resume {quote(run_id)}")
        if not gates and not stopped:
            self.session.say(self._next_command(status))
        return code

    def _next_command(self, status: str) -> str:
        """Describe why this process cannot advance the run, with the command that comes next."""
        info = self.handle.info()
        if status in AT_WORK:
            return f"{info.owner or 'another process'} is executing it; holdfast show {quote(self.run_id)}"
        if status != WAITING:
            return f"continue with: holdfast resume {quote(self.run_id)}"
        due_s = self._due_s()
        when = f"a timer is due in {duration(max(0.0, due_s))}" if due_s is not None else "waits for an event"
        return f"{when}; then: holdfast resume {quote(self.run_id)}"


_BRANCH: Final = re.compile(r"(^|/)(gather|map)#\d+\[")
_ENDED: Final = ("step", "outcome", "answered", "received", "child_ended")


class Narrator:
    """Turns journal entries into progress lines, one for each call that has ended.

    The branches of a map or gather are summed up in one line at their end, followed by their failures.
    """

    def __init__(self) -> None:
        self._done: dict[str, list[int]] = {}
        self._failed: list[str] = []

    def lines(self, entries: Iterable[Entry]) -> Iterator[str]:
        """Return the lines for the next entries."""
        for entry in entries:
            if _BRANCH.search(entry.data.get("in", "")):
                self._count(entry)
                continue
            if "call" not in entry.data:
                yield from self.rest()
            line = _line(entry)
            if line:
                yield line

    def rest(self) -> Iterator[str]:
        """Return the lines for branches that were not summed up yet."""
        for name, (good, bad) in self._done.items():
            yield f"  ✓ {name}  {good} done" + (f", {bad} failed" if bad else "")
        yield from self._failed
        self._done.clear()
        self._failed.clear()

    def _count(self, entry: Entry) -> None:
        if entry.kind not in _ENDED:
            return
        name = _name(entry.data)
        self._done.setdefault(name, [0, 0])["error" in entry.data] += 1
        if "error" in entry.data:
            self._failed.append(f"  ✗ {name}: {_error(entry.data)}")


def _line(entry: Entry) -> str:
    """Return the progress line of an entry; empty for entries that only the engine needs."""
    data = entry.data
    name = _name(data)
    if entry.kind == "attempt":
        return f"  … {name}: {_error(data)}; will be retried"
    if entry.kind == "rolled_back":
        return f"  ↩ {'retried' if data.get('retry') is True else 'rolled back'} by {data.get('by', '')}"
    if entry.kind == "undone" and "call" in data:
        return f"  ↩ undone: {display_name(data['key'])}"
    if entry.kind == "undo_failed" and "call" in data:
        return f"  ✗ not undone: {display_name(data['key'])}: {_error(data)}"
    if entry.kind not in _ENDED:
        return ""
    if "error" in data:
        return f"  ✗ {name}: {_error(data)}"
    took = f"  {duration(data['us'] / 1e6)}" if data.get("us", 0) >= 1000 else ""
    by = f"  by {data['by']}" if entry.kind == "answered" and data.get("by") else ""
    return f"  ✓ {name}{by}{took}"


def _name(data: EntryData) -> str:
    call = str(data.get("call", ""))
    return call.rpartition("#")[0] or call


def _error(data: EntryData) -> str:
    error = data.get("error") or {}
    return one_line(f"{error.get('type', '')}: {error.get('message', '')}")
