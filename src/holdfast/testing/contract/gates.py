"""The contract of open gates: their bodies change by compare-and-set, and they are listed in pages."""

from __future__ import annotations

from holdfast.clock import US
from holdfast.model.commit import Guard, NewGate, NewItem, Reason
from holdfast.model.rows import GateRow, ItemRow
from holdfast.testing.contract.base import PortContractBase


class GateContract(PortContractBase):
    """A gate that was read and has changed since is neither overwritten nor answered."""

    def gate(self, name: str = "g", run_id: str = "run") -> GateRow:
        return next(row for row in self.store.port.rows(GateRow, self.row(run_id).run) if row.gate == name)

    def answer(self, key: str, name: str = "g", expects: int | None = None) -> NewItem:
        return NewItem("answer", name, key, "ana", b"\x00yes", expects)

    def test_the_body_and_the_expiry_of_an_open_gate_are_replaced(self) -> None:
        guard, soon = self.held(), self.clock.now_us() + 10 * US
        self.done(guard=guard, gates=(NewGate("g", b"\x00one", soon),), status="waiting", release=True, inbox_read=0)
        before = self.gate()
        self.clock.advance(5)
        self.done(gates=(NewGate("g", b"\x00two", soon + US, replaces=before.seal),))
        after = self.gate()
        assert (after.body, after.expires_us, after.state) == (b"\x00two", soon + US, "open")
        assert (after.opened_us, after.answered_us, after.answered_by) == (before.opened_us, None, None)
        assert after.seal != before.seal
        assert self.row().status == "waiting"
        assert self.store.port.rows(ItemRow, self.row().run, 0, 10) == []
        assert self.store.verify().problems == []
        self.done(gates=(NewGate("g", b"\x00two", replaces=after.seal),))
        assert self.gate().expires_us is None

    def test_only_the_gate_that_was_read_is_replaced(self) -> None:
        self.done(guard=self.held(), gates=(NewGate("g", b"\x00one"),))
        seen = self.gate().seal
        self.done(gates=(NewGate("g", b"\x00two", replaces=seen),))
        late = self.refused(gates=(NewGate("g", b"\x00three", replaces=seen),))
        assert late.reason == Reason.CHANGED
        assert self.gate().body == b"\x00two"
        assert self.refused(gates=(NewGate("none", b"x", replaces=1),)).reason == Reason.GATE_CLOSED

    def test_a_gate_that_is_not_open_is_not_replaced(self) -> None:
        guard, soon = self.held(), self.clock.now_us() + 10 * US
        names = ("answered", "closed", "expired")
        self.done(guard=guard, gates=tuple(NewGate(name, b"x", soon) for name in names))
        self.done(deliver=(self.answer("a1", "answered"),))
        self.done(guard=guard, close_gates=("closed",))
        self.clock.advance(10)
        for name, reason in zip(names, (Reason.ANSWERED, Reason.GATE_CLOSED, Reason.GATE_CLOSED), strict=True):
            seal = self.gate(name).seal
            assert self.refused(gates=(NewGate(name, b"y", replaces=seal),)).reason == reason
            assert self.gate(name).body == b"x"
        self.done(guard=guard, gates=(NewGate("open", b"x"),))
        self.done(guard=guard, status="completed", release=True)
        assert self.refused(gates=(NewGate("open", b"y", replaces=self.gate("open").seal),)).reason == Reason.ENDED

    def test_an_answer_to_a_gate_that_has_changed_is_refused(self) -> None:
        self.done(guard=self.held(), gates=(NewGate("g", b"\x00one"),), status="waiting", release=True, inbox_read=0)
        seen = self.gate().seal
        self.done(gates=(NewGate("g", b"\x00two", replaces=seen),))
        assert self.refused(deliver=(self.answer("a1", expects=seen),)).reason == Reason.CHANGED
        assert (self.gate().state, self.row().status) == ("open", "waiting")
        self.done(deliver=(self.answer("a1", expects=self.gate().seal),))
        assert (self.gate().state, self.gate().body, self.row().status) == ("answered", b"\x00two", "ready")
        assert self.refused(deliver=(self.answer("a2", expects=seen),)).reason == Reason.ANSWERED
        assert self.store.verify().problems == []

    def test_a_replaced_gate_survives_beside_other_changes_of_its_commit_batch(self) -> None:
        self.done(guard=self.held(), gates=(NewGate("g", b"\x00one"), NewGate("h", b"\x00one")))
        first = self.gate().seal
        self.done(guard=Guard(kind="outsider"), gates=(NewGate("g", b"\x00two", replaces=first),))
        self.done(gates=(NewGate("h", b"\x00two", replaces=self.gate("h").seal),), deliver=(self.answer("a1"),))
        assert {row.gate: (row.state, row.body) for row in self.store.port.rows(GateRow, self.row().run)} == {
            "g": ("answered", b"\x00two"),
            "h": ("open", b"\x00two"),
        }
