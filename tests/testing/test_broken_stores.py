"""A broken store does not get past the contract."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.store.memory import MemoryStore
from tests.testing.broken_stores import BROKEN

PARTS = 4
SUITE = """
from holdfast.testing import StoreContract
from {module} import {name}

class TestStore(StoreContract):
    def open_port(self, clock):
        return {name}(clock)
"""


def passes(store: type[MemoryStore], directory: Path) -> tuple[bool, str]:
    """Whether the store passes the contract, run as the author of a store runs it."""
    (directory / "test_store.py").write_text(SUITE.format(module=store.__module__, name=store.__name__))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--rootdir", str(directory)]
    ran = subprocess.run(
        [*command, str(directory / "test_store.py")], capture_output=True, text=True, timeout=120, check=False
    )
    return ran.returncode == 0, ran.stdout


def test_a_sound_store_passes(tmp_path: Path) -> None:
    passed, said = passes(MemoryStore, tmp_path)
    assert passed, said


ALL = """
import contextlib, io, json, sys
import pytest

for name, path in json.loads(sys.argv[1]).items():
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "--rootdir", sys.argv[2], path])
    print(json.dumps([name, int(code), said.getvalue()]), flush=True)
"""


@pytest.mark.timeout(1200)  # a part of the stores, one after the other
@pytest.mark.torture(daily=1)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_broken_store_does_not_get_past_the_contract(tmp_path: Path, part: int) -> None:
    suites = {}
    for store in BROKEN[part::PARTS]:
        suite = tmp_path / f"test_{store.__name__}.py"
        suite.write_text(SUITE.format(module=store.__module__, name=store.__name__))
        suites[store.__name__] = str(suite)
    # One process for all of them: to load the contract takes longer than to find what is broken.
    command = [sys.executable, "-c", ALL, json.dumps(suites), str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    ended = {name: (code, said) for name, code, said in map(json.loads, ran.stdout.splitlines())}
    assert ended.keys() == suites.keys(), ran.stderr
    not_found = [name for name, (code, said) in ended.items() if code != 1 or " failed" not in said]
    assert not_found == [], [ended[name] for name in not_found]
