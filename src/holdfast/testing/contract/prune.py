"""The contract of `prune`, `delete` and `delete_checkpoint`."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import CheckpointNotFound, Conflict, InvalidInput, RunNotFound
from holdfast.model.commit import Commit, Outcome, Reason, Refused
from holdfast.model.rows import RunRow
from holdfast.model.views import Keep
from holdfast.operations.store import Store
from holdfast.testing.contract.base import Arguments, ContractBase, raises


class PruneContract(ContractBase):
    """What must stay stays; what is not needed is freed; nothing else changes."""

    def numbers(self, run_id: str = "run") -> list[int]:
        return [info.number for info in self.store.history(run_id)]

    def test_the_newest_are_kept(self) -> None:
        saved = [self.store.save("run", i) for i in range(10)]
        report = self.store.prune("run", Keep(last=3))
        assert report.removed == tuple(each.checkpoint_id for each in saved[:7])
        assert (report.run_id, report.kept, report.dry_run) == ("run", 3, False)
        assert self.numbers() == [8, 9, 10]
        assert self.state("run") == 9
        assert self.store.load("run", step=7) is None
        assert self.store.prune("run", Keep(last=3)).removed == ()

    def test_a_dry_run_says_the_same_and_removes_nothing(self) -> None:
        for i in range(6):
            self.store.save("run", self.conversation(40, changed=i))
        plan = self.store.prune("run", Keep(last=2), dry_run=True)
        assert plan.dry_run
        assert len(self.numbers()) == 6
        done = self.store.prune("run", Keep(last=2))
        assert (plan.removed, plan.kept, plan.chunks, plan.bytes_freed) == (
            done.removed,
            done.kept,
            done.chunks,
            done.bytes_freed,
        )

    def test_state_that_nothing_needs_is_freed_and_the_rest_is_whole(self) -> None:
        states = [self.conversation(60, changed=i) for i in range(8)]
        for state in states:
            self.store.save("run", state)
        before = self.store.stats().state_bytes
        report = self.store.prune("run", Keep(last=1))
        after = self.store.stats().state_bytes
        assert report.chunks > 0
        assert report.bytes_freed == before - after
        assert self.state("run") == states[-1]
        assert self.store.verify().problems == []
        assert self.store.verify().unused_chunks == 0

    def test_every_lane_keeps_its_own(self) -> None:
        for lane in ("", "side", "side", "", "other", "side"):
            self.store.save("run", lane, lane=lane)
        self.store.prune("run", Keep(last=1))
        assert [(i.lane, i.number) for i in self.store.history("run")] == [("", 4), ("other", 5), ("side", 6)]

    def test_the_newest_terminal_checkpoint_is_kept(self) -> None:
        for status in ("running", "failed", "running", "completed", "running", "running"):
            self.store.save("run", status, status=status)
        self.store.prune("run", Keep(last=1, latest_terminal=True))
        assert self.numbers() == [4, 6]
        self.store.prune("run", Keep(last=1, latest_terminal=False))
        assert self.numbers() == [6]

    def test_only_three_statuses_are_terminal(self) -> None:
        for status in ("cancelled", "ready", "running", "waiting", "paused", "rolling_back", "ready"):
            self.store.save("run", status, status=status)
        self.store.prune("run", Keep(last=1))
        assert [info.status for info in self.store.history("run")] == ["cancelled", "ready"]

    def test_the_newest_before_an_effect_in_doubt_is_kept(self) -> None:
        self.store.save("run", 1)
        self.store.save("run", 2)
        self.store.mark_intent("run", "doubt")
        self.store.save("run", 3)
        self.store.mark_intent("run", "sure")
        for i in range(4, 8):
            self.store.save("run", i)
        self.store.mark_done("run", "sure")
        self.store.prune("run", Keep(last=1, before_pending_effects=True))
        assert self.numbers() == [2, 7]
        self.store.mark_done("run", "doubt")
        self.store.prune("run", Keep(last=1))
        assert self.numbers() == [7]

    def test_what_covers_a_position_is_kept(self) -> None:
        for i in range(1, 6):
            self.store.append("run", [{"kind": "a"}])
            self.store.save("run", i)
        self.store.prune("run", Keep(last=1, covering=3))
        assert [info.covers for info in self.store.history("run")] == [3, 4, 5]
        assert len(self.store.journal("run")) == 5

    def test_attachments_go_with_their_checkpoint_and_no_other(self) -> None:
        for name in ("c1", "c2"):
            self.store.save("run", name, checkpoint_id=name)
            self.store.attach("run", name, "key", self.conversation(20, changed=len(name)))
        self.store.attach("run", "c3", "early", self.conversation(20))
        self.store.attach("run", "c1", "key", "elsewhere", lane="side")
        self.store.prune("run", Keep(last=1))
        assert self.store.attachments("run", "c1") == {}
        assert self.store.attachments("run", "c1", lane="side") == {"key": "elsewhere"}
        assert self.store.attachments("run", "c2") == {"key": self.conversation(20, changed=2)}
        assert self.store.attachments("run", "c3") == {"early": self.conversation(20)}

    def test_a_writer_that_remembers_what_was_swept_writes_it_again(self) -> None:
        first, second = self.conversation(60), self.conversation(60, changed=3)
        self.store.save("run", first)
        self.store.save("run", second)
        self.store.save("run", "small")
        self.store.prune("run", Keep(last=1))
        assert self.store.stats().chunks == 0
        self.store.save("run", second)
        self.store.attach("run", "c", "key", first)
        assert self.state("run") == second
        assert self.store.attachments("run", "c") == {"key": first}
        assert self.store.verify().problems == []

    def test_what_is_needed_again_while_a_sweep_looks_is_spared(self) -> None:
        state = self.conversation(60)
        self.store.save("run", state)
        self.store.save("run", "small")

        def need_again() -> None:
            self.store.save("run", state)  # relies on chunks that were found to be dead a moment ago
            self.store.attach("run", "c", "key", state)

        self.before_next("sweep", need_again)
        self.store.prune("run", Keep(last=1))
        assert self.state("run") == state
        assert self.store.attachments("run", "c") == {"key": state}
        assert self.store.verify().problems == []

    def test_a_replaced_checkpoint_that_needs_old_state_again_is_spared(self) -> None:
        state = self.conversation(60)
        self.store.save("run", state, checkpoint_id="c")
        self.store.save("run", "small", checkpoint_id="c", replace=True)
        self.store.save("run", "other")
        self.before_next("sweep", lambda: self.store.save("run", state, checkpoint_id="c", replace=True))
        self.store.prune("run", Keep(last=2))
        assert self.state("run", checkpoint_id="c") == state

    def test_a_checkpoint_that_is_pruned_while_it_is_read_is_gone_and_not_damaged(self) -> None:
        self.store.save("run", self.conversation(60))
        self.store.save("run", "small")
        self.before_next("chunks", lambda: self.store.prune("run", Keep(last=1)))
        assert self.store.load("run", step=1) is None

    def test_a_fork_of_what_is_swept_meanwhile_is_made_whole_or_not_at_all(self) -> None:
        port = self.store.port
        for changed in range(3):
            self.store.save("run", self.conversation(60, changed=changed))

        def late(commits: Sequence[Commit]) -> list[Outcome]:
            self.store.access.core.committer._apply = port.commit
            other = Store(port, clock=self.clock)
            other.prune("run", Keep(last=2))
            return port.commit(commits)

        for step, expected in ((2, True), (1, False)):
            self.store.access.core.committer._apply = late
            try:
                self.store.fork("run", f"fork-{step}", step=step)
            except CheckpointNotFound:
                assert not expected
            else:
                assert self.state(f"fork-{step}") == self.conversation(60, changed=step - 1)
        assert self.store.verify().problems == []

    def test_a_fork_and_its_source_do_not_harm_each_other(self) -> None:
        for i in range(4):
            self.store.save("run", self.conversation(60, changed=i))
        self.store.fork("run", "fork", step=2)
        self.store.prune("run", Keep(last=1))
        assert self.state("fork") == self.conversation(60, changed=1)
        self.store.delete("run")
        assert self.state("fork") == self.conversation(60, changed=1)
        assert self.store.verify().problems == []
        self.store.save("fork", "small")
        self.store.prune("fork", Keep(last=1))
        assert self.store.stats().chunks == 0

    def test_wrong_policies_are_refused(self) -> None:
        self.store.save("run", 1)
        wrong: list[Arguments] = [{"last": 0}, {"last": -1}, {"last": True}, {"covering": -1}, {"covering": "x"}]
        for rules in wrong:
            with raises(InvalidInput):
                Keep(**rules)
        with raises(InvalidInput):
            self.store.prune("run", {"last": 1})  # type: ignore[arg-type]
        with raises(RunNotFound):
            self.store.prune("none", Keep(last=1))
        with raises(RunNotFound):
            self.store.prune("none", Keep(last=1), dry_run=True)

    def test_deleting_removes_all_of_a_run_and_nothing_else(self) -> None:
        for run_id in ("run", "other"):
            self.store.save(run_id, self.conversation(40), metadata={"m": 1}, checkpoint_id="c", lane="side")
            self.store.append(run_id, [{"kind": "a"}])
            self.store.mark_done(run_id, "key")
            self.store.attach(run_id, "c", "k", 1)
        assert self.store.delete("run")
        assert not self.store.delete("run")
        assert self.store.load("run") is None
        assert [run.run_id for run in self.store.runs(metadata={"m": 1})] == ["other"]
        assert not self.store.is_done("run", "key")
        stats = self.store.stats()
        assert (stats.checkpoints, stats.entries, stats.effects, stats.attachments) == (1, 1, 1, 1)
        assert self.state("other", lane="side") == self.conversation(40)

    def test_a_run_that_was_changed_since_somebody_looked_is_not_deleted(self) -> None:
        self.store.save("run", {"a": 1})
        row = self.row()
        self.store.attach("run", "c", "k", 1)
        refused = self.store.port.delete_run("run", row.commit_id)
        assert isinstance(refused, Refused)
        assert refused.reason == Reason.CHANGED
        assert self.state("run") == {"a": 1}
        assert refused.run is not None
        assert isinstance(self.store.port.delete_run("run", refused.run.commit_id), RunRow)
        assert self.store.port.delete_run("run", refused.run.commit_id) is None
        assert self.store.load("run") is None

    def test_a_run_that_was_forked_since_the_caller_looked_is_not_deleted(self) -> None:
        self.store.save("run", {"a": 1})
        row = self.row()
        self.store.fork("run", "fork")
        refused = self.store.port.delete_run("run", row.commit_id, frozenset({row.run}))
        assert isinstance(refused, Refused)
        assert refused.reason == Reason.CHANGED
        fork = self.row("fork")
        assert isinstance(self.store.port.delete_run("run", row.commit_id, frozenset({row.run, fork.run})), RunRow)
        assert self.state("fork") == {"a": 1}

    def test_a_run_made_anew_has_nothing_of_the_old_one(self) -> None:
        for changed in (1, 2):
            self.store.save("run", self.conversation(40, changed=changed), checkpoint_id="c")
            self.store.mark_done("run", "key")
            self.store.append("run", [{"kind": "a"}])
            assert [e.position for e in self.store.journal("run")] == [1]
            assert self.state("run") == self.conversation(40, changed=changed)
            self.store.delete("run")
        self.store.save("run", self.conversation(40, changed=2))
        assert self.state("run") == self.conversation(40, changed=2)
        assert self.numbers() == [1]
        assert self.store.effects("run") == []

    # --- one checkpoint ----------------------------------------------------------------------------------------------

    def test_a_single_checkpoint_goes_with_its_attachments_and_its_state(self) -> None:
        states = [self.conversation(60, changed=i) for i in range(5)]
        saved = [self.store.save("run", state) for state in states]
        gone = saved[2].checkpoint_id
        self.store.attach("run", gone, "draft", self.conversation(60, changed=9))
        before = self.store.stats().state_bytes
        plan = self.store.delete_checkpoint("run", gone, dry_run=True)
        assert (plan.dry_run, plan.removed, plan.kept, self.numbers()) == (True, (gone,), 4, [1, 2, 3, 4, 5])
        done = self.store.delete_checkpoint("run", gone)
        assert (done.dry_run, done.removed, done.kept) == (False, (gone,), 4)
        assert (done.chunks, done.bytes_freed) == (plan.chunks, plan.bytes_freed)
        assert done.chunks > 0
        assert self.store.stats().state_bytes < before
        assert self.numbers() == [1, 2, 4, 5]
        assert self.store.attachments("run", gone) == {}
        for number in (0, 1, 3, 4):
            assert self.state("run", checkpoint_id=saved[number].checkpoint_id) == states[number]
        assert self.store.verify().problems == []
        assert self.store.verify().unused_chunks == 0
        assert self.store.delete_checkpoint("run", gone).removed == (), "a second time there is nothing to remove"

    def test_the_newest_checkpoint_of_a_lane_can_go_and_the_one_before_is_the_newest(self) -> None:
        for number, lane in enumerate(("", "side", "", "side")):
            self.store.save("run", number, lane=lane, checkpoint_id="a" if number < 2 else "b")
        assert self.store.delete_checkpoint("run", "b", lane="side").removed == ("b",)
        assert self.store.delete_checkpoint("run", "b").removed == ("b",)
        assert (self.state("run"), self.state("run", lane="side")) == (0, 1)
        assert self.store.delete_checkpoint("run", "a").removed == ("a",)
        assert self.store.load("run") is None
        self.store.fork("run", "fork", lane="side")
        assert self.store.save("run", "next").number == 5
        assert self.store.verify().problems == []

    def test_a_checkpoint_that_another_one_needs_is_not_removed(self) -> None:
        self.store.save("run", 1, checkpoint_id="base")
        self.store.save("run", 2, checkpoint_id="top", metadata={"holdfast": {"spans": [], "needs": ["base"]}})
        for dry_run in (True, False):
            with raises(Conflict) as caught:
                self.store.delete_checkpoint("run", "base", dry_run=dry_run)
            assert "checkpoint 'top' needs it; remove that one first" in str(caught.error)
        assert self.numbers() == [1, 2]
        self.store.save("run", 3, checkpoint_id="more", metadata={"holdfast": {"spans": [], "needs": []}})
        self.store.delete_checkpoint("run", "top")
        self.store.delete_checkpoint("run", "base")
        assert self.numbers() == [3]

    def test_what_a_run_goes_on_from_is_not_removed_until_it_has_ended(self) -> None:
        told: Arguments = {"holdfast": {"spans": [], "needs": []}}
        self.store.append("run", [{"kind": "n"} for _ in range(4)])
        self.store.save("run", 1, checkpoint_id="a", covers=2, metadata=told)
        self.store.save("run", 2, checkpoint_id="b", covers=4, metadata=told)
        with raises(Conflict) as caught:
            self.store.delete_checkpoint("run", "b")
        assert "the run would be resumed from it" in str(caught.error)
        assert self.store.prune("run", Keep(last=2, journal=True)).entries == 1
        with raises(Conflict) as caught:
            self.store.delete_checkpoint("run", "a")
        assert "the journal before it was pruned" in str(caught.error)
        self.store.save("run", 3, checkpoint_id="c", status="completed", metadata=told)
        assert self.store.delete_checkpoint("run", "c").removed == ("c",)
        assert self.store.delete_checkpoint("run", "b").removed == ("b",)
        assert self.numbers() == [1]
        assert self.store.verify().problems == []

    def test_removing_a_checkpoint_needs_a_run_and_ids(self) -> None:
        with raises(RunNotFound):
            self.store.delete_checkpoint("nobody", "a")
        self.store.save("run", 1)
        with raises(InvalidInput):
            self.store.delete_checkpoint("run", "")
        with raises(InvalidInput):
            self.store.delete_checkpoint("run", "a", lane=1)  # type: ignore[arg-type]
