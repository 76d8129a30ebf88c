"""Runs the tests of Microsoft Agent Framework about checkpoints in memory on our storage.

    python -m tests.adapters.agent_framework.upstream [CHECKOUT]

The tests come from the source distribution of the version that is installed, or from a checkout or a bare repository of
the framework. They are run in a virtual environment of their own, where our storage takes the place of the one in
memory. Exits with 1 if fewer pass than are expected; without tests it says why and exits with 0. The source
distribution of 1.23.0 has no tests.
"""

from __future__ import annotations

import importlib.metadata
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.adapters.burr.upstream import make_venv, read_repository, read_sdist, run_tests

PACKAGE: Final = "agent-framework-core"
TESTS: Final = "tests/workflow/test_checkpoint.py"
IN_REPOSITORY: Final = f"python/packages/core/{TESTS}"
NEEDED: Final = ("pytest", "pytest-asyncio")
PASSED_EXPECTED: Final = 24
CONFTEST: Final = """
import itertools

import pytest
import test_checkpoint

from holdfast.adapters.agent_framework import HoldfastCheckpointStorage

numbers = itertools.count()
types = [found for found in vars(test_checkpoint).values() if getattr(found, "__module__", "") == "test_checkpoint"]
types = [found for found in types if isinstance(found, type)]


@pytest.fixture(autouse=True)
def ours(monkeypatch):
    def storage():
        return HoldfastCheckpointStorage("memory:", f"run-{next(numbers)}", types=types)

    monkeypatch.setattr(test_checkpoint, "InMemoryCheckpointStorage", storage)
"""


def main(source: str = "") -> int:
    """Run the tests and report; returns the exit code."""
    version = importlib.metadata.version(PACKAGE)
    with tempfile.TemporaryDirectory(prefix="holdfast-upstream-") as scratch:
        place = Path(scratch)
        text = read_repository(source, IN_REPOSITORY) if source else read_sdist(place, PACKAGE, version, TESTS)
        if text is None:
            print(f"skipped: {source or f'the source distribution of {PACKAGE} {version}'} has no {TESTS}")
            return 0
        python = make_venv(place, f"{PACKAGE}=={version}", *NEEDED)
        (place / "conftest.py").write_text(CONFTEST)
        (place / "test_checkpoint.py").write_bytes(text)
        options = ("-o", "asyncio_mode=auto", "-k", "memory or workflow")
        return run_tests(python, place, *options, expected=PASSED_EXPECTED)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
