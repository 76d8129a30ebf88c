"""The contract of liveness and takeover: a dead owner holds nothing, whatever its lease."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from msgspec import structs

from holdfast.clock import US
from holdfast.errors import ClaimLost, InvalidId, RunClaimed
from holdfast.model.commit import (
    HOLDER,
    OUTSIDER,
    Commit,
    Committed,
    Guard,
    NewCheckpoint,
    NewEffect,
    NewEntry,
    NewItem,
    NewRun,
    Reason,
    Refused,
    TakeClaim,
)
from holdfast.store.capabilities import Liveness, Presence, liveness_of
from holdfast.store.liveness import claims_of_dead
from holdfast.store.port import RunQuery
from holdfast.testing.contract.base import Arguments, ContractBase, PortContractBase, Values, raises


class LivenessContract(ContractBase):
    """A run is taken from a dead owner at once, and from a living one only after its lease."""

    def held_by(self, owner: str, *run_ids: str) -> None:
        for run_id in run_ids:
            self.store.save(run_id, 1)
            assert self.store.claim(run_id, owner=owner, lease=600) is not None

    def judge(self, owner_is_dead: Callable[[str], bool]) -> None:
        """From now on the store says this of owners, one at a time."""
        port: Any = self.store.port
        if not isinstance(port, Liveness):
            port.announce = port.remove_dead_owners = lambda _owners: None
            port.presence = port.confirm = lambda _owner: Presence.SURE
        port.owner_is_dead = owner_is_dead
        port.dead_owners = lambda owners: {owner for owner in sorted(owners) if port.owner_is_dead(owner)}
        port.claims_of_dead = lambda: claims_of_dead(port, port)
        self.store.access.core.liveness = port  # found before the port had these methods

    def let_die(self, *owners: str) -> None:
        self.judge(lambda owner: owner in owners)

    def statuses(self) -> dict[str, str]:
        return {run.run_id: run.status for run in self.store.runs()}

    def test_who_announces_itself_is_not_gone_and_of_others_nothing_is_known(self) -> None:
        port = liveness_of(self.store.port)
        assert not port.owner_is_dead("w1")
        self.store.announce("w1")
        self.store.announce("w1")
        for owner in ("w1", "w2", "W1", "../w1", "é", "w1/"):
            assert not port.owner_is_dead(owner)
        self.held_by("w1", "run")
        assert self.store.claim("run", owner="w2") is None
        assert self.store.recover_expired() == 0
        for wrong in ("", "\n", 1):
            with raises(InvalidId):
                self.store.announce(wrong)  # type: ignore[arg-type]

    def claimed_ids(self, claimed: Literal["any", "expired"] = "any", **query: Any) -> list[str]:
        rows = self.store.port.runs(RunQuery(claimed=claimed, **query))
        assert all(row == self.store.port.run(row.run_id) for row in rows)
        return [row.run_id for row in rows]

    def test_runs_that_have_an_owner_are_listed_newest_first(self) -> None:
        self.held_by("w1", "a", "b")
        self.store.save("free", 1)
        self.held_by("w2", "c")
        rows = self.store.port.runs(RunQuery(claimed="any"))
        assert [(row.run_id, row.owner) for row in rows] == [("c", "w2"), ("b", "w1"), ("a", "w1")]
        assert self.claimed_ids(limit=1) == ["c"]
        assert self.claimed_ids(before=rows[0].run) == ["b", "a"]
        assert self.claimed_ids(before=rows[-1].run) == []
        assert self.claimed_ids(limit=-1, prefix="b") == ["b"]
        assert self.claimed_ids(statuses=("ready",)) == []
        assert self.claimed_ids("expired") == []
        self.clock.advance(700)
        assert self.claimed_ids() == self.claimed_ids("expired") == ["c", "b", "a"]
        assert self.claimed_ids("expired", limit=1, before=rows[0].run) == ["b"]
        self.store.recover_expired()
        assert self.claimed_ids() == []

    def test_a_run_of_a_dead_owner_is_claimed_at_once_and_one_of_a_living_owner_is_not(self) -> None:
        self.held_by("dead", "a")
        self.held_by("alive", "b")
        self.let_die("dead")
        claim = self.claimed("a", "w2")
        assert (claim.fence, claim.owner) == (2, "w2")
        assert self.store.claim("b", owner="w2") is None
        with raises(RunClaimed):
            self.store.save("b", 2)
        claim.save(2)
        assert self.store.claim("a", owner="w3") is None

    def test_recovering_re_arms_what_the_dead_held_and_nothing_else(self) -> None:
        self.held_by("dead", "a", "b")
        self.held_by("alive", "c")
        self.held_by("also dead", "d")
        self.let_die("dead", "also dead")
        asked: list[str] = []
        port: Any = self.store.port
        owner_is_dead = port.owner_is_dead

        def asking(owner: str) -> bool:
            asked.append(owner)
            return bool(owner_is_dead(owner))

        self.judge(asking)
        assert self.store.recover_expired() == 3
        assert asked[:3] == ["alive", "also dead", "dead"]
        assert asked[3:] in ([], ["alive"]), "those who hold something are asked for once in each look"
        assert self.statuses() == {"a": "ready", "b": "ready", "c": "running", "d": "ready"}
        assert self.store.recover_expired() == 0

    def test_a_claim_that_was_taken_meanwhile_under_the_name_of_a_dead_owner_is_not_taken_away(self) -> None:
        port: Any = self.store.port
        taken: Values = []

        def late(_owner: str) -> bool:
            """Before the answer arrives, a new process has the name, and the run."""
            port.owner_is_dead = lambda _owner: False
            self.clock.advance(700)
            taken[:] = [self.store.claim("run", owner="w1", lease=600)]
            return True

        takeovers: list[Callable[[], object]] = [self.store.recover_expired, lambda: self.store.claim("run", "w2")]
        for take_over in takeovers:
            self.held_by("w1", "run")
            self.judge(late)
            assert not take_over()
            (claim,) = taken
            claim.save("goes on")
            claim.release()

    def test_a_fence_that_is_said_to_be_gone_ends_that_claim_and_no_other(self) -> None:
        self.held_by("w1", "run")
        row = self.row()

        def commit(guard: Guard, **parts: Any) -> Any:
            return self.store.port.commit([Commit("run", b"commit01", guard, **parts)])[0]

        for gone in (None, 0, 2):
            refused = commit(Guard(gone=gone), status="ready")
            assert isinstance(refused, Refused)
            assert refused.reason == Reason.CLAIMED
            refused = commit(Guard(OUTSIDER, gone=gone), rearm=1)
            assert isinstance(refused, Refused)
            assert refused.reason == Reason.NOT_EXPIRED
        assert self.store.port.run("run") == row
        assert isinstance(commit(Guard(OUTSIDER, incarnation=row.incarnation, gone=1), rearm=1), Committed)
        assert self.store.port.runs(RunQuery(claimed="any", limit=10)) == []

    def test_a_dead_owner_that_was_not_dead_after_all_writes_nothing_any_more(self) -> None:
        self.store.save("run", 1)
        old = self.claimed(lease=600)
        self.let_die("w1")
        new = self.claimed("run", "w2")
        with raises(ClaimLost):
            old.save("stale")
        new.save("new")
        assert self.state("run") == "new"


_TAKE = TakeClaim("w2", b"m" * 16, 60 * US)
_ENTRY = NewEntry("e", b"\x00\xc0")


class TakeoverContract(PortContractBase):
    """A lease protects an owner that may be alive, not one that is known to be dead."""

    def lost(self, guard: Guard) -> None:
        """The claim is worth nothing any more."""
        for parts in ({"entries": (_ENTRY,)}, {"renew_us": US}, {"release": True}, {"status": "completed"}):
            assert self.refused(guard=guard, **parts).reason == Reason.CLAIM_LOST

    def test_a_plain_write_revokes_the_claim_of_a_dead_owner_before_its_lease_has_ended(self) -> None:
        writes: list[Arguments] = [
            {"entries": (_ENTRY,)},
            {"checkpoints": (NewCheckpoint("", b"\x01\x01"),)},
            {"effects": (NewEffect("key", "done"),)},
            {"metadata": (("k", b"\x01"),)},
            {},
        ]
        for write in writes:
            holder = self.held()
            self.done(guard=holder, entries=(_ENTRY,))
            before = self.row()
            for gone in (None, 0, holder.fence - 1, holder.fence + 1):
                refused = self.refused(guard=Guard(gone=gone), **write)
                assert (refused.reason, self.row()) == (Reason.CLAIMED, before)
            row = self.done(guard=Guard(gone=holder.fence), **write).run
            assert (row.owner, row.status, row.fence) == ("", "ready", holder.fence)
            assert row == self.row()
            self.lost(holder)

    def test_a_run_is_taken_from_a_dead_owner_before_its_lease_has_ended(self) -> None:
        holder = self.held()
        self.done(guard=holder, entries=(_ENTRY,))
        for gone in (None, 0, holder.fence + 1):
            assert self.refused(guard=Guard(gone=gone), take=_TAKE).reason == Reason.CLAIMED
        row = self.done(guard=Guard(gone=holder.fence), take=_TAKE, entries=(_ENTRY,)).run
        assert (row.owner, row.status, row.fence, row.position) == ("w2", "running", holder.fence + 1, 2)
        self.lost(holder)
        late = self.refused(guard=Guard(gone=holder.fence), take=_TAKE)
        assert late.reason == Reason.CLAIMED, "that one owner is dead says nothing about the next"
        assert self.row() == row

    def test_a_run_is_re_armed_from_a_dead_owner_before_its_lease_has_ended(self) -> None:
        holder = self.held()
        self.done(guard=holder, entries=(_ENTRY,))
        fence = holder.fence
        wrong = [(None, fence), (fence + 1, fence), (fence, fence + 1), (fence - 1, fence - 1)]
        for gone, rearm in wrong:
            assert self.refused(guard=Guard(OUTSIDER, gone=gone), rearm=rearm).reason == Reason.NOT_EXPIRED
        row = self.done(guard=Guard(OUTSIDER, gone=fence), rearm=fence).run
        assert (row.owner, row.status, row.fence) == ("", "ready", fence)
        again = self.refused(guard=Guard(OUTSIDER, gone=fence), rearm=fence)
        assert again.reason == Reason.NOT_EXPIRED, "it has no owner any more"
        self.lost(holder)
        assert [run.run_id for run in self.store.port.claim_ready([_TAKE], (), b"commit-1")] == ["run"]
        assert self.refused(guard=Guard(OUTSIDER, gone=fence), rearm=fence).reason == Reason.NOT_EXPIRED
        assert self.row().owner == "w2"

    def test_that_an_owner_is_dead_is_all_that_it_says(self) -> None:
        assert self.refused(guard=Guard(gone=0)).reason == Reason.NO_RUN
        self.done(guard=Guard(gone=7), create=NewRun(), entries=(_ENTRY,))
        self.done(guard=Guard(gone=0), entries=(_ENTRY,))
        holder = self.held()
        others = [
            Guard(HOLDER, holder.incarnation, holder.fence, b"x" * 16, gone=holder.fence),
            Guard(HOLDER, b"other", holder.fence, holder.nonce, gone=holder.fence),
        ]
        for guard in others:
            assert self.refused(guard=guard, entries=(_ENTRY,)).reason == Reason.CLAIM_LOST
        assert self.refused(guard=Guard(incarnation=b"other", gone=holder.fence)).reason == Reason.INCARNATION
        assert self.refused(guard=Guard(position=9, gone=holder.fence)).reason == Reason.POSITION
        self.done(guard=holder, status="completed")
        assert self.refused(guard=Guard(gone=holder.fence), take=_TAKE).reason == Reason.ENDED
        self.done(guard=holder, entries=(_ENTRY,))

    def test_a_run_that_ended_is_only_taken_to_revive_it(self) -> None:
        revive = TakeClaim("w2", b"m" * 16, 60 * US, revive=True)
        for ended in ("completed", "failed", "cancelled"):
            for asked, then in ((None, "running"), ("rolling_back", "rolling_back"), ("paused", "paused")):
                run_id = f"{ended} {asked}"
                self.done(run_id=run_id, guard=Guard(), create=NewRun(), status=ended)
                before = self.row(run_id)
                refused = self.refused(run_id=run_id, guard=Guard(), take=_TAKE, status=asked)
                assert (refused.reason, self.row(run_id)) == (Reason.ENDED, before)
                row = self.done(run_id=run_id, guard=Guard(), take=revive, status=asked).run
                assert (row.status, row.owner, row.fence, row.ready_us) == (then, "w2", 1, 0)
                assert row == self.row(run_id)

    def test_a_paused_run_is_not_taken_if_the_take_says_so(self) -> None:
        self.done(guard=Guard(), create=NewRun(), status="paused")
        before = self.row("run")
        assert self.refused(guard=Guard(), take=structs.replace(_TAKE, paused=False)).reason == Reason.PAUSED
        assert self.row("run") == before
        assert self.done(guard=Guard(), take=_TAKE).run.owner == "w2"

    def test_reviving_a_run_asks_for_all_that_taking_does(self) -> None:
        revive = TakeClaim("w2", b"m" * 16, 60 * US, revive=True)
        holder = self.held()
        self.done(guard=holder, status="completed")
        assert self.refused(guard=Guard(), take=revive).reason == Reason.CLAIMED
        self.done(guard=holder, release=True)
        assert self.refused(guard=Guard(position=9), take=revive).reason == Reason.POSITION
        row = self.done(guard=Guard(), take=revive).run
        assert (row.status, row.fence) == ("running", 2)
        assert self.refused(guard=Guard(), take=revive).reason == Reason.CLAIMED
        row = self.done(guard=Guard(HOLDER, row.incarnation, row.fence, row.nonce), release=True).run
        assert (row.status, row.owner) == ("ready", "")
        assert self.done(guard=Guard(), take=revive).run.status == "running", "what has not ended is simply taken"

    def test_workers_that_look_for_ready_runs_revive_none(self) -> None:
        for status in ("completed", "failed", "cancelled", "waiting", "ready"):
            self.done(run_id=status, guard=Guard(), create=NewRun(), status=status)
        takes = [TakeClaim("w2", bytes([i]) * 16, 60 * US, revive=True) for i in range(5)]
        assert [run.run_id for run in self.store.port.claim_ready(takes, (), b"commit-1")] == ["ready"]
        statuses = {run.run_id: run.status for run in self.store.runs()}
        assert statuses == {**{name: name for name in statuses}, "ready": "running"}

    def test_a_worker_takes_on_a_rollback_that_was_interrupted(self) -> None:
        ways: list[tuple[float, Arguments]] = [
            (61, {"guard": Guard(OUTSIDER), "rearm": 1}),
            (0, {"guard": Guard(OUTSIDER, gone=1), "rearm": 1}),
            (61, {"guard": Guard(), "entries": (_ENTRY,)}),
            (0, {"guard": Guard(gone=1), "entries": (_ENTRY,)}),
            (0, {"release": True}),
        ]
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
        assert self.row("unheld").status == "rolling_back", "it had no owner"

    def test_the_copy_of_a_run_that_is_being_rolled_back_is_ready(self) -> None:
        self.held(status="rolling_back")
        assert self.store.copy("run", "copy").status == "ready"
        assert self.store.import_run(self.store.export_run("run"), run_id="imported").status == "ready"
        assert self.row().status == "rolling_back"
