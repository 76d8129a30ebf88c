"""Follow a run in the terminal: say what it does, ask its questions, and stop where nobody can go on here."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli import exits
from holdfast.cli.acting import usage_of
from holdfast.cli.asking import ask_gate
from holdfast.cli.narrating import narrated
from holdfast.cli.output import duration, one_line, plain
from holdfast.errors import AlreadyAnswered, GateClosed, NotFinished, RunCancelled, RunFailed
from holdfast.model.status import PAUSED, TERMINAL

if TYPE_CHECKING:
    from holdfast.cli.session import Session
    from holdfast.model.gates import GateInfo

_SLICE_S: Final = 0.5


class Following:
    """One run, followed until it ends, waits for somebody who is not here, or is left."""

    def __init__(self, session: Session, run_id: str, *, by: str | None, wait_s: float) -> None:
        self.session = session
        self.app = session.app()
        self.handle = self.app.handle(run_id)
        self.run_id = run_id
        self.by = by
        self.wait_s = wait_s
        self._told = 0

    def to_its_rest(self) -> int:
        """Follow the run; gives the exit code."""
        while True:
            self._tell_progress()
            status = self.handle.status()
            if status in TERMINAL:
                return self._ended()
            gates = self._gates()
            if gates and self.session.out.can_ask:
                self._ask(gates[0])
            elif gates:
                return self._left(exits.WAITING, status, gates)
            elif not self._waited(status):
                return self._left(exits.OK, status, [])

    # --- going on ----------------------------------------------------------------------------------------------------

    def _gates(self) -> list[GateInfo]:
        """The open questions of the run and of the runs inside it."""
        return [gate for gate in self.app.gates() if f"{gate.run_id}/".startswith(f"{self.run_id}/")]

    def _ask(self, gate: GateInfo) -> None:
        answer = ask_gate(self.session, gate)
        try:
            self.app.answer(gate.run_id, answer, by=self.by, gate=gate.gate)
        except (AlreadyAnswered, GateClosed) as late:
            self.session.out.note(f"  {late}")

    def _waited(self, status: str) -> bool:
        """Wait for a timer that is due soon; at a breakpoint, ask whether to go on. Whether to look again."""
        if status == PAUSED and self.session.out.can_ask and self._breakpoint():
            self.session.how_to_go_on = f"The run is paused: holdfast resume {self.run_id}"
            if self.session.out.confirm(f"Paused: {self._breakpoint()}. Go on?", yes=False):
                self.app.resume(self.run_id)
                return True
            return False
        due_s = self._due_s()
        if due_s is None or due_s > self.wait_s:
            return False
        self.session.how_to_go_on = f"The run waits: holdfast resume {self.run_id}"
        with contextlib.suppress(NotFinished, RunFailed, RunCancelled):
            self.handle.result(min(_SLICE_S, max(0.01, due_s)))
        return True

    def _due_s(self) -> float | None:
        """How long until something of this run is due; None if nothing is."""
        core = self.app._core.core
        found = [core.port.run(run_id) for run_id in {self.run_id, *self._waiting_inside()}]
        due = [timer.due_us for row in found if row is not None for timer in core.port.timers(row.run)]
        return (min(due) - core.clock.now_us()) / 1e6 if due else None

    def _waiting_inside(self) -> list[str]:
        page = self.app.runs(prefix=f"{self.run_id}/", status="waiting", limit=100)
        return [info.run_id for info in page]

    def _breakpoint(self) -> str:
        """Why the run is paused, if it paused itself."""
        entries = self.app.store.journal(self.run_id, after=max(0, self.handle.info().position - 1))
        return str(entries[-1].data.get("message", "")) if entries and entries[-1].kind == "breakpoint" else ""

    # --- saying ------------------------------------------------------------------------------------------------------

    def _tell_progress(self) -> None:
        entries = self.app.store.journal(self.run_id, after=self._told)
        if entries:
            self._told = entries[-1].position
        if not self.session.json:
            for line in narrated(entries):
                self.session.say(self.session.out.styled(line, fg="red") if line.startswith("  ✗") else line)

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
            self.session.say(f"  holdfast show {self.run_id}")
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
            self.session.say(f"  holdfast answer {gate.run_id} {usage_of(gate, many=len(gates) > 1)}".rstrip())
        if status == PAUSED:
            why = self._breakpoint()
            self.session.say((f"{why}; " if why else "") + f"go on with: holdfast resume {self.run_id}")
        elif not gates:
            due_s = self._due_s()
            self.session.say(f"goes on in {duration(max(0.0, due_s))}" if due_s is not None else "waits for an event")
            self.session.say(f"  holdfast resume {self.run_id}")
        return code


def follow(session: Session, run_id: str, *, by: str | None, wait_s: float) -> int:
    """Follow a run until it rests; gives the exit code."""
    return Following(session, run_id, by=by, wait_s=wait_s).to_its_rest()
