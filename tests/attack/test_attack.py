"""The slice of the attack that `make test` runs: known cases, random ones, and known defects."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.attack import corpus
from tests.attack.campaign import cases, caught, run, silence
from tests.attack.comparison import attack
from tests.attack.deployment import STORES, Scratch, scratch
from tests.attack.mutants import MUTANTS
from tests.attack.shrink import explain

_FIRST_SEED = 207_740_000
"""Each slice has the same cases every time, so that a failure can be repeated; `make torture ATTACK=n` tries others."""
_SLICES = 6
_CASES = 50


@pytest.fixture(scope="session")
def place() -> Iterator[Scratch]:
    with scratch() as found:
        yield found


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", corpus.NAMES)
def test_what_has_found_a_defect_once_finds_none(name: str, store: str, place: Scratch) -> None:
    case = corpus.case_named(name, store)
    with silence():
        problems = attack(case, place).problems
    assert not problems, f"{problems}\n  python -m tests.attack --case '{json.dumps(case)}'"


@pytest.mark.torture(daily=2)
@pytest.mark.parametrize("number", range(_SLICES))
def test_random_workflows_keep_every_promise_whatever_is_done_to_them(number: int, place: Scratch) -> None:
    first = _FIRST_SEED + number * _CASES
    for case, outcome in run(cases(first, _CASES), place):
        pytest.fail(explain(case, outcome, place, seconds=30))


@pytest.mark.torture(daily=4)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_known_defect_that_is_put_back_is_found(mutant: str, place: Scratch) -> None:
    found, what = caught(mutant, place)
    assert found, what
