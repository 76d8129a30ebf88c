"""The contract of open gates and of published workflows.

The bodies of gates change by compare-and-set, and gates are listed in pages.
"""

from __future__ import annotations

from holdfast.clock import US
from holdfast.errors import DamagedData
from holdfast.model.commit import Guard, NewGate, NewItem, NewRun, Reason
from holdfast.model.rows import GateRow, ItemRow
from holdfast.store.capabilities import Catalog
from holdfast.testing.contract.base import ContractBase, PortContractBase, raises


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

    # --- pages and counts --------------------------------------------------------------------------------------------

    def open_in(self, run_id: str, *gates: str) -> None:
        """Create a run with these open gates."""
        new = tuple(NewGate(name, b"x") for name in gates)
        self.done(run_id=run_id, guard=Guard(), create=NewRun(), gates=new, status="waiting")

    def test_open_gates_of_all_runs_are_read_in_pages(self) -> None:
        self.open_in("b", "g2", "g1")
        self.open_in("a", "g", "G", "é")
        self.clock.advance(1)
        self.open_in("c", "late", "done")
        self.done(run_id="c", deliver=(self.answer("a1", "done"),))
        for state in ("open", None):
            whole = self.store.port.gates(state, -1)
            names = [(run.run_id, gate.gate) for run, gate in whole]
            late = [("c", "late")] if state else [("c", "done"), ("c", "late")]
            assert names == [("b", "g1"), ("b", "g2"), ("a", "G"), ("a", "g"), ("a", "é"), *late]
            for size in (1, 2, 3, 100):
                after: tuple[int, int, str] | None = None
                found = []
                while page := self.store.port.gates(state, size, after):
                    assert len(page) <= size
                    found += page
                    run, gate = page[-1]
                    after = gate.opened_us, run.run, gate.gate
                assert found == whole
        ((run, gate),) = self.store.port.gates("answered", 10)
        assert self.store.port.gates("answered", 10, (gate.opened_us, run.run, gate.gate)) == []
        assert self.store.port.gates("answered", 10, (gate.opened_us, run.run, "d")) == [(run, gate)]

    def test_runs_and_open_gates_are_counted(self) -> None:
        assert (self.store.port.count_runs().runs, self.store.port.open_gates()) == ({}, 0)
        self.open_in("a", "g", "h")
        self.open_in("b", "g")
        self.done(run_id="b", deliver=(self.answer("a1", "g"),))
        self.store.save("c", 1, status="completed")
        assert self.store.port.count_runs() == ({"waiting": 1, "ready": 1, "completed": 1}, frozenset())
        assert self.store.port.open_gates() == 2
        counts = self.store.counts()
        assert (counts.runs, counts.open_gates, counts.estimated) == (self.store.port.count_runs().runs, 2, ())

    def test_runs_of_some_workflows_are_counted(self) -> None:
        for number in range(6):
            status = ("completed", "failed", "waiting")[number % 3]
            self.store.save(f"r{number}", 1, workflow=f"w{number % 2}", status=status)
        self.store.save("other", 1, workflow="x", status="waiting")
        assert self.store.port.count_runs(lambda name: name == "w1").runs == {"completed": 1, "failed": 1, "waiting": 1}
        assert self.store.port.count_runs(lambda name: name != "w1").runs == {"completed": 1, "failed": 1, "waiting": 2}
        assert self.store.port.count_runs(lambda _: False).runs == {}


class CatalogContract(ContractBase):
    """Descriptions of workflows are kept by name. A store without them has no `Catalog`."""

    def test_workflows_are_published_replaced_and_removed_by_name(self) -> None:
        port = self.store.port
        if not isinstance(port, Catalog):
            return
        assert port.published() == {}
        names = ["é", "Pay", "pay", "a/b", "x" * 500]
        port.publish({name: name.encode() for name in names})
        assert port.published() == {name: name.encode() for name in names}
        assert list(port.published()) == sorted(names)
        port.publish({"pay": b"\x00\n\xff", "Pay": b"", "none": b""})
        assert port.published() == {"a/b": b"a/b", "pay": b"\x00\n\xff", "x" * 500: b"x" * 500, "é": "é".encode()}
        port.publish({})
        assert len(port.published()) == 4

    def test_damage_of_a_published_workflow_is_reported(self) -> None:
        port = self.store.port
        if not isinstance(port, Catalog):
            return
        port.publish({"pay": b"no description"})
        with raises(DamagedData) as caught:
            self.store.workflows()
        assert "published workflow 'pay'" in str(caught.error)
        assert [problem.place for problem in self.store.verify().problems] == ["published workflow 'pay'"]
