"""CAR's own file calls between ours, in every order: what holds, and in which orders alone something does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ClaimLost
from holdfast.files.os_files import SystemFiles
from holdfast.formats import car
from holdfast.formats.car.claims import Claims
from tests.faults.core.scratch import scratch
from tests.formats import originals
from tests.formats.interleaving import Outcome, Steps, every_interleaving, finish
from tests.formats.sample_files import paused, raw

FIRST, SECOND = paused(iterations=1), paused(iterations=2)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory: what is prepared for each order is synced as ever."""
    with scratch(fast=True) as place:
        yield place


class Held:
    """A claim that was taken before the interleaving begins."""

    claimed: car.Claimed | None = None

    def take(self, place: Path) -> None:
        runs = car.Directory(place)
        runs.save(FIRST)
        self.claimed = runs.claim("run-1")
        assert self.claimed is not None

    def take_and_save(self, place: Path) -> None:
        self.take(place)
        car.Directory(place).save(SECOND, claimed=self.claimed)

    def take_and_die(self, place: Path) -> None:
        runs = car.Directory(place)
        runs.save(FIRST)
        assert runs.claim("run-1") is not None
        runs.close()

    def save(self, place: Path, files: SystemFiles) -> None:
        car.Directory(place, files=files).save(SECOND, claimed=self.claimed)

    def complete(self, place: Path, files: SystemFiles) -> None:
        assert self.claimed is not None
        car.Directory(place, files=files).complete(self.claimed)


def write_first(place: Path) -> None:
    car.Directory(place).save(FIRST)


def claim(place: Path, files: SystemFiles) -> Any:
    """Claim a run; a process that does not get it ends."""
    runs = car.Directory(place, files=files)
    claimed = runs.claim("run-1")
    if claimed is None:
        runs.close()
    return claimed


def recover(place: Path, files: SystemFiles) -> int:
    return car.Directory(place, files=files).recover_orphaned(foreign=False)


def there(place: Path) -> tuple[int | None, int | None]:
    """How far the pauses in the two files are: the claimable one, and the claimed one."""
    paths = (place / "run-1.json", place / "run-1.inflight")
    claimable, claimed = (raw(path)["iterations"] if path.exists() else None for path in paths)
    return claimable, claimed


def time_of(outcome: Outcome, call: str, *, last: bool = False) -> int:
    """When a call was made, the first or the last of its kind; -1 if it was not."""
    times = [at for at, made in enumerate(outcome.trace) if made == call]
    return times[-1 if last else 0] if times else -1


def is_removed_later(outcome: Outcome, call: int) -> bool:
    """Whether the original's removal came after our last look at the file, so that nothing could restore it."""
    return time_of(outcome, f"original: call {call}") > time_of(outcome, "ours: read run-1.inflight", last=True)


def await_tick(path: Path) -> None:
    """Wait until a change would get a later time than the file's last: some kernels count in milliseconds."""
    beside = path.parent / ".holdfast" / "tick"
    while path.exists():
        beside.touch()
        if beside.stat().st_ctime_ns > path.stat().st_ctime_ns:
            break


def finish_claim(place: Path, claimed: car.Claimed) -> None:
    """The holder of a run can save its next pause and complete it, whatever the original has removed."""
    runs = car.Directory(place)
    runs.save({**claimed, "iterations": 9}, claimed=claimed)
    runs.complete(claimed)
    assert there(place) == (9, None)


# --- our claim -------------------------------------------------------------------------------------------------------


def test_a_run_is_won_by_one_and_what_the_original_won_is_not_recovered(tmp_path: Path) -> None:
    winners: set[str] = set()

    def check(place: Path, outcome: Outcome) -> None:
        assert (outcome.ours is None) != (outcome.theirs is None)
        if outcome.ours is None:
            winners.add("theirs")
            assert car.Directory(place).recover_orphaned(foreign=False) == 0
            assert there(place) == (None, 1)
            with pytest.raises(ClaimLost):
                car.Directory(place).complete("run-1")
        else:
            winners.add("ours")
            assert there(place) == (None, 1) or is_removed_later(outcome, 2)
            finish_claim(place, outcome.ours)

    every_interleaving(tmp_path, write_first, claim, lambda place: originals.car_claim_steps(place, "run-1"), check)
    assert winners == {"ours", "theirs"}


