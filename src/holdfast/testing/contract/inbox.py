"""The contract of inbox, gates, timers and outbox.

These are parts of a commit, so the tests use the port.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.clock import US
from holdfast.forms import form_of
from holdfast.model.commit import (
    Guard,
    NewGate,
    NewItem,
    NewMessage,
    Reason,
    TakeClaim,
    Timer,
)
from holdfast.model.rows import (
    AttachmentRow,
    CheckpointRow,
    EffectRow,
    EntryRow,
    GateRow,
    ItemRow,
    MessageRow,
    TimerRow,
)
from holdfast.state.values import pack
from holdfast.store.port import RunRows
from holdfast.testing.contract.base import PortContractBase, Values

_GATE = {"v": 1, "prompt": "?", "form": form_of(bool).as_data(), "show": None, "who": [], "purpose": "ask"}


class InboxContract(PortContractBase):
    """Nothing that is sent to a run is lost, received twice, or missed while it waits."""

    def item(self, key: str, kind: Any = "event", name: str = "shipped", by: str = "ana") -> NewItem:
        return NewItem(kind, name, key, by, b"\x00body")

    def test_items_are_numbered_and_each_key_comes_in_once(self) -> None:
        guard = self.held()
        assert self.done(deliver=(self.item("k1"),)).numbers == (1,)
        assert self.done(deliver=(self.item("k2"),)).numbers == (2,)
        again = self.done(deliver=(self.item("k1"),))
        assert (again.numbers, again.fresh) == ((1,), False)
        items = self.store.port.rows(ItemRow, self.row().run, 0, 10)
        assert [(i.number, i.key, i.name, i.by, i.body) for i in items] == [
            (1, "k1", "shipped", "ana", b"\x00body"),
            (2, "k2", "shipped", "ana", b"\x00body"),
        ]
        self.done(guard=guard, take_items=(1,))
        assert [i.number for i in self.store.port.rows(ItemRow, self.row().run, 0, 10)] == [2]
        assert self.store.port.rows(ItemRow, self.row().run, 2, 10) == []
        assert self.done(deliver=(self.item("k1"),)).numbers == (1,)
        assert [i.number for i in self.store.port.rows(ItemRow, self.row().run, 0, 10)] == [2]

    def test_an_item_wakes_a_waiting_run_and_no_other(self) -> None:
        guard = self.held()
        self.done(guard=guard, status="waiting", release=True, inbox_read=0)
        self.done(deliver=(self.item("k1"),))
        assert self.row().status == "ready"
        for status in ("paused", "running"):
            self.done(guard=Guard(), status=status)
            self.done(deliver=(self.item(f"k-{status}"),))
            assert self.row().status == status

    def test_a_cancellation_wakes_a_paused_run(self) -> None:
        self.done(guard=self.held(), status="paused", release=True)
        self.done(deliver=(self.item("k1", kind="cancel", name="cancel"),))
        assert self.row().status == "ready"

    def test_a_run_that_would_wait_with_an_unread_item_is_ready_instead(self) -> None:
        guard = self.held()
        self.done(deliver=(self.item("k1"),))
        self.done(guard=guard, status="waiting", release=True, inbox_read=0)
        assert self.row().status == "ready"
        self.done(guard=Guard(), status="waiting", inbox_read=1)
        assert self.row().status == "waiting"

    def test_nothing_is_sent_to_what_is_missing_or_has_ended(self) -> None:
        assert self.refused(deliver=(self.item("k1"),)).reason == Reason.NO_RUN
        guard = self.held()
        self.done(guard=guard, status="cancelled", release=True)
        assert self.refused(deliver=(self.item("k1"),)).reason == Reason.ENDED

    def test_a_gate_takes_the_first_answer(self) -> None:
        guard = self.held()
        self.done(guard=guard, gates=(NewGate("approve", b"\x00form"),), status="waiting", release=True, inbox_read=0)
        ((run, gate),) = self.store.port.gates("open", 10)
        assert (run.run_id, gate.gate, gate.body, gate.state) == ("run", "approve", b"\x00form", "open")
        self.clock.advance(5)
        self.done(deliver=(self.item("a1", "answer", "approve"),))
        assert self.row().status == "ready"
        late = self.refused(deliver=(self.item("a2", "answer", "approve", "bob"),))
        assert late.reason == Reason.ANSWERED
        (gate,) = self.store.port.rows(GateRow, self.row().run)
        assert (gate.state, gate.answered_by, gate.answered_us) == ("answered", "ana", self.clock.now_us())
        assert len(self.store.port.rows(ItemRow, self.row().run, 0, 10)) == 1
        assert self.store.port.gates("open", 10) == []

    def test_a_gate_that_expired_was_closed_or_is_unknown_takes_none(self) -> None:
        guard = self.held()
        soon = self.clock.now_us() + 10 * US
        self.done(
            guard=guard, gates=(NewGate("soon", b"x", soon), NewGate("closed", b"x"), NewGate("later", b"x", soon + US))
        )
        assert self.refused(guard=guard, gates=(NewGate("soon", b"x"),)).reason == Reason.GATE_CLOSED
        self.done(guard=guard, close_gates=("closed", "never"))
        assert self.refused(deliver=(self.item("e0", "expiry", "soon"),)).reason == Reason.NOT_EXPIRED
        self.clock.advance(10)
        for name in ("soon", "closed", "unknown"):
            assert self.refused(deliver=(self.item(f"a-{name}", "answer", name),)).reason == Reason.GATE_CLOSED
        for limit in (1, 10, -1):
            assert [gate.gate for _, gate in self.store.port.due(GateRow, limit)] == ["soon"]
        self.done(deliver=(self.item("e1", "expiry", "soon"),))
        assert self.store.port.due(GateRow, 10) == []
        states = {gate.gate: gate.state for gate in self.store.port.rows(GateRow, self.row().run)}
        assert states == {"soon": "expired", "closed": "closed", "later": "open"}
        for keys in (["closed"], ["closed", "later", "never", "soon"], ["never"]):
            known = [gate for gate in self.store.port.rows(GateRow, self.row().run) if gate.gate in keys]
            assert self.store.port.rows(GateRow, self.row().run, keys=keys) == known

    def test_an_answer_that_comes_while_the_run_is_held_is_not_lost(self) -> None:
        guard = self.held()
        self.done(guard=guard, gates=(NewGate("g", b"x"),))
        self.done(deliver=(self.item("a1", "answer", "g"),))
        self.done(guard=guard, status="waiting", release=True, inbox_read=0)
        assert self.row().status == "ready"
        assert [i.key for i in self.store.port.rows(ItemRow, self.row().run, 0, 10)] == ["a1"]

    def test_an_answer_and_a_claim_are_one_commit(self) -> None:
        guard = self.held()
        self.done(guard=guard, gates=(NewGate("g", b"x"),), status="waiting", release=True, inbox_read=0)
        take = TakeClaim("w2", b"m" * 16, 60 * US)
        taken = self.done(guard=Guard(), deliver=(self.item("a1", "answer", "g"),), take=take)
        assert (taken.run.owner, taken.run.status, taken.run.fence) == ("w2", "running", 2)
        assert (
            self.refused(guard=Guard(), deliver=(self.item("a2", "answer", "g"),), take=take).reason == Reason.CLAIMED
        )

    def test_timers_come_due_once(self) -> None:
        guard = self.held()
        due = self.clock.now_us() + 10 * US
        self.done(guard=guard, timers=(Timer("t1", due), Timer("t2", due + US)), status="waiting", release=True)
        assert self.store.port.due(TimerRow, 10) == []
        assert [(t.timer, t.due_us) for t in self.store.port.rows(TimerRow, self.row().run)] == [
            ("t1", due),
            ("t2", due + US),
        ]
        assert self.refused(deliver=(self.item("k1", "timer", "t1"),)).reason == Reason.NOT_EXPIRED
        self.clock.advance(10)
        ((run, timer),) = self.store.port.due(TimerRow, 10)
        assert (run.run_id, timer.timer) == ("run", "t1")
        self.done(deliver=(self.item("k1", "timer", "t1"),))
        assert self.row().status == "ready"
        assert self.store.port.due(TimerRow, 10) == []
        assert self.refused(deliver=(self.item("k2", "timer", "t1"),)).reason == Reason.NOT_EXPIRED
        self.done(guard=Guard(), drop_timers=("t2",))
        assert self.store.port.rows(TimerRow, self.row().run) == []
        self.done(guard=Guard(), timers=(Timer("t3", due),))
        self.done(guard=Guard(), timers=(Timer("t3", due + 99 * US),))
        assert self.store.port.due(TimerRow, 10) == []

    def test_messages_wait_in_the_outbox_until_they_were_delivered(self) -> None:
        guard = self.held()
        messages = tuple(NewMessage("target", "event", "done", f"m{i}", b"x") for i in range(3))
        self.done(guard=guard, send=messages[:2])
        self.clock.advance(1)
        self.done(guard=guard, send=messages[2:])
        found = self.store.port.due(MessageRow, 10)
        assert [(run.run_id, m.number, m.target, m.key) for run, m in found] == [
            ("run", 1, "target", "m0"),
            ("run", 2, "target", "m1"),
            ("run", 3, "target", "m2"),
        ]
        self.done(sent=(2,))
        self.done(sent=(2, 9))
        assert [m.number for _, m in self.store.port.due(MessageRow, 10)] == [1, 3]

    def test_all_of_it_goes_with_the_run(self) -> None:
        guard = self.held()
        due = self.clock.now_us() - US
        self.done(
            guard=guard,
            gates=(NewGate("g", b"x", due),),
            timers=(Timer("t", due),),
            deliver=(self.item("k"),),
            send=(NewMessage("target", "event", "n", "m", b"x"),),
            release=True,
        )
        assert self.store.verify().problems == []
        run = self.row().run
        self.store.delete("run")
        port = self.store.port
        left: Values = [
            port.gates(None, 10),
            port.due(TimerRow, 10),
            port.due(MessageRow, 10),
            port.due(GateRow, 10),
        ]
        assert left == [[], [], [], []]
        assert port.rows(ItemRow, run, 0, 10) == []

    # --- the same in new runs ----------------------------------------------------------------------------------------

    def put_everything(self) -> None:
        """A run that waits, with something of everything."""
        body, now_us = b"\x00" + pack(_GATE), self.clock.now_us()
        gates = (NewGate("answered", body), NewGate("open", body, now_us + 60 * US), NewGate("closed", body))
        timers = (Timer("late", now_us + 90 * US), Timer("soon", now_us + 60 * US))
        value = b"\x00" + pack("value")
        guard = self.held(gates=gates, timers=timers)
        self.clock.advance(5)
        self.done(deliver=(NewItem("event", "old", "k1", "ana", value), NewItem("event", "new", "k2", "ana", value)))
        self.done(deliver=(NewItem("answer", "answered", "k3", "ana", value),))
        send = tuple(NewMessage(target, "event", "n", f"to-{target}", value) for target in ("a", "b", "c"))
        self.done(guard=guard, take_items=(1,), send=send, close_gates=("closed",))
        self.done(sent=(2,))
        self.done(guard=guard, status="waiting", release=True)

    def all_of(self, run_id: str = "run") -> RunRows:
        rows = self.store.port.run_rows(run_id)
        assert rows is not None, f"{run_id!r} is not there"
        return rows

    def plain(self, run_id: str) -> object:
        """Gates, inbox, timers and outbox, without what is another in every run."""
        rows = self.all_of(run_id)
        sealed = [msgspec.structs.replace(row, seal=0) for row in (*rows.gates, *rows.items, *rows.messages)]
        return sealed, rows.timers, (rows.run.inbox, rows.run.outbox, rows.run.status)

    def test_all_rows_of_a_run_are_there_at_once(self) -> None:
        self.put_everything()
        self.store.append("run", [{"kind": "a"}])
        self.store.save("run", 1, checkpoint_id="c1")
        self.store.attach("run", "c1", "note", 1)
        self.store.mark_done("run", "effect")
        port, rows = self.store.port, self.all_of()
        number = rows.run.run
        assert rows.run == self.row()
        assert (rows.checkpoints, rows.entries) == (port.rows(CheckpointRow, number), port.rows(EntryRow, number))
        assert (rows.effects, rows.attachments) == (port.rows(EffectRow, number), port.rows(AttachmentRow, number))
        assert rows.gates == port.rows(GateRow, number)
        assert (rows.timers, rows.messages) == (
            port.rows(TimerRow, number),
            [message for _, message in port.due(MessageRow, 10)],
        )
        assert [(item.key, item.taken) for item in rows.items] == [("k1", True), ("k2", False), ("k3", False)]
        assert rows.items[1:] == port.rows(ItemRow, number, 0, 10)
        assert len(rows.checkpoints) == len(rows.entries) == len(rows.effects) == len(rows.attachments) == 1
        assert port.run_rows("none") is None

    def test_a_copy_and_an_import_have_gates_timers_inbox_and_outbox(self) -> None:
        self.put_everything()
        before = self.all_of()
        self.store.copy("run", "copied")
        self.store.import_run(self.store.export_run("run"), run_id="imported")
        assert [gate.state for gate in before.gates] == ["answered", "closed", "open"]
        assert [message.number for message in before.messages] == [1, 3]
        for name in ("copied", "imported"):
            assert self.plain(name) == self.plain("run")
            for item in (NewItem("event", "old", "k1", "ana", b""), NewItem("event", "new", "k2", "ana", b"")):
                assert self.done(run_id=name, deliver=(item,)).fresh is False
            assert self.refused(run_id=name, deliver=(NewItem("answer", "answered", "k9", "bo", b""),)).reason == (
                Reason.ANSWERED
            )
            self.done(run_id=name, deliver=(NewItem("answer", "open", "k9", "bo", b""),))
            assert self.row(name).status == "ready"
            assert [item.number for item in self.all_of(name).items] == [1, 2, 3, 4]
            self.done(run_id=name, sent=(1,))
        assert self.all_of() == before
        assert self.store.verify().problems == []

    def test_timers_and_gates_of_a_copy_fire_beside_those_of_its_source(self) -> None:
        self.put_everything()
        self.store.copy("run", "copied")
        self.clock.advance(60)
        port = self.store.port
        assert sorted(run.run_id for run, _ in port.due(TimerRow, 10)) == ["copied", "run"]
        assert sorted(run.run_id for run, _ in port.due(GateRow, 10)) == ["copied", "run"]
        self.done(run_id="copied", deliver=(NewItem("timer", "soon", "t", "", b""),))
        assert (self.row("copied").status, self.row().status) == ("ready", "waiting")
        assert [timer.timer for timer in port.rows(TimerRow, self.row("copied").run)] == ["late"]
        assert [timer.timer for timer in port.rows(TimerRow, self.row().run)] == ["soon", "late"]
        assert self.store.delete("copied") is not False
        assert [run.run_id for run, _ in port.due(TimerRow, 10)] == ["run"]
