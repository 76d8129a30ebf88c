"""The contract of heads that go back: a prune may take the newest checkpoint of a lane, and the run goes on."""

from __future__ import annotations

import threading
from typing import Any

from holdfast.model.commit import COVERS, Guard, NewCheckpoint
from holdfast.model.rows import CheckpointRow
from holdfast.testing.contract.base import PortContractBase
from holdfast.verbs.store import Store


class RetreatingContract(PortContractBase):
    """What remains is a run like any other, and nobody can tell what was there before."""

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
        assert after.commit_id != before.commit_id, "whoever remembers the run must be told"
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
        claim = self.store.claim("run", owner="w1")
        assert claim is not None
        claim.save(self.conversation(30), checkpoint_id="kept")
        claim.save(self.conversation(31))
        claim.save("side", lane="side")
        before = self.row()
        self.pruned(3, 4)
        after = self.row()
        assert (after.fence, after.nonce, after.owner, after.lease_us) == (
            before.fence, before.nonce, "w1", before.lease_us,
        )  # fmt: skip
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
        assert wrong.why == COVERS
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

        def newest(rows: list[CheckpointRow], _effects: Any) -> list[int]:
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
        rows = self.store.port.checkpoints(self.row().run, 0, -1)
        assert sorted(row.number for row in (*rows, *gone)) == [1, *numbers]
        ids = {row.checkpoint_id: row for row in (*rows, *gone)}
        for row in rows:
            parent = ids[row.parent_id] if row.parent_id is not None else None
            assert parent is None or (parent.lane == row.lane and parent.number < row.number)
        left = [row for row in rows if row.lane == ""]
        assert (self.row().head, self.row().serial) == (left[-1].number if left else 0, saves + 1)
        assert self.store.verify().problems == []
