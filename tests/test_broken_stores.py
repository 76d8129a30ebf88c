"""A broken store does not get past the contract."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.store.memory import MemoryStore
from tests.broken_stores import BROKEN

SUITE = """
from holdfast.testing import StoreContract
from {module} import {name}

class TestStore(StoreContract):
    def open_port(self, clock):
        return {name}(clock)
"""


def passes(store: type[MemoryStore], directory: Path) -> tuple[bool, str]:
    """Whether the store passes the contract, run as somebody with a store of their own would run it."""
    (directory / "test_store.py").write_text(SUITE.format(module=store.__module__, name=store.__name__))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--rootdir", str(directory)]
    ran = subprocess.run(
        [*command, str(directory / "test_store.py")], capture_output=True, text=True, timeout=120, check=False
    )
    return ran.returncode == 0, ran.stdout


def test_a_sound_store_passes(tmp_path: Path) -> None:
    passed, said = passes(MemoryStore, tmp_path)
    assert passed, said


@pytest.mark.parametrize("store", BROKEN)
def test_a_broken_store_does_not_get_past_the_contract(store: type[MemoryStore], tmp_path: Path) -> None:
    passed, said = passes(store, tmp_path)
    assert not passed
    assert " failed" in said, said