def test_an_original_that_dies_while_it_claims_costs_nothing(tmp_path: Path) -> None:
    def check(place: Path, outcome: Outcome) -> None:
        if outcome.ours is not None:
            finish_claim(place, outcome.ours)
        elif outcome.is_dead:
            assert car.Directory(place).recover_orphaned() == 1
            assert there(place) == (1, None)

    every_interleaving(
        tmp_path, write_first, claim, lambda place: originals.car_claim_steps(place, "run-1"), check, may_die=True
    )


def test_a_claim_takes_the_newest_pause_and_loses_none(tmp_path: Path) -> None:
    def check(place: Path, outcome: Outcome) -> None:
        assert there(place) == ((2, 1) if outcome.ours == FIRST else (None, 2))
        assert outcome.ours in (FIRST, SECOND)

    every_interleaving(tmp_path, write_first, claim, lambda place: originals.car_save_steps(place, SECOND), check)


def test_the_original_completing_the_pause_before_does_not_cost_us_the_next(tmp_path: Path) -> None:
    def prepare(place: Path) -> None:
        write_first(place)
        assert originals.car_claim(place, "run-1") == FIRST
        finish(originals.car_save_steps(place, SECOND))

    def check(place: Path, outcome: Outcome) -> None:
        assert outcome.ours == SECOND
        assert there(place) == (None, 2) or is_removed_later(outcome, 1)
        finish_claim(place, outcome.ours)

    every_interleaving(tmp_path, prepare, claim, lambda place: originals.car_complete_steps(place, "run-1"), check)


@pytest.mark.parametrize("stale", [False, True])
def test_a_run_that_the_original_recovers_is_claimable_and_its_old_holder_knows(tmp_path: Path, stale: bool) -> None:
    def prepare(place: Path) -> None:
        write_first(place)
        if stale:
            (place / "run-1.inflight").write_text("stale")

    def check(place: Path, outcome: Outcome) -> None:
        if outcome.ours is None:
            assert there(place) == (1, None)
        elif there(place) == (1, None):
            with pytest.raises(ClaimLost):
                car.Directory(place).save(SECOND, claimed=outcome.ours)
        else:
            assert there(place) == (None, 1) or is_removed_later(outcome, 3)
            finish_claim(place, outcome.ours)

    every_interleaving(tmp_path, prepare, claim, originals.car_recover_steps, check)


# --- our complete and save -------------------------------------------------------------------------------------------


def test_completing_never_costs_the_original_what_it_claims_meanwhile(tmp_path: Path) -> None:
    held = Held()

    def check(place: Path, outcome: Outcome) -> None:
        assert outcome.ours is None
        assert outcome.theirs in (SECOND, None)
        assert there(place) in ((None, 2), (2, None)), "the next pause is there, claimed or not"
        assert outcome.theirs is None or there(place) == (None, 2)

    every_interleaving(
        tmp_path, held.take_and_save, held.complete, lambda place: originals.car_claim_steps(place, "run-1"), check
    )


def test_a_run_is_completed_or_recovered_and_not_both(tmp_path: Path) -> None:
    held = Held()

    def check(place: Path, outcome: Outcome) -> None:
        if outcome.ours is None:
            assert there(place) == (None, None)
        else:
            assert isinstance(outcome.ours, ClaimLost)
            assert there(place) == (1, None)

    every_interleaving(tmp_path, held.take, held.complete, originals.car_recover_steps, check)


