"""The slice of `tests/torture` that `make test` runs: every harness for a moment, and every mutant once."""

from __future__ import annotations

import time

import pytest

from tests.torture.campaign import HARNESSES
from tests.torture.figures import Figures

SEED = 20
TODAY = int(time.time() // 86_400)
"""Where only some points are taken, others every day."""


def found_by(harness: str, amount: float, seed: int = SEED) -> Figures:
    """Run a harness and insist that nothing is wrong."""
    figures = HARNESSES[harness].run(amount, seed, timeout_s=120)
    assert figures.problem_count == 0, "\n".join((figures.line(), *figures.problems))
    return figures


def test_what_was_acknowledged_survives_sigkill_and_nothing_is_torn() -> None:
    assert found_by("kills", 30).counts["acknowledged"] > 0


def test_what_was_acknowledged_survives_a_power_cut_at_any_instant() -> None:
    assert found_by("cuts", 1000).counts["images"] >= 1000


def test_a_sync_that_failed_is_never_built_upon() -> None:
    assert found_by("syncs", 12).counts["failing_syncs"] == 12


def test_every_failing_call_of_the_disk_is_a_clear_error_and_changes_nothing() -> None:
    assert found_by("faults", 250).counts["hits"] > 0


def test_a_full_disk_refuses_saves_and_leaves_room_for_prune() -> None:
    assert found_by("full", 2).counts["disks_filled"] == 4


def test_no_two_owners_write_although_workers_are_stopped_and_killed() -> None:
    assert found_by("claims", 5).counts["take_overs"] > 0


def test_eight_writing_processes_never_meet_a_locked_database() -> None:
    assert found_by("writers", 4).counts["acknowledged"] > 0


def test_parent_and_child_both_go_on_after_a_fork() -> None:
    assert found_by("forks", 6).counts["forks"] > 0


def test_prune_and_fork_beside_writers_take_nothing_a_checkpoint_needs() -> None:
    assert found_by("races", 8).counts["chunks_swept"] > 0


def test_what_was_acknowledged_survives_a_power_cut_of_a_directory_at_any_file_operation() -> None:
    assert found_by("dir_crashes", 250).counts["images"] >= 250


def test_a_sync_of_a_directory_that_failed_is_never_built_upon() -> None:
    assert found_by("dir_syncs", 6).counts["failing_syncs"] == 6


def test_every_failing_call_of_a_directory_is_a_clear_error_and_a_full_disk_leaves_room_for_prune() -> None:
    figures = found_by("dir_faults", 120)
    assert figures.counts["hits"] > 0
    assert figures.counts["disks_filled"] == 4


def test_nothing_is_lost_or_done_twice_while_postgresql_crashes_and_connections_are_cut() -> None:
    figures = found_by("pg_chaos", 3)
    assert figures.counts["crashes"] > 0
    assert figures.counts["acknowledged"] > 0


def test_a_process_killed_at_any_command_of_a_workflow_or_rollback_is_followed_by_another_that_ends_it() -> None:
    figures = found_by("engine_kills", 40, seed=TODAY)
    assert figures.counts["kills"] >= 40


def test_a_process_stopped_past_its_lease_writes_nothing_and_begins_no_effect_any_more() -> None:
    assert found_by("engine_stops", 10, seed=TODAY).counts["lease_lost"] > 0


def test_of_eight_processes_that_answer_at_once_one_wins_and_the_others_are_told_who() -> None:
    assert found_by("engine_answers", 16).counts["already_answered"] == 7 * 16


def test_four_workers_end_each_run_once_although_they_are_killed() -> None:
    figures = found_by("engine_workers", 120)
    assert figures.counts["runs"] == 240
    assert figures.counts["kills"] > 0


def test_of_four_processes_that_claim_a_paused_workflow_one_wins_and_nothing_is_lost() -> None:
    assert found_by("formats_claims", 300).counts["won"] == 3 * 300


def test_a_run_that_the_original_claims_at_the_same_instant_is_not_taken_from_it() -> None:
    figures = found_by("formats_beside", 500)
    assert figures.counts["ours"] + figures.counts["theirs"] == 500


def test_what_was_acknowledged_in_the_files_of_other_systems_survives_a_power_cut() -> None:
    assert found_by("formats_cuts", 400, seed=TODAY).counts["images"] >= 400


@pytest.mark.parametrize(
    ("harness", "mutant"),
    [(name, mutant) for name, harness in HARNESSES.items() if name != "attack" for mutant in harness.mutants],
)
def test_a_broken_store_does_not_get_past_its_harness(harness: str, mutant: str) -> None:
    caught, figures = HARNESSES[harness].catches(mutant, SEED)
    assert caught, "\n".join((figures.line(), *figures.problems))
