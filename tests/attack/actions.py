"""What is done to runs from outside: an action is data, drawn from a seed or written down by an earlier execution.

A drawn action names its target by a number between 0 and 1; carrying it out settles the run, the gate, the position.
The settled action is kept, so that it can be repeated exactly, also after others were removed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import holdfast
from holdfast.ids import full_name
from holdfast.model.rows import EffectRow, RunRow
from holdfast.operations.views import decode_body
from tests.attack.deployment import Place, Process, root_of
from tests.attack.generator import Action
from tests.attack.program import answer_of, value_of

if TYPE_CHECKING:
    from tests.attack.attack import Attack


def enqueued(verb: Callable[..., Any], action: Action) -> dict[str, Any]:
    """The argument with which a verb only commits and leaves the run to a worker."""
    if not action.get("enqueue"):
        return {}
    return {"enqueue": True} if "enqueue" in inspect.signature(verb).parameters else {"here": False}


def pick(found: list[Any], chance: float) -> Any:
    """One of a list."""
    return found[min(int(chance * len(found)), len(found) - 1)]


class Actions:
    """Carries out actions of one attack."""

    def __init__(self, attack: Attack) -> None:
        self._attack = attack
        self._last: dict[str, int | str] = {}
        """Where the last rollback or fork of a run went."""

    def settle(self, action: Action) -> Action | None:
        """The action with its run, gate and place settled; None if there is nothing to do it to."""
        if action["do"] in ("tick", "restart", "work"):
            return action
        attack = self._attack
        if not isinstance(action["run"], str):
            rows = attack.all_rows()
            if action["do"] == "delete":
                rows = [(place, row) for place, row in rows if row.run_id in attack.detached_and_over()]
            if not rows:
                return None
            place, row = pick(rows, action["run"])
            action = {**action, "run": row.run_id.removeprefix(attack.prefix)}
        found = attack.find(action["run"])
        if found is None:
            return None
        place, row = found
        for name in ("to", "covering"):
            if isinstance(action.get(name), (list, float)):
                action = {**action, name: self._position(place, row, action[name])}
        if "to" in action:
            self._last[row.run_id] = action["to"]
        return action

    def _position(self, place: Place, row: RunRow, chosen: Any) -> int | str:
        kind, chance = chosen if isinstance(chosen, list) else ("position", chosen)
        if kind == "oldest":
            return 1 + int(chance * 3)
        if kind == "again" and row.run_id in self._last:
            return self._last[row.run_id]
        if kind == "recent":
            return max(1, row.position - int(chance * 4))
        if kind == "checkpoint":
            ids = [info.checkpoint_id for info in place.onlooker.history(row.run_id)]
            if ids:
                return str(pick(ids, chance))
        if kind == "call":
            entries = place.onlooker.journal(row.run_id)
            calls = [full_name(e.data.get("in", ""), e.data["call"]) for e in entries if "call" in e.data]
            if calls:
                return str(pick(list(dict.fromkeys(calls)), chance))
        return 1 + int(chance * row.position)

    # --- carrying out ------------------------------------------------------------------------------------------------

    def touched(self, action: Action) -> set[str]:
        """The roots that the action may change."""
        do = action["do"]
        if do in ("tick", "restart", "work"):
            return {"*"}
        inner = action.get("meanwhile", [0, None])[1]
        found = set() if do in ("fork", "copy", "move", "prune") else {root_of(action["run"])}
        return found | {self._new_root(action)} | (self.touched(inner) if inner and "run" in inner else set())

    def _new_root(self, action: Action) -> str:
        return f"{action['do'][0]}{action['id']}"

    def carry_out(self, action: Action, process: Process) -> None:
        """Do it; whatever the API raises is raised."""
        attack, do = self._attack, action["do"]
        if do == "tick":
            attack.clock.advance(action["s"])
            process.place.reap(action["by"])
            return
        if do == "work":
            process.app.worker(concurrency=1).run(until_idle=True)
            return
        if do == "restart":
            process.place.replace(action["by"])
            return
        run_id = attack.prefix + action["run"]
        getattr(self, f"_{do}")(action, process, run_id)

    def _answer(self, action: Action, process: Process, run_id: str) -> None:
        app = process.app
        gates = app.gates(run_id)
        if gates:
            gate = pick(gates, action["pick"])
            value = self._truth(process.place, run_id, gate)
            app.answer(run_id, value, by="ana", gate=gate.gate, **enqueued(app.answer, action))
        else:
            app.answer(run_id, {"yes": True}, by="ana", **enqueued(app.answer, action))

    def _truth(self, place: Place, run_id: str, gate: Any) -> dict[str, Any]:
        """The answer to a gate: what its node says, or what became of an effect in doubt."""
        if gate.purpose != "in_doubt":
            return {"yes": answer_of(int(gate.prompt.removeprefix("ask ")))}
        row = place.onlooker.port.run(run_id)
        assert row is not None
        line = next(line for line in place.onlooker.port.rows(EffectRow, row.run) if line.key == gate.show["key"])
        token = decode_body(line.call, "an effect")["token"]
        if self._attack.world.net(token) > 0:
            return {"outcome": "happened", "result": {"token": token}}
        return {"outcome": "did not happen"}

    def answer_all(self, process: Process, run_id: str) -> None:
        """Answer every open gate of a run that has not expired."""
        for gate in process.app.gates(run_id):
            if gate.expires_at is None or gate.expires_at.timestamp() * 1e6 > self._attack.clock.now_us():
                value = self._truth(process.place, run_id, gate)
                process.app.answer(run_id, value, by="ana", gate=gate.gate)

    def _send(self, action: Action, process: Process, run_id: str) -> None:
        """Send an event the run may wait for some time; those that are awaited once have a key."""
        events = self._attack.events_of(run_id)
        if events:
            self.send_event(process, run_id, pick(events, action.get("pick", 0.5)), action)

    def send_event(self, process: Process, run_id: str, event: str, action: Action) -> None:
        """Send an event, under its key if it has one."""
        key = None if event in self._attack.repeated_events else f"key of {event}"
        app = process.app
        app.send(run_id, event, value_of(event), by="ana", key=key, **enqueued(app.send, action))
        if key is not None:
            self._attack.sent.add((run_id, event))

    def _pause(self, action: Action, process: Process, run_id: str) -> None:
        process.app.pause(run_id, by="ana", **enqueued(process.app.pause, action))

    def _resume(self, action: Action, process: Process, run_id: str) -> None:
        process.app.resume(run_id, **enqueued(process.app.resume, action))

    def _cancel(self, action: Action, process: Process, run_id: str) -> None:
        self._attack.cancels = True
        process.app.cancel(run_id, by="ana", **enqueued(process.app.cancel, action))

    def _retry(self, action: Action, process: Process, run_id: str) -> None:
        process.app.retry(run_id, **enqueued(process.app.retry, action))

    def _rollback(self, action: Action, process: Process, run_id: str) -> None:
        app, force = process.app, bool(action.get("force"))
        self._attack.note_rollback(run_id, force=force)
        app.rollback(run_id, to=action["to"], by="ana", force=force, **enqueued(app.rollback, action))

    def _fork(self, action: Action, process: Process, run_id: str) -> None:
        app, name = process.app, self._new_root(action)
        self._attack.note_branch(name, run_id, action["effects"])
        app.fork(
            run_id, self._attack.prefix + name, at=action["to"], effects=action["effects"], **enqueued(app.fork, action)
        )

    def _copy(self, action: Action, process: Process, run_id: str) -> None:
        name = self._new_root(action)
        self._attack.note_branch(name, run_id, "copy")
        process.store.copy(run_id, self._attack.prefix + name)

    def _move(self, action: Action, process: Process, run_id: str) -> None:
        name = self._new_root(action)
        data = process.store.export_run(run_id)
        place = self._attack.elsewhere() if action["elsewhere"] else process.place
        self._attack.note_branch(name, run_id, "import")
        target = process.store if place is process.place else place.processes[action["by"]].store
        target.import_run(data, run_id=self._attack.prefix + name)

    def _prune(self, action: Action, process: Process, run_id: str) -> None:
        keep = holdfast.Keep(last=action["last"], journal=action["journal"], covering=action.get("covering"))
        found = process.store.prune(run_id, keep)
        if found.damage:
            self._attack.problem("damaged", f"prune of {run_id} found damage: {found.damage}")

    def _delete(self, action: Action, process: Process, run_id: str) -> None:
        process.store.delete(run_id)
