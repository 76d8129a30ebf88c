"""The contract of lane heads and of parents.

A prune may remove the newest checkpoint of a lane; the run continues from the one before.
"""

from __future__ import annotations

import threading

from holdfast.errors import CheckpointConflict, InvalidId
from holdfast.model.commit import Commit, Committed, Guard, NewCheckpoint, NewRun, Outcome, Reason, Refused
from holdfast.model.rows import CheckpointRow
from holdfast.operations.store import Store
from holdfast.store.port import Select
from holdfast.testing.contract.base import ContractBase, PortContractBase, raises


class LaneHeadContract(PortContractBase):
    """What remains is a run like any other, without a trace of what was removed."""

    def pruned(self, *numbers: int, run_id: str = "run") -> list[int]:
        """Remove the checkpoints with these numbers."""
        gone = self.store.port.prune(run_id, lambda _rows, _effects: numbers)
        assert gone is not None
        return [row.number for row in gone]

    def reopened(self, *numbers: int) -> None:
        """Remove the checkpoints with these numbers; a completed run may not be at its end then."""
        self.store.port.prune("run", lambda _rows, _effects: numbers, reopen=True)

    def saved(self, *lanes: str) -> None:
        for number, lane in enumerate(lanes, start=1):
            self.store.save("run", number, lane=lane, checkpoint_id=f"c{number}")

    def test_a_run_whose_newest_checkpoint_is_pruned_goes_on_from_the_one_before(self) -> None:
        self.saved("", "", "", "")
        before = self.row()
        assert self.pruned(3, 4) == [3, 4]
        after = self.row()
        assert (after.head, after.head_id, after.step) == (2, "c2", 2)
        assert (after.serial, after.position, after.status) == (4, before.position, before.status)
        assert after.commit_id != before.commit_id, "caches of the run must become stale"
        assert self.state("run") == 2
        (info,) = self.store.runs()
        assert (info.checkpoint_id, info.step) == ("c2", 2)
        assert self.store.verify().problems == []
        saved = self.store.save("run", "next")
        assert (saved.number, saved.step) == (5, 3), "numbers are not used again"
        assert self.loaded("run").parent_id == "c2"
        assert self.store.verify().problems == []

    def test_a_run_without_any_checkpoint_left_begins_anew(self) -> None:
        self.saved("", "")
        self.store.append("run", [{"kind": "a"}])
        self.pruned(1, 2)
        row = self.row()
        assert (row.head, row.head_id, row.step, row.serial, row.position) == (0, "", 0, 2, 1)
        assert self.store.load("run") is None
        assert list(self.store.history("run")) == []
        assert self.store.verify().problems == []
        saved = self.store.save("run", "first")
        assert (saved.number, saved.step, self.loaded("run").parent_id) == (3, 1, None)
        assert self.state("run") == "first"

    def test_lanes_go_back_for_themselves(self) -> None:
        self.saved("", "a", "b", "a", "", "b")
        self.pruned(4, 3, 6)
        assert [self.state("run", lane=lane) for lane in ("", "a")] == [5, 2]
        assert self.store.load("run", lane="b") is None
        assert (self.row().head, self.row().step) == (5, 2)
        found = {lane: self.store.save("run", lane, lane=lane) for lane in ("a", "b", "")}
        assert [found[lane].step for lane in ("a", "b", "")] == [2, 1, 3]
        assert [self.loaded("run", lane=lane).parent_id for lane in ("a", "b", "")] == ["c2", None, "c5"]
        assert [found[lane].number for lane in ("a", "b", "")] == [7, 8, 9]
        assert self.store.verify().problems == []

    def test_where_the_newest_stays_nothing_but_checkpoints_changes(self) -> None:
        self.saved("", "side", "", "side")
        before = self.row()
        self.pruned(1, 2)
        self.pruned()
        assert self.row() == before
        self.store.save("run", 5, lane="side")
        assert self.loaded("run", lane="side").parent_id == "c4"

    def test_heads_go_back_again_and_again(self) -> None:
        self.saved(*[""] * 6)
        for left in (5, 4, 3, 2, 1, 0):
            self.pruned(left + 1)
            assert (self.row().head, self.row().step, self.row().serial) == (left, left, 6)
        self.saved("", "")
        assert self.row().serial == 8
        self.pruned(8)
        assert self.loaded("run").checkpoint_id == "c1"
        assert self.store.verify().problems == []

    def test_its_attachments_go_and_those_of_what_remains_stay(self) -> None:
        self.saved("", "")
        self.store.attach("run", "c1", "k", 1)
        self.store.attach("run", "c2", "k", self.conversation(20))
        self.pruned(2)
        assert (self.store.attachments("run", "c1"), self.store.attachments("run", "c2")) == ({"k": 1}, {})
        self.store.save("run", "another", checkpoint_id="c2")
        assert self.store.attachments("run", "c2") == {}
        assert self.loaded("run").number == 3

    def test_whoever_holds_the_run_goes_on_from_what_remains(self) -> None:
        self.store.save("run", 1)
        claim = self.claimed()
        claim.save(self.conversation(30), checkpoint_id="kept")
        claim.save(self.conversation(31))
        claim.save("side", lane="side")
        before = self.row()
        self.pruned(3, 4)
        after = self.row()
        assert (after.fence, after.nonce, after.owner, after.lease_us) == (
            before.fence,
            before.nonce,
            "w1",
            before.lease_us,
        )
        assert (after.gc_epoch, after.status, after.ready_us) == (before.gc_epoch, before.status, before.ready_us)
        assert self.state("run") == self.conversation(30)
        claim.save(self.conversation(32))
        assert (self.loaded("run").parent_id, self.loaded("run").number) == ("kept", 5)
        assert claim.save("again", lane="side").step == 1
        claim.complete()
        assert self.store.verify().problems == []

    def test_a_completed_run_is_reopened_only_if_asked_and_if_its_newest_checkpoint_goes(self) -> None:
        for status in ("waiting", "waiting", "completed", "completed"):
            self.store.save("run", status, status=status)
        self.store.save("run", "side", lane="side")
        self.pruned(4)
        assert self.row().status == "completed", "not asked for"
        self.reopened(2, 5)
        assert (self.row().status, self.row().head) == ("completed", 3)
        self.reopened(3)
        assert (self.row().status, self.row().head, self.row().ready_us) == ("waiting", 1, 0)
        assert [info.run_id for info in self.store.runs(status="waiting")] == ["run"]
        assert list(self.store.runs(status="completed")) == []
        self.store.save("run", "failed", status="failed")
        self.reopened(6)
        assert self.row().status == "failed"
        assert self.store.verify().problems == []

    def test_a_completed_thread_waits_once_its_newest_checkpoint_is_removed(self) -> None:
        for workflow, left in (("langgraph", "waiting"), ("refund", "completed")):
            self.store.save(workflow, 1, workflow=workflow, status="waiting", checkpoint_id="open")
            self.store.save(workflow, 2, status="completed", checkpoint_id="end")
            self.store.delete_checkpoint(workflow, "end", dry_run=True)
            assert self.row(workflow).status == "completed"
            self.store.delete_checkpoint(workflow, "end")
            assert self.row(workflow).status == left

    def test_what_others_remember_of_the_run_does_not_bring_the_head_back(self) -> None:
        other = Store(self.store.port, clock=self.clock)
        for n in range(1, 5):
            self.store.save("run", n)
            other.append("run", [{"kind": "a"}])
        self.pruned(4)
        other.append("run", [{"kind": "a"}])
        assert (self.row().head, self.state("run")) == (3, 3)
        self.pruned(3)
        self.store.mark_done("run", "key")
        assert (self.row().head, self.state("run")) == (2, 2)
        wrong = self.refused(guard=Guard(), checkpoints=(NewCheckpoint("", b"\x01\x01", covers=99),))
        assert wrong.reason == Reason.COVERS
        assert other.save("run", 5).step == 3
        assert other.verify().problems == []

    def test_copies_and_forks_of_what_remains_are_whole(self) -> None:
        self.saved("", "side", "", "side")
        self.pruned(3, 4)
        self.store.copy("run", "copied")
        self.store.fork("run", "forked")
        self.store.import_run(self.store.export_run("run"), run_id="imported")
        for name in ("copied", "forked", "imported"):
            assert self.loaded(name).checkpoint_id == "c1"
            assert self.store.save(name, "next").step == 2
        assert self.store.verify().problems == []

    def test_pruning_the_newest_beside_a_writer_leaves_a_sound_run(self) -> None:
        """Of what was saved everything is there but what was pruned, and every parent was there when it was named."""
        saves, lanes = 60, ("", "side")
        numbers: list[int] = []
        gone: list[CheckpointRow] = []
        failed: list[BaseException] = []
        done = threading.Event()

        def write() -> None:
            try:
                numbers.extend(self.store.save("run", n, lane=lanes[n % 2]).number for n in range(saves))
            except BaseException as error:
                failed.append(error)
            finally:
                done.set()

        def newest(rows: list[CheckpointRow], _effects: object) -> list[int]:
            return [row.number for row in rows[-1:]]

        self.store.save("run", "start")
        thread = threading.Thread(target=write)
        thread.start()
        while not done.is_set():
            gone += self.store.port.prune("run", newest) or []
            self.store.load("run")
            done.wait(0.001)
        thread.join()
        for _ in lanes:
            gone += self.store.port.prune("run", newest) or []
        assert not failed, failed
        assert numbers == list(range(2, saves + 2))
        rows = self.store.port.rows(CheckpointRow, self.row().run)
        assert sorted(row.number for row in (*rows, *gone)) == [1, *numbers]
        ids = {row.checkpoint_id: row for row in (*rows, *gone)}
        for row in rows:
            parent = ids[row.parent_id] if row.parent_id is not None else None
            assert parent is None or (parent.lane == row.lane and parent.number < row.number)
        left = [row for row in rows if row.lane == ""]
        assert (self.row().head, self.row().serial) == (left[-1].number if left else 0, saves + 1)
        assert self.store.verify().problems == []


