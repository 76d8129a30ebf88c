"""The contract of claims: one owner at a time, and only its writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.errors import ClaimLost, InvalidId, InvalidInput, RunClaimed, RunNotFound
from holdfast.model.commit import TakeClaim
from holdfast.testing.contract.base import ContractBase, raises


class ClaimContract(ContractBase):
    """A claim is exclusive while it lives; afterwards all its writes are refused."""

    def writes(self, target: Any, *run: str) -> list[Callable[[], object]]:
        """Every write a store or a claim offers."""
        return [
            lambda: target.save(*run, {"by": "other"}),
            lambda: target.append(*run, [{"kind": "other"}]),
            lambda: target.mark_done(*run, "other"),
            lambda: target.mark_intent(*run, "other"),
            lambda: target.attach(*run, "c", "other", 1),
        ]

    def status(self, run_id: str = "run") -> str:
        return next(run.status for run in self.store.runs() if run.run_id == run_id)

    def test_one_owner_at_a_time(self) -> None:
        self.store.save("run", 1)
        claim = self.claimed()
        assert (claim.run_id, claim.owner, claim.fence) == ("run", "w1", 1)
        assert self.store.claim("run", owner="w2") is None
        assert self.store.claim("run", owner="w1") is None
        assert self.status() == "running"
        assert self.store.runs()[0].owner == "w1"
        claim.release()
        assert self.status() == "ready"
        assert self.claimed(owner="w2").fence == 2

    def test_only_the_holder_writes_while_the_claim_lives(self) -> None:
        self.store.save("run", 1)
        claim = self.claimed()
        for write in self.writes(self.store, "run"):
            with raises(RunClaimed) as caught:
                write()
            assert caught.error.owner == "w1"
            assert "w1" in str(caught.error)
        with raises(RunClaimed):
            self.store.delete("run")
        claim.save({"by": "holder"}, step=9)
        claim.append([{"kind": "mine"}])
        assert claim.mark_done("key")
        claim.attach("c", "k", 1)
        assert self.loaded("run").step == 9
        assert [entry.kind for entry in self.store.journal("run")] == ["mine"]
        assert [effect.key for effect in self.store.effects("run")] == ["key"]

    def test_a_holder_saves_large_states(self) -> None:
        self.store.save("run", self.conversation(50))
        claim = self.claimed()
        claim.save(self.conversation(51))
        claim.save(self.conversation(52, changed=1))
        assert self.state("run") == self.conversation(52, changed=1)

    def test_after_the_lease_another_takes_over_and_the_old_owner_writes_nothing(self) -> None:
        self.store.save("run", "before")
        old = self.claimed(lease=10)
        self.clock.advance(9.9)
        assert self.store.claim("run", owner="w2") is None
        self.clock.advance(0.2)
        new = self.claimed(owner="w2")
        assert new.fence > old.fence
        lost: list[Callable[[], object]] = [*self.writes(old), old.renew, old.complete, old.release]
        for write in lost:
            with raises(ClaimLost) as caught:
                write()
            assert caught.error.holder == "w2"
        assert self.state("run") == "before"
        assert self.store.journal("run") == []
        new.save("after")
        assert self.state("run") == "after"

    def test_an_owner_that_is_late_but_was_not_replaced_may_go_on(self) -> None:
        self.store.save("run", 1)
        claim = self.claimed(lease=10)
        self.clock.advance(60)
        claim.save(2)
        claim.renew()
        assert self.store.claim("run", owner="w2") is None

    def test_renewing_extends_the_lease_from_now(self) -> None:
        self.store.save("run", 1)
        claim = self.claimed(lease=10)
        for _ in range(5):
            self.clock.advance(8)
            claim.renew()
        assert self.store.claim("run", owner="w2") is None
        claim.renew(lease=60)
        self.clock.advance(59)
        assert self.store.claim("run", owner="w2") is None

    def test_a_plain_write_after_the_lease_revokes_the_claim(self) -> None:
        self.store.save("run", 1)
        claim = self.claimed(lease=10)
        self.clock.advance(11)
        self.store.save("run", "plain")
        with raises(ClaimLost):
            claim.save("stale")
        assert self.state("run") == "plain"

    def test_setting_the_wall_clock_does_not_end_a_lease(self) -> None:
        self.store.save("run", 1)
        self.claimed(lease=10)
        self.clock.set_wall(3600)
        assert self.store.claim("run", owner="w2") is None
        self.clock.set_wall(-7200)
        self.clock.advance(11)
        assert self.store.claim("run", owner="w2") is not None

    def test_a_restart_of_the_machine_ends_all_leases(self) -> None:
        self.store.save("run", 1)
        old = self.claimed(lease=3600)
        self.clock.reboot()
        assert self.store.recover_expired() == 1
        self.claimed(owner="w2")
        with raises(ClaimLost):
            old.save(2)

    def test_completing_ends_the_run(self) -> None:
        self.store.save("run", 1)
        claim = self.claimed()
        claim.complete()
        assert self.status() == "completed"
        assert self.store.claim("run", owner="w2") is None
        with raises(ClaimLost):
            claim.complete()
        with raises(ClaimLost):
            claim.save(2)

    def test_releasing_keeps_a_status_that_was_set(self) -> None:
        self.store.save("run", 1)
        claim = self.claimed()
        claim.save(2, status="waiting")
        claim.release()
        assert self.status() == "waiting"
        claim = self.claimed()
        claim.release(status="paused")
        assert self.status() == "paused"
        claim = self.claimed()
        claim.save(3, status="failed")
        claim.release()
        assert self.status() == "failed"
        assert self.store.claim("run", owner="w2") is None

    def test_a_claim_is_released_at_the_end_of_its_block(self) -> None:
        self.store.save("run", 1)
        with self.claimed() as claim:
            claim.save(2)
        assert self.status() == "ready"
        with self.claimed() as claim:
            claim.complete()
        assert self.status() == "completed"

    def test_what_cannot_be_claimed(self) -> None:
        with raises(RunNotFound):
            self.store.claim("none", owner="w1")
        assert self.store.runs() == []
        self.store.save("run", 1)
        with raises(InvalidId):
            self.store.claim("run", owner="")
        for lease in (0, -1, "30", None, 1e9, float("nan"), True):
            with raises(InvalidInput):
                self.store.claim("run", owner="w1", lease=lease)  # type: ignore[arg-type]
        assert self.status() == "ready"

    def test_recovering_re_arms_only_runs_whose_owner_is_gone(self) -> None:
        for run_id, lease in (("gone", 10), ("live", 60), ("waits", 10)):
            self.store.save(run_id, 1)
            claim = self.claimed(run_id, lease=lease)
            if run_id == "waits":
                claim.save(2, status="waiting")
        self.store.save("free", 1)
        assert self.store.recover_expired() == 0
        self.clock.advance(20)
        assert self.store.recover_expired() == 2
        assert self.store.recover_expired() == 0
        assert (self.status("gone"), self.status("live"), self.status("waits")) == ("ready", "running", "waiting")
        assert self.store.claim("live", owner="w2") is None

    def test_an_owner_whose_run_was_deleted_has_lost_its_claim(self) -> None:
        self.store.save("run", 1)
        claim = self.claimed(lease=10)
        self.clock.advance(11)
        assert self.store.delete("run")
        for again in (False, True):
            if again:
                self.store.save("run", "another")
            for write in [*self.writes(claim), claim.renew, claim.complete]:
                with raises(ClaimLost):
                    write()
        assert self.state("run") == "another"

    def test_an_owner_whose_run_was_re_armed_has_lost_its_claim(self) -> None:
        self.store.save("run", 1)
        claim = self.claimed(lease=10)
        self.clock.advance(11)
        assert self.store.recover_expired() == 1
        for write in [*self.writes(claim), claim.renew, claim.complete]:
            with raises(ClaimLost) as caught:
                write()
            assert caught.error.holder is None

    def test_many_expired_claims_are_all_recovered(self) -> None:
        for i in range(250):
            self.store.append(f"r{i}", [{"kind": "a"}])
            self.claimed(f"r{i}", lease=1)
        self.clock.advance(2)
        assert self.store.recover_expired() == 250

    def test_workers_take_ready_runs_longest_ready_first(self) -> None:
        for i in range(5):
            self.store.save(f"r{i}", 1, workflow="odd" if i % 2 else "even")
            self.clock.advance(1)
        self.store.save("r0", 2, status="waiting")
        self.store.save("r0", 2, status="ready")
        takes = [TakeClaim("w1", bytes([i]) * 16, 1_000_000) for i in range(2)]
        port = self.store.port
        assert [row.run_id for row in port.claim_ready(takes, (), b"commit-1")] == ["r1", "r2"]
        assert [row.run_id for row in port.claim_ready(takes, ("odd",), b"commit-2")] == ["r3"]
        assert [row.run_id for row in port.claim_ready(takes, (), b"commit-3")] == ["r4", "r0"]
        assert port.claim_ready(takes, (), b"commit-4") == []
        self.clock.advance(2)
        assert port.claim_ready(takes, (), b"commit-5") == []
        assert self.store.recover_expired() == 5
        assert len(port.claim_ready(takes, (), b"commit-6")) == 2

    def test_a_ready_run_that_is_still_held_does_not_stop_the_queue(self) -> None:
        self.store.save("first", 1)
        self.clock.advance(1)
        self.store.save("second", 1)
        held = self.claimed("first", lease=10)
        held.save(2, status="ready")
        assert [claim.run_id for claim in self.store.claim_ready("w2", limit=1)] == ["second"]
        assert self.store.claim_ready("w2", limit=1) == []
        held.release()
        assert [claim.run_id for claim in self.store.claim_ready("w2")] == ["first"]

    def test_ready_runs_are_claimed_in_batches(self) -> None:
        for i in range(5):
            self.store.save(f"r{i}", i, workflow="odd" if i % 2 else "even")
            self.clock.advance(1)
        odd = self.store.claim_ready("w1", limit=10, workflows=["odd"])
        assert [claim.run_id for claim in odd] == ["r1", "r3"]
        others = self.store.claim_ready("w2", limit=2, lease=5)
        assert [claim.run_id for claim in others] == ["r0", "r2"]
        for claim in (*odd, *others):
            claim.save("moved on")
            claim.complete()
        assert {claim.fence for claim in (*odd, *others)} == {1}
        assert [run.run_id for run in self.store.runs(status="ready")] == ["r4"]

    def test_wrong_batches_are_refused(self) -> None:
        for limit in (0, -1, 1.5, True, 10_001):
            with raises(InvalidInput):
                self.store.claim_ready("w1", limit=limit)  # type: ignore[arg-type]
        with raises(InvalidInput):
            self.store.claim_ready("w1", workflows="odd")
        with raises(InvalidId):
            self.store.claim_ready("")

    def test_a_plain_write_after_the_lease_makes_the_run_ready_again(self) -> None:
        writes: dict[str, Callable[[], object]] = {
            "a": lambda: self.store.append("a", [{"kind": "note"}]),
            "b": lambda: self.store.save("b", 2),
            "c": lambda: self.store.mark_done("c", "effect"),
        }
        for name, write in writes.items():
            self.store.save(name, 1)
            self.claimed(name, owner="gone", lease=1)
            self.clock.advance(2)
            write()
        assert [claim.run_id for claim in self.store.claim_ready("w2", limit=5)] == ["a", "b", "c"]

    def test_a_renewal_that_is_refused_changes_nothing(self) -> None:
        self.store.save("run", 1)
        claim = self.claimed(lease=5)
        with raises(InvalidInput):
            claim.renew("x")  # type: ignore[arg-type]
        assert claim.lease == 5
        claim.renew()
