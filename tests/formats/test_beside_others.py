"""File calls of SimpleAgents and MUR between ours, in every order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import NotFound
from holdfast.errors import DamagedFile
from holdfast.files.os_files import SystemFiles
from holdfast.formats import mur, simple_agents
from tests.faults.core.scratch import scratch
from tests.formats import originals
from tests.formats.interleaving import Outcome, every_interleaving
from tests.formats.sample_files import EXECUTION, before_step, raw, scope

OLD, OURS, THEIRS = scope(step=1), scope(step=2), scope(step=3)


@pytest.fixture
def place() -> Iterator[Path]:
    with scratch(fast=True) as made:
        yield made


# --- SimpleAgents ----------------------------------------------------------------------------------------------------


def write_old(root: Path) -> None:
    simple_agents.Directory(root).save(OLD)


def save(root: Path, files: SystemFiles) -> None:
    simple_agents.Directory(root, files=files).save(OURS)


def test_of_two_saves_one_is_there_whole(place: Path) -> None:
    left = set()

    def check(root: Path, outcome: Outcome) -> None:
        assert (outcome.ours, outcome.theirs) == (None, True)
        found = raw(root / "run-1.json")
        assert found in (OURS, THEIRS)
        left.add(found["step"])

    every_interleaving(place, write_old, save, lambda root: originals.simple_agents_save_steps(root, THEIRS), check)
    assert left == {2, 3}


def test_the_original_never_loads_half_of_what_we_save(place: Path) -> None:
    def check(root: Path, outcome: Outcome) -> None:
        assert outcome.theirs in (OLD, OURS)

    every_interleaving(place, write_old, save, lambda root: originals.simple_agents_load_steps(root, "run-1"), check)


def test_what_the_original_is_writing_is_old_new_or_damage_and_never_missing(place: Path) -> None:
    seen = set()

    def load(root: Path, files: SystemFiles) -> Any:
        return simple_agents.Directory(root, files=files).load("run-1")

    def check(root: Path, outcome: Outcome) -> None:
        assert outcome.ours in (OLD, THEIRS) or isinstance(outcome.ours, DamagedFile)
        seen.add(type(outcome.ours))

    every_interleaving(place, write_old, load, lambda root: originals.simple_agents_save_steps(root, THEIRS), check)
    assert seen == {dict, DamagedFile}


def test_a_deleted_checkpoint_is_gone_or_is_the_one_the_original_saved(place: Path) -> None:
    def delete(root: Path, files: SystemFiles) -> None:
        simple_agents.Directory(root, files=files).delete("run-1")

    def check(root: Path, outcome: Outcome) -> None:
        assert (outcome.ours, outcome.theirs) == (None, True)
        assert not (root / "run-1.json").exists() or raw(root / "run-1.json") == THEIRS

    every_interleaving(place, write_old, delete, lambda root: originals.simple_agents_save_steps(root, THEIRS), check)


# --- MUR -------------------------------------------------------------------------------------------------------------


def write_steps(root: Path) -> None:
    for step in range(2):
        mur.Directory(root).save(before_step(step))


def test_mur_loads_a_whole_latest_step_while_we_save(place: Path) -> None:
    def save_next(root: Path, files: SystemFiles) -> None:
        mur.Directory(root, files=files).save(before_step(2))

    def check(root: Path, outcome: Outcome) -> None:
        assert outcome.theirs in (before_step(1), before_step(2))

    every_interleaving(
        place, write_steps, save_next, lambda root: originals.mur_load_latest_steps(root, EXECUTION), check
    )


def test_the_latest_step_is_the_one_before_while_mur_writes_the_next(place: Path) -> None:
    seen = set()

    def load(root: Path, files: SystemFiles) -> Any:
        return mur.Directory(root, files=files).load_latest(EXECUTION)

    def check(root: Path, outcome: Outcome) -> None:
        assert outcome.ours in (before_step(1), before_step(2))
        seen.add(outcome.ours["step_index"])

    every_interleaving(
        place, write_steps, load, lambda root: originals.mur_save_steps(root, before_step(2)), check, may_die=True
    )
    assert seen == {1, 2}


def test_of_two_saves_of_one_step_one_is_there_whole(place: Path) -> None:
    ours, theirs = before_step(1, variables={"by": "ours"}), before_step(1, variables={"by": "theirs"})

    def save_step(root: Path, files: SystemFiles) -> None:
        mur.Directory(root, files=files).save(ours)

    def check(root: Path, outcome: Outcome) -> None:
        assert raw(root / EXECUTION / "1.json") in (ours, theirs)

    every_interleaving(place, write_steps, save_step, lambda root: originals.mur_save_steps(root, theirs), check)


def roll_back(root: Path, files: SystemFiles) -> Any:
    return mur.Directory(root, files=files).roll_back(EXECUTION, 0)


def test_while_we_roll_back_mur_finds_a_step_or_an_error_and_never_half_of_one(place: Path) -> None:
    def check(root: Path, outcome: Outcome) -> None:
        assert outcome.ours == before_step(0)
        assert outcome.theirs in (before_step(0), before_step(1)) or isinstance(outcome.theirs, FileNotFoundError)
        assert mur.Directory(root).load_latest(EXECUTION) == before_step(0)

    every_interleaving(
        place, write_steps, roll_back, lambda root: originals.mur_load_latest_steps(root, EXECUTION), check
    )


def test_a_step_that_mur_saves_while_we_roll_back_stays_or_is_put_aside_whole(place: Path) -> None:
    def check(root: Path, outcome: Outcome) -> None:
        assert (outcome.ours, outcome.theirs) == (before_step(0), True)
        aside = root / ".holdfast" / "rolled_back" / EXECUTION
        found = [raw(path) for path in (root / EXECUTION / "2.json", *aside.rglob("2.json")) if path.exists()]
        assert found == [before_step(2)]
        assert [raw(path) for path in aside.rglob("1.json")] == [before_step(1)]

    every_interleaving(
        place, write_steps, roll_back, lambda root: originals.mur_save_steps(root, before_step(2)), check
    )


def test_a_rollback_beside_a_cleanup_of_mur_ends_with_a_step_or_says_that_there_is_none(place: Path) -> None:
    def check(root: Path, outcome: Outcome) -> None:
        assert outcome.ours == before_step(0) or isinstance(outcome.ours, NotFound)

    every_interleaving(place, write_steps, roll_back, lambda root: originals.mur_cleanup_steps(root, EXECUTION), check)


def test_a_cleanup_of_ours_leaves_nothing_but_what_mur_saves_after_it(place: Path) -> None:
    def cleanup(root: Path, files: SystemFiles) -> None:
        mur.Directory(root, files=files).cleanup(EXECUTION)

    def check(root: Path, outcome: Outcome) -> None:
        assert outcome.ours is None
        left = [json.loads(path.read_text()) for path in root.rglob("*.json")]
        assert left in ([], [before_step(2)])
        assert outcome.theirs is True or isinstance(outcome.theirs, FileNotFoundError)

    every_interleaving(place, write_steps, cleanup, lambda root: originals.mur_save_steps(root, before_step(2)), check)
