"""The contract of who may take a run: from an owner who is dead, after its end, in the middle of a rollback."""

from __future__ import annotations

from typing import Any

from holdfast.clock import US
from holdfast.model import commit as why
from holdfast.model.commit import HOLDER, OUTSIDER, Guard, NewCheckpoint, NewEffect, NewEntry, NewItem, NewRun, Take
from holdfast.testing.contract.base import PortContractBase

_TAKE = Take("w2", b"m" * 16, 60 * US)
_ENTRY = NewEntry("e", b"\x00\xc0")


class GuardingContract(PortContractBase):
    """A lease protects an owner that may be alive, and nobody who is known to be dead."""

    def lost(self, guard: Guard) -> None:
        """The claim is worth nothing any more."""
        for parts in ({"entries": (_ENTRY,)}, {"renew_us": US}, {"release": True}, {"status": "completed"}):
            assert self.refused(guard=guard, **parts).why == why.CLAIM_LOST

    def test_a_plain_write_revokes_the_claim_of_a_dead_owner_before_its_lease_has_ended(self) -> None:
        writes: list[dict[str, Any]] = [
            {"entries": (_ENTRY,)}, {"checkpoints": (NewCheckpoint("", b"\x01\x01"),)},
            {"effects": (NewEffect("key", "done"),)}, {"metadata": (("k", b"\x01"),)}, {},
        ]  # fmt: skip
        for write in writes:
            holder = self.held()
            self.done(guard=holder, entries=(_ENTRY,))
            before = self.row()
            for gone in (None, 0, holder.fence - 1, holder.fence + 1):
                refused = self.refused(guard=Guard(gone=gone), **write)
                assert (refused.why, self.row()) == (why.CLAIMED, before)
            row = self.done(guard=Guard(gone=holder.fence), **write).run
            assert (row.owner, row.status, row.fence) == ("", "ready", holder.fence)
            assert row == self.row()
            self.lost(holder)

    def test_a_run_is_taken_from_a_dead_owner_before_its_lease_has_ended(self) -> None:
        holder = self.held()
        self.done(guard=holder, entries=(_ENTRY,))
        for gone in (None, 0, holder.fence + 1):
            assert self.refused(guard=Guard(gone=gone), take=_TAKE).why == why.CLAIMED
        row = self.done(guard=Guard(gone=holder.fence), take=_TAKE, entries=(_ENTRY,)).run
        assert (row.owner, row.status, row.fence, row.position) == ("w2", "running", holder.fence + 1, 2)
        self.lost(holder)
        late = self.refused(guard=Guard(gone=holder.fence), take=_TAKE)
        assert late.why == why.CLAIMED, "that one owner is dead says nothing about the next"
        assert self.row() == row

    def test_a_run_is_re_armed_from_a_dead_owner_before_its_lease_has_ended(self) -> None:
        holder = self.held()
        self.done(guard=holder, entries=(_ENTRY,))
        fence = holder.fence
        wrong = [(None, fence), (fence + 1, fence), (fence, fence + 1), (fence - 1, fence - 1)]
        for gone, rearm in wrong:
            assert self.refused(guard=Guard(OUTSIDER, gone=gone), rearm=rearm).why == why.NOT_EXPIRED
        row = self.done(guard=Guard(OUTSIDER, gone=fence), rearm=fence).run
        assert (row.owner, row.status, row.fence) == ("", "ready", fence)
        again = self.refused(guard=Guard(OUTSIDER, gone=fence), rearm=fence)
        assert again.why == why.NOT_EXPIRED, "nobody holds it any more"
        self.lost(holder)
        assert [run.run_id for run in self.store.port.claim_ready([_TAKE], (), b"commit-1")] == ["run"]
        assert self.refused(guard=Guard(OUTSIDER, gone=fence), rearm=fence).why == why.NOT_EXPIRED
        assert self.row().owner == "w2"

    def test_that_an_owner_is_dead_is_all_that_it_says(self) -> None:
        assert self.refused(guard=Guard(gone=0)).why == why.NO_RUN
        self.done(guard=Guard(gone=7), create=NewRun(), entries=(_ENTRY,))
        self.done(guard=Guard(gone=0), entries=(_ENTRY,))
        holder = self.held()
        others = [Guard(HOLDER, holder.incarnation, holder.fence, b"x" * 16, gone=holder.fence),
                  Guard(HOLDER, b"other", holder.fence, holder.nonce, gone=holder.fence)]  # fmt: skip
        for guard in others:
            assert self.refused(guard=guard, entries=(_ENTRY,)).why == why.CLAIM_LOST
        assert self.refused(guard=Guard(incarnation=b"other", gone=holder.fence)).why == why.INCARNATION
        assert self.refused(guard=Guard(position=9, gone=holder.fence)).why == why.POSITION
        self.done(guard=holder, status="completed")
        assert self.refused(guard=Guard(gone=holder.fence), take=_TAKE).why == why.ENDED
        self.done(guard=holder, entries=(_ENTRY,))

    def test_a_run_that_ended_is_only_taken_to_revive_it(self) -> None:
        revive = Take("w2", b"m" * 16, 60 * US, revive=True)
        for ended in ("completed", "failed", "cancelled"):
            for asked, then in ((None, "running"), ("rolling_back", "rolling_back"), ("paused", "paused")):
                run_id = f"{ended} {asked}"
                self.done(run_id=run_id, guard=Guard(), create=NewRun(), status=ended)
                before = self.row(run_id)
                refused = self.refused(run_id=run_id, guard=Guard(), take=_TAKE, status=asked)
                assert (refused.why, self.row(run_id)) == (why.ENDED, before)
                row = self.done(run_id=run_id, guard=Guard(), take=revive, status=asked).run
                assert (row.status, row.owner, row.fence, row.ready_us) == (then, "w2", 1, 0)
                assert row == self.row(run_id)

    def test_reviving_a_run_asks_for_all_that_taking_does(self) -> None:
        revive = Take("w2", b"m" * 16, 60 * US, revive=True)
        holder = self.held()
        self.done(guard=holder, status="completed")
        assert self.refused(guard=Guard(), take=revive).why == why.CLAIMED
        self.done(guard=holder, release=True)
        assert self.refused(guard=Guard(position=9), take=revive).why == why.POSITION
        row = self.done(guard=Guard(), take=revive).run
        assert (row.status, row.fence) == ("running", 2)
        assert self.refused(guard=Guard(), take=revive).why == why.CLAIMED
        row = self.done(guard=Guard(HOLDER, row.incarnation, row.fence, row.nonce), release=True).run
        assert (row.status, row.owner) == ("ready", "")
        assert self.done(guard=Guard(), take=revive).run.status == "running", "what has not ended is simply taken"

    def test_workers_that_look_for_ready_runs_revive_none(self) -> None:
        for status in ("completed", "failed", "cancelled", "waiting", "ready"):
            self.done(run_id=status, guard=Guard(), create=NewRun(), status=status)
        takes = [Take("w2", bytes([i]) * 16, 60 * US, revive=True) for i in range(5)]
        assert [run.run_id for run in self.store.port.claim_ready(takes, (), b"commit-1")] == ["ready"]
        statuses = {run.run_id: run.status for run in self.store.runs()}
        assert statuses == {**{name: name for name in statuses}, "ready": "running"}

    def test_a_worker_takes_on_a_rollback_that_was_interrupted(self) -> None:
        ways: list[tuple[float, dict[str, Any]]] = [
            (61, {"guard": Guard(OUTSIDER), "rearm": 1}), (0, {"guard": Guard(OUTSIDER, gone=1), "rearm": 1}),
            (61, {"guard": Guard(), "entries": (_ENTRY,)}), (0, {"guard": Guard(gone=1), "entries": (_ENTRY,)}),
            (0, {"release": True}),
        ]  # fmt: skip
        for number, (wait_s, parts) in enumerate(ways):
            run_id = f"run {number}"
            holder = self.held(run_id=run_id, status="rolling_back")
            assert self.row(run_id).status == "rolling_back"
            self.clock.advance(wait_s)
            row = self.done(**{"run_id": run_id, "guard": holder, **parts}).run
            assert (row.status, row.owner, row.ready_us) == ("ready", "", self.clock.now_us())
            taken = self.store.port.claim_ready([_TAKE, _TAKE], (), b"commit%d" % number)
            assert [run.run_id for run in taken] == [run_id]
        self.held(run_id="expired", status="rolling_back")
        self.clock.advance(61)
        self.store.recover_expired()
        assert self.row("expired").status == "ready"

    def test_a_rollback_ends_as_its_holder_says_and_goes_on_while_it_is_held(self) -> None:
        holder = self.held(status="rolling_back")
        self.done(guard=holder, entries=(_ENTRY,))
        self.done(guard=holder, renew_us=60 * US)
        self.done(deliver=(NewItem("event", "n", "k", "by", b"\x00\xc0"),))
        assert self.row().status == "rolling_back"
        assert self.done(guard=holder, status="cancelled", release=True).run.status == "cancelled"
        self.done(run_id="unheld", guard=Guard(), create=NewRun(), status="rolling_back")
        self.done(run_id="unheld", guard=Guard(), entries=(_ENTRY,))
        assert self.row("unheld").status == "rolling_back", "nobody was taken from"

    def test_the_copy_of_a_run_that_is_being_rolled_back_is_ready(self) -> None:
        self.held(status="rolling_back")
        assert self.store.copy("run", "copy").status == "ready"
        assert self.store.import_run(self.store.export_run("run"), run_id="imported").status == "ready"
        assert self.row().status == "rolling_back"