def test_a_next_pause_is_only_lost_to_a_recovery_that_looked_before(tmp_path: Path) -> None:
    held = Held()

    def check(place: Path, outcome: Outcome) -> None:
        looked, renamed = time_of(outcome, "original: call 2"), time_of(outcome, "original: call 3")
        ours = time_of(outcome, "ours: rename to run-1.json")
        if isinstance(outcome.ours, ClaimLost):
            assert there(place) == (1, None)
        elif looked < ours < renamed:
            assert there(place)[0] == 1, "the original renames over what it has not seen"
        else:
            assert there(place)[0] == 2

    every_interleaving(tmp_path, held.take, held.save, originals.car_recover_steps, check)


def test_the_original_claims_the_pause_before_or_the_one_saved_and_both_are_kept(tmp_path: Path) -> None:
    def save(place: Path, files: SystemFiles) -> None:
        car.Directory(place, files=files).save(SECOND)

    def check(place: Path, outcome: Outcome) -> None:
        assert outcome.ours is None
        assert there(place) == ((2, 1) if outcome.theirs == FIRST else (None, 2))

    every_interleaving(tmp_path, write_first, save, lambda place: originals.car_claim_steps(place, "run-1"), check)


# --- our recovery ----------------------------------------------------------------------------------------------------


def test_recovery_takes_from_a_living_original_only_what_was_dead_when_it_looked(tmp_path: Path) -> None:
    held, stolen = Held(), []

    def theirs(place: Path) -> Steps[Any]:
        """The original recovers and claims; calls of it that only look are left out, as they change nothing."""
        waiting, claimed = place / "run-1.json", place / "run-1.inflight"
        try:
            yield
            claimed.rename(waiting)
        except FileNotFoundError:  # ours was first
            pass
        yield
        claimed.unlink(missing_ok=True)
        yield
        await_tick(waiting)
        waiting.rename(claimed)
        yield
        return raw(claimed) if claimed.exists() else None

    def check(place: Path, outcome: Outcome) -> None:
        claimable, claimed = there(place)
        assert (claimable, claimed) in ((1, None), (None, 1)), "it is never lost"
        if outcome.theirs == FIRST and claimable:
            stolen.append(outcome)
            looked = time_of(outcome, "ours: stat run-1.inflight", last=True)
            assert looked < time_of(outcome, "original: call 1"), "it was still the claim of a dead process of ours"

    every_interleaving(tmp_path, held.take_and_die, recover, theirs, check)
    held.take_and_die(tmp_path)
    assert finish(theirs(tmp_path)) == FIRST
    assert recover(tmp_path, SystemFiles()) == 0


def test_recovery_beside_a_newer_pause_never_costs_the_original_its_claim(tmp_path: Path) -> None:
    held = Held()

    def prepare(place: Path) -> None:
        held.take_and_die(place)
        finish(originals.car_save_steps(place, SECOND))

    def check(place: Path, outcome: Outcome) -> None:
        assert there(place) in ((2, None), (None, 2))
        assert outcome.theirs is None or there(place) == (None, 2)

    every_interleaving(tmp_path, prepare, recover, lambda place: originals.car_claim_steps(place, "run-1"), check)


def test_a_run_that_dead_processes_held_is_recovered_once_by_both(tmp_path: Path) -> None:
    held = Held()

    def check(place: Path, outcome: Outcome) -> None:
        assert there(place) == (1, None)

    every_interleaving(tmp_path, held.take_and_die, recover, originals.car_recover_steps, check)


def test_a_process_killed_between_rename_and_sidecar_leaves_a_claim_that_counts_as_the_originals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(self: Claims, run_id: str, workflow: Any) -> None:
        raise KeyboardInterrupt

    write_first(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Claims, "take", die)
        with pytest.raises(KeyboardInterrupt):
            car.Directory(tmp_path).claim("run-1")
    assert recover(tmp_path, SystemFiles()) == 0
    assert car.Directory(tmp_path).recover_orphaned() == 1
