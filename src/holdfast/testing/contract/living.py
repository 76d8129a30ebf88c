"""The contract of signs of life: who is known to be dead holds nothing, whatever its lease says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast.errors import ClaimLost, InvalidId, RunClaimed
from holdfast.model import commit as why
from holdfast.model.commit import OUTSIDER, Commit, Committed, Guard, Refused
from holdfast.store.port import StorePort
from holdfast.testing.contract.base import ContractBase, raises


class LivingContract(ContractBase):
    """Takes over from the dead at once, and from nobody else."""

    def held_by(self, owner: str, *run_ids: str) -> None:
        for run_id in run_ids:
            self.store.save(run_id, 1)
            assert self.store.claim(run_id, owner=owner, lease=600) is not None

    def judge(self, is_gone: Callable[[str], bool]) -> None:
        """From now on the store says this of owners, one at a time."""
        port: Any = self.store.port
        port.is_gone = is_gone
        port.gone_owners = partial(StorePort.gone_owners, port)
        port.claims_of_dead = partial(StorePort.claims_of_dead, port)

    def let_die(self, *owners: str) -> None:
        self.judge(lambda owner: owner in owners)

    def statuses(self) -> dict[str, str]:
        return {run.run_id: run.status for run in self.store.runs()}

    def test_who_announces_itself_is_not_gone_and_of_others_nothing_is_known(self) -> None:
        port = self.store.port
        assert not port.is_gone("w1")
        self.store.announce("w1")
        self.store.announce("w1")
        for owner in ("w1", "w2", "W1", "../w1", "é", "w1/"):
            assert not port.is_gone(owner)
        self.held_by("w1", "run")
        assert self.store.claim("run", owner="w2") is None
        assert self.store.recover_expired() == 0
        for wrong in ("", "\n", 1):
            with raises(InvalidId):
                self.store.announce(wrong)  # type: ignore[arg-type]

    def test_runs_that_have_an_owner_are_listed_by_number(self) -> None:
        self.held_by("w1", "a", "b")
        self.store.save("free", 1)
        self.held_by("w2", "c")
        port = self.store.port
        rows = port.held(10)
        assert [(row.run_id, row.owner) for row in rows] == [("a", "w1"), ("b", "w1"), ("c", "w2")]
        assert [row.run_id for row in port.held(1)] == ["a"]
        assert [row.run_id for row in port.held(10, rows[0].run)] == ["b", "c"]
        assert port.held(10, rows[-1].run) == []
        assert rows[0] == port.run("a")
        self.clock.advance(700)
        assert [row.run_id for row in port.held(10)] == ["a", "b", "c"]
        self.store.recover_expired()
        assert port.held(10) == []

    def test_a_run_of_a_dead_owner_is_claimed_at_once_and_one_of_a_living_owner_is_not(self) -> None:
        self.held_by("dead", "a")
        self.held_by("alive", "b")
        self.let_die("dead")
        claim = self.store.claim("a", owner="w2")
        assert claim is not None
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
        is_gone = port.is_gone

        def asking(owner: str) -> bool:
            asked.append(owner)
            return bool(is_gone(owner))

        self.judge(asking)
        assert self.store.recover_expired() == 3
        assert asked[:3] == ["alive", "also dead", "dead"]
        assert asked[3:] in ([], ["alive"]), "those who hold something are asked for once in each look"
        assert self.statuses() == {"a": "ready", "b": "ready", "c": "running", "d": "ready"}
        assert self.store.recover_expired() == 0

    def test_a_claim_that_was_taken_meanwhile_under_the_name_of_a_dead_owner_is_not_taken_away(self) -> None:
        port: Any = self.store.port
        taken: list[Any] = []

        def late(_owner: str) -> bool:
            """Before the answer arrives, a new process has the name, and the run."""
            port.is_gone = lambda _owner: False
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
        row = self.store.port.run("run")
        assert row is not None

        def commit(guard: Guard, **parts: Any) -> Any:
            return self.store.port.commit([Commit("run", b"commit01", guard, **parts)])[0]

        for gone in (None, 0, 2):
            refused = commit(Guard(gone=gone), status="ready")
            assert isinstance(refused, Refused)
            assert refused.why == why.CLAIMED
            refused = commit(Guard(OUTSIDER, gone=gone), rearm=1)
            assert isinstance(refused, Refused)
            assert refused.why == why.NOT_EXPIRED
        assert self.store.port.run("run") == row
        assert isinstance(commit(Guard(OUTSIDER, incarnation=row.incarnation, gone=1), rearm=1), Committed)
        assert self.store.port.held(10) == []

    def test_a_dead_owner_that_was_not_dead_after_all_writes_nothing_any_more(self) -> None:
        self.store.save("run", 1)
        old = self.store.claim("run", owner="w1", lease=600)
        assert old is not None
        self.let_die("w1")
        new = self.store.claim("run", owner="w2")
        assert new is not None
        with raises(ClaimLost):
            old.save("stale")
        new.save("new")
        assert self.state("run") == "new"
