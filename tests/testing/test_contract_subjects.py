"""The subjects of the contract can be run alone."""

from __future__ import annotations

from collections import Counter

from holdfast.testing import StoreContract
from holdfast.testing.contract import SUBJECTS
from holdfast.testing.contract.base import ContractBase


def test_no_two_subjects_of_the_contract_define_the_same_name() -> None:
    """Otherwise a test would mean one thing alone and another in `StoreContract`."""
    names = Counter(name for subject in SUBJECTS for name in vars(subject) if not name.startswith("__"))
    assert {name: count for name, count in names.items() if count > 1} == {}
    assert all(issubclass(subject, ContractBase) for subject in SUBJECTS)
    assert {name for name in dir(StoreContract) if name.startswith("test")} <= names.keys()
