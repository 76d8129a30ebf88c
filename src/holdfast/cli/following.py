"""Follow a run in the terminal: say what it does, ask its questions, and stop where nobody can go on here."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli import exits
from holdfast.cli.acting import answering
from holdfast.cli.asking import ask_gate
from holdfast.cli.naming import open_gates
from holdfast.cli.narrating import Narrator
from holdfast.cli.output import duration, one_line, plain
from holdfast.errors import (
    AlreadyAnswered,
    GateClosed,
    HoldfastError,
    NotFinished,
    RunCancelled,
    RunClaimed,
    RunEnded,
    RunFailed,
)
from holdfast.model.status import AT_WORK, PAUSED, READY, TERMINAL, WAITING

if TYPE_CHECKING:
    from holdfast.cli.session import Session
    from holdfast.model.gates import GateInfo

_SLICE_S: Final = 0.5
_LOOK_S: Final = 0.2


class Following:
    """One run, followed until it ends, waits for somebody who is not here, or is left."""

    def __init__(self, session: Session, run_id: str, *, by: str | None, wait_s: float) -> None:
        self.session = session
        self.app = session.app()
        self.handle = self.app.handle(run_id)
        self.run_id = run_id
        self.by = by
        self.wait_s = wait_s
        position = self.handle.info().position
        self._told = position if position > 1 else 0  # what it did before this command took it up is not told again
        self._narrator = Narrator()

    def to_its_rest(self) -> int:
        """Follow the run; gives the exit code."""
        while True:
            status = self.handle.status()
            if status in TERMINAL:
                return self._ended()
            if status in (READY, *AT_WORK):
                if not self._moved():
                    return self._left(exits.OK, self.handle.status(), self._gates())
                continue
            gates = self._gates()
            if gates and self.session.out.can_ask:
                self._ask(gates[0])
            elif gates:
                return self._left(exits.WAITING, status, gates)
            elif not self._waited(status):
                return self._left(exits.OK, status, [])

    def _moved(self) -> bool:
        """Move the run on here, or wait for who is at it. Whether to look again."""
        try:
            self._watched(lambda: self.app.resume(self.run_id))
        except RunEnded:
            return True
        except RunClaimed:
            until = time.monotonic() + self.wait_s
            while self.handle.status() in AT_WORK and time.monotonic() < until:
                time.sleep(_LOOK_S)
                self._tell_progress()
            return self.handle.status() not in AT_WORK
        return True

    def _watched(self, work: Callable[[], Any]) -> None:
        """Do something that moves the run on, and tell meanwhile what it does."""
        over = threading.Event()

        def watch() -> None:
            with contextlib.suppress(HoldfastError):  # what is wrong with the store is told by who does the work
                while not over.wait(_LOOK_S):
                    self._tell_progress()

        watcher = threading.Thread(target=watch, name="holdfast-watch", daemon=True)
        watcher.start()
        try:
            work()
        finally:
            over.set()
            watcher.join()
        self._tell_progress()
        self._say_lines(self._narrator.rest())

    def left(self) -> int:
        """Say where the run stands, and leave it; gives the exit code."""
        return self._left(exits.OK, self.handle.status(), self._gates())

    # --- going on ----------------------------------------------------------------------------------------------------

    def _gates(self) -> list[GateInfo]:
        """The open questions of the run and of the runs inside it."""
        return open_gates(self.app, self.run_id)

    def _ask(self, gate: GateInfo) -> None:
        answer = ask_gate(self.session, gate)
        try:
            self._watched(lambda: self.app.answer(gate.run_id, answer, by=self.by, gate=gate.gate))
        except (AlreadyAnswered, GateClosed) as late:
            self.session.out.note(f"  {late}")

    def _waited(self, status: str) -> bool:
        """Wait for a timer that is due soon; at a breakpoint, ask whether to go on. Whether to look again."""
        stopped = self._at_breakpoints()
        if stopped and self.session.out.can_ask:
            run_id, why = stopped[0]
            self.session.how_to_go_on = f"The run is paused: holdfast resume {quote(run_id)}"
            if self.session.out.confirm(f"Paused: {why}. Go on?", yes=False):
                self._watched(lambda: self.app.resume(run_id))
                return True
            return False
        due_s = self._due_s() if status == WAITING else None
        if due_s is None or due_s > self.wait_s:
            return False
        self.session.how_to_go_on = f"The run waits: holdfast resume {quote(self.run_id)}"
        with contextlib.suppress(NotFinished, RunFailed, RunCancelled):
            self._watched(lambda: self.handle.result(min(_SLICE_S, max(0.01, due_s))))
        self._tell_progress()
        return True

    def _due_s(self) -> float | None:
        """How long until something of this run is due; None if nothing is."""
        core = self.app._core.core
        found = [core.port.run(run_id) for run_id in (self.run_id, *self._inside("waiting"))]
        due = [timer.due_us for row in found if row is not None for timer in core.port.timers(row.run)]
        return (min(due) - core.clock.now_us()) / 1e6 if due else None

    def _inside(self, status: str) -> list[str]:
        """The runs inside it that have this status."""
        return [info.run_id for info in self.app.runs(prefix=f"{self.run_id}/", status=status, limit=100)]

    def _at_breakpoints(self) -> list[tuple[str, str]]:
        """Runs, this one or inside it, that have paused themselves, and why."""
        found = []
        for run_id in (self.run_id, *self._inside(PAUSED)):
            info = self.app.handle(run_id).info()
            entries = self.app.store.journal(run_id, after=max(0, info.position - 1))
            if info.status == PAUSED and entries and entries[-1].kind == "breakpoint":
                found.append((run_id, str(entries[-1].data.get("message", ""))))
        return found

    # --- saying ------------------------------------------------------------------------------------------------------

    def _tell_progress(self) -> None:
        entries = self.app.store.journal(self.run_id, after=self._told)
        if entries:
            self._told = entries[-1].position
            self._say_lines(self._narrator.lines(entries))

    def _say_lines(self, lines: Iterable[str]) -> None:
        if self.session.json:
            return
        for line in lines:
            self.session.say(self.session.out.styled(line, fg="red") if line.startswith("  ✗") else line)
        self.session.out.stream.flush()

    def _facts(self, status: str, gates: list[GateInfo], **more: Any) -> dict[str, Any]:
        info = self.handle.info()
        return {
            "run_id": self.run_id, "workflow": info.workflow, "status": status, "result": None, "error": None,
            "gates": [{"run_id": gate.run_id, "gate": gate.gate, "prompt": gate.prompt} for gate in gates], **more,
        }  # fmt: skip

    def _ended(self) -> int:
        result, error = None, None
        try:
            result = self.handle.result()
        except (RunFailed, RunCancelled) as raised:
            error = raised
        status = self.handle.status()
        if self.session.json:
            self.session.out.give(
                self._facts(status, [], result=plain(result), error=None if error is None else str(error))
            )
        elif error is not None:
            self.session.say(self.session.out.styled(str(error), fg="red"))
            self.session.say(f"  holdfast show {quote(self.run_id)}")
        else:
            self.session.say(f"{self.run_id} is {self.session.out.status(status)}")
            self._show_result(result)
        return exits.OK if error is None else exits.ERROR

    def _show_result(self, result: Any) -> None:
        import json

        if result is not None:
            text = result if isinstance(result, str) else json.dumps(plain(result), ensure_ascii=False, indent=2)
            self.session.say(text)

    def _left(self, code: int, status: str, gates: list[GateInfo]) -> int:
        if self.session.json:
            self.session.out.give(self._facts(status, gates))
            return code
        self.session.say(f"{self.run_id} is {self.session.out.status(status)}")
        for gate in gates:
            self.session.say(f"waits for an answer: {one_line(gate.prompt)}")
            self.session.say(one_line(f"  {answering(gate, among=gates)}"))
        for run_id, why in self._at_breakpoints():
            self.session.say(f"{one_line(why)}; go on with: holdfast resume {quote(run_id)}")
        if not gates and not self._at_breakpoints():
            self.session.say(self._why_left(status))
        return code

    def _why_left(self, status: str) -> str:
        """Why nobody can go on with it here now."""
        info = self.handle.info()
        if status in AT_WORK:
            return f"{info.owner or 'somebody'} is at it; holdfast show {quote(self.run_id)}"
        if status != WAITING:
            return f"go on with: holdfast resume {quote(self.run_id)}"
        due_s = self._due_s()
        when = f"goes on in {duration(max(0.0, due_s))}" if due_s is not None else "waits for an event"
        return f"{when}; then: holdfast resume {quote(self.run_id)}"
