"""The slice of `tests/faults` that `make test` runs: every harness for a moment, and the mutants of the day.

The day is the seed: each day tries other points, and `make torture` tries them all.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.core.campaign import HARNESSES
from tests.faults.core.report import Figures
from tests.today import TODAY, select_daily

STORE = select_daily(("sqlite", "postgres"), 1)
"""The store of the day, for harnesses that need several seconds on each."""
_TRIES = 4


def found_by(harness: str, amount: float, *, shows: str = "", **more: Any) -> Figures:
    """Run a harness and insist that nothing is wrong. What it `shows` by chance must show, in the end."""
    for attempt in range(_TRIES):
        figures = HARNESSES[harness].run(amount * 2**attempt, TODAY, timeout_s=240, **more)
        assert figures.problem_count == 0, "\n".join((f"seed {TODAY}", figures.line(), *figures.problems))
        if not shows or figures.counts.get(shows):
            return figures
    raise AssertionError(f"no {shows} (seed {TODAY}): {figures.line()}")


def test_what_was_acknowledged_survives_sigkill_and_nothing_is_torn() -> None:
    found_by("kills", 10, shows="acknowledged")


def test_what_was_acknowledged_survives_a_power_cut_at_any_instant() -> None:
    assert found_by("cuts", 300).counts["images"] >= 300


def test_a_sync_that_failed_is_never_built_upon() -> None:
    assert found_by("syncs", 4, images_each=80).counts["failing_syncs"] == 4


def test_every_failing_call_of_the_disk_is_a_clear_error_and_changes_nothing() -> None:
    found_by("faults", 50, shows="hits")


def test_a_full_disk_refuses_saves_and_leaves_room_for_prune() -> None:
    assert found_by("full", 2).counts["disks_filled"] == 4


def test_no_two_owners_write_although_workers_are_stopped_and_killed() -> None:
    found_by("claims", 2.5, shows="take_overs")


def test_eight_writing_processes_never_meet_a_locked_database() -> None:
    found_by("writers", 1.5, shows="acknowledged")


def test_parent_and_child_both_go_on_after_a_fork() -> None:
    found_by("forks", 6, shows="forks")


def test_prune_and_fork_beside_writers_take_nothing_a_checkpoint_needs() -> None:
    found_by("races", 3, shows="chunks_swept")


def test_what_was_acknowledged_survives_a_power_cut_of_a_directory_at_any_file_operation() -> None:
    assert found_by("dir_crashes", 80).counts["images"] >= 80


def test_a_sync_of_a_directory_that_failed_is_never_built_upon() -> None:
    assert found_by("dir_syncs", 2, images_each=50).counts["failing_syncs"] == 2


def test_every_failing_call_of_a_directory_is_a_clear_error_and_a_full_disk_leaves_room_for_prune() -> None:
    assert found_by("dir_faults", 40, shows="hits").counts["disks_filled"] == 4


def test_nothing_is_lost_or_done_twice_while_postgresql_crashes_and_connections_are_cut() -> None:
    assert found_by("pg_chaos", 2, shows="crashes").counts["acknowledged"] > 0


def test_a_process_killed_at_any_command_of_a_workflow_or_rollback_is_followed_by_another_that_ends_it() -> None:
    figures = found_by("engine_kills", 8, sites=STORE)
    assert figures.counts["kills"] >= 8


def test_a_process_stopped_past_its_lease_writes_nothing_and_begins_no_effect_any_more() -> None:
    found_by("engine_stops", 4, shows="lease_lost", sites=STORE)


def test_of_eight_processes_that_answer_at_once_one_wins_and_the_others_are_told_who() -> None:
    assert found_by("engine_answers", 6, sites=STORE).counts["already_answered"] == 7 * 6


def test_four_workers_end_each_run_once_although_they_are_killed() -> None:
    assert found_by("engine_workers", 32, shows="kills", sites=STORE).counts["runs"] % 32 == 0


def test_of_four_processes_that_claim_a_paused_workflow_one_wins_and_nothing_is_lost() -> None:
    assert found_by("formats_claims", 100).counts["won"] == 3 * 100


def test_a_run_that_the_original_claims_at_the_same_instant_is_not_taken_from_it() -> None:
    figures = found_by("formats_beside", 300)
    assert figures.counts["ours"] + figures.counts["theirs"] == 300


def test_what_was_acknowledged_in_the_files_of_other_systems_survives_a_power_cut() -> None:
    assert found_by("formats_cuts", 120).counts["images"] >= 120


@pytest.mark.torture(daily=5)
@pytest.mark.parametrize(
    ("harness", "mutant"),
    [(name, mutant) for name in HARNESSES if name != "attack" for mutant in HARNESSES[name].mutants],
)
def test_a_broken_store_does_not_get_past_its_harness(harness: str, mutant: str) -> None:
    caught, figures = HARNESSES[harness].catches(mutant, TODAY)
    assert caught, "\n".join((figures.line(), *figures.problems))