class ParentContract(ContractBase):
    """Every checkpoint has the parent its writer meant."""

    def parents(self, run_id: str = "run") -> list[tuple[str, str | None]]:
        return [(info.checkpoint_id, info.parent_id) for info in self.store.history(run_id)]

    def test_a_checkpoint_that_needs_its_parent_is_refused_without_it(self) -> None:
        self.store.save("run", 1, checkpoint_id="a")

        def below(parent: str, name: str, lane: str = "") -> Outcome:
            new = NewCheckpoint(name, b"\x01\xc0", lane, parent, needs_parent=True)
            return self.store.port.commit([Commit("run", name.encode() * 8, create=NewRun(), checkpoints=(new,))])[0]

        refused = below("gone", "b")
        assert isinstance(refused, Refused)
        assert (refused.reason, refused.detail) == (Reason.NO_PARENT, "gone")
        assert isinstance(below("a", "b", "side"), Refused), "a parent is on the same lane"
        assert isinstance(below("a", "c"), Committed)
        assert isinstance(below("c", "d"), Committed)
        assert isinstance(below("", "e"), Committed), "one that has none needs none"
        assert self.parents() == [("a", None), ("c", "a"), ("d", "c"), ("e", None)]

    def test_a_checkpoint_is_read_whole_with_what_lies_beside_it(self) -> None:
        port = self.store.port
        own = self.store.save("run", 1).checkpoint_id
        self.store.save("run", 2, lane="side", checkpoint_id="s")
        self.store.save("run", 3, checkpoint_id="n")
        for lane, name in (("", own), ("side", "s"), ("", "n"), ("", "s"), ("side", "n")):
            self.store.attach_all("run", name, {f"{lane}{name}2": 2, f"{lane}{name}1": 1}, lane=lane)
        wanted = [Select(), Select("", own), Select("side"), Select("side", "s"), Select(step=1), Select("nobody")]
        for select, keys in zip(wanted, ["n", own, "sides", "sides", own, None], strict=True):
            found = port.checkpoint("run", select, attachments=True)
            assert found is not None
            assert found._replace(attachments=[]) == port.checkpoint("run", select)
            assert sorted(row.key for row in found[2]) == ([] if keys is None else [f"{keys}1", f"{keys}2"])
        self.store.save("bare", 1)
        found = port.checkpoint("bare", Select(), attachments=True)
        assert found is not None
        assert found[1] is not None
        assert found[2] == []
        assert port.checkpoint("nobody", Select(), attachments=True) is None

    def test_an_empty_parent_means_none(self) -> None:
        first = self.store.save("run", 1).checkpoint_id
        root = self.store.save("run", 2, parent_id="").checkpoint_id
        below = self.store.save("run", 3).checkpoint_id
        self.store.save("run", 4, parent_id="", checkpoint_id="named")
        self.store.save("run", 5, parent_id="", lane="side")
        self.store.save("run", 6, parent_id="", lane="side", checkpoint_id="aside")
        assert [parent for _, parent in self.parents()] == [None, None, root, None, None, None]
        found = self.loaded("run", checkpoint_id=root)
        assert (found.parent_id, found.step) == (None, 2)
        self.store.save("run", 7, parent_id=first)
        assert self.loaded("run").parent_id == first
        assert self.loaded("run", checkpoint_id=below).parent_id == root

    def test_a_run_may_begin_with_one_that_has_none(self) -> None:
        self.store.save("a", 1, parent_id="")
        self.store.save("b", 1, parent_id="", checkpoint_id="c")
        assert (self.loaded("a").parent_id, self.loaded("b").parent_id) == (None, None)

    def test_no_parent_saved_again_is_a_no_op_and_instead_of_one_a_conflict(self) -> None:
        self.store.save("run", 1, checkpoint_id="root", parent_id="")
        self.store.save("run", 2, checkpoint_id="child")
        again = self.store.save("run", 1, checkpoint_id="root", parent_id="")
        assert (again.number, again.bytes_added) == (1, 0)
        for checkpoint_id, state, parent_id in (("child", 2, ""), ("root", 1, "child")):
            with raises(CheckpointConflict):
                self.store.save("run", state, checkpoint_id=checkpoint_id, parent_id=parent_id)
        assert self.parents() == [("root", None), ("child", "root")]

    def test_replace_can_take_the_parent_away(self) -> None:
        self.store.save("run", 1, checkpoint_id="root")
        self.store.save("run", 2, checkpoint_id="child")
        self.store.save("run", 2, checkpoint_id="child", parent_id="", replace=True)
        assert self.parents() == [("root", None), ("child", None)]
        self.store.save("run", 3, checkpoint_id="child", replace=True)
        assert self.parents() == [("root", None), ("child", None)]
        self.store.save("run", 3, checkpoint_id="child", parent_id="root", replace=True)
        self.store.save("run", 4, checkpoint_id="child", replace=True)
        assert self.parents() == [("root", None), ("child", "root")]
        assert self.store.verify().problems == []

    def test_copies_forks_and_archives_keep_roots_apart(self) -> None:
        for root in ("one", "two"):
            self.store.save("run", root, checkpoint_id=root, parent_id="")
            self.store.save("run", root)
        self.store.save("run", "side", parent_id="", lane="side")
        own = self.store.save("run", "own", parent_id="").checkpoint_id
        self.store.copy("run", "copied")
        self.store.import_run(self.store.export_run("run"), run_id="imported")
        assert [parent for _, parent in self.parents()] == [None, "one", None, "two", None, None]
        assert self.parents("copied") == self.parents("imported") == self.parents()
        self.store.save("run", "needs", metadata={"holdfast": {"needs": ["two", own]}})
        self.store.fork("run", "forked")
        assert [parent for _, parent in self.parents("forked")] == [None, None, own]

    def test_a_parent_is_an_id_or_empty(self) -> None:
        for wrong in ("\x00", "\n", "x" * 513, 7, b""):
            with raises(InvalidId):
                self.store.save("run", 1, parent_id=wrong)  # type: ignore[arg-type]
        assert self.store.runs() == []
