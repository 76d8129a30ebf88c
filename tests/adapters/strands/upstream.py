"""Runs Strands' own tests of its session manager on our repository.

    python -m tests.adapters.strands.upstream [CHECKOUT]

The tests come from the source distribution of the version that is installed, or from a checkout or a bare repository of
Strands. They are run in a virtual environment of their own, where our repository takes the place of their mock. Exits
with 1 if fewer pass than are expected; without tests it says why and exits with 0.
"""

from __future__ import annotations

import importlib.metadata
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.adapters.burr.upstream import make_venv, read_repository, read_sdist, run_tests

PACKAGE: Final = "strands-agents"
TESTS: Final = "tests/strands/session/test_repository_session_manager.py"
NEEDED: Final = ("pytest", "pytest-asyncio")
PASSED_EXPECTED: Final = 51
MOCK: Final = """
from holdfast.adapters.strands import HoldfastSessionRepository


class MockedSessionRepository(HoldfastSessionRepository):
    def __init__(self):
        super().__init__("memory:")
"""
CONFTEST: Final = """
import os

os.environ.update(AWS_DEFAULT_REGION="us-west-2", AWS_ACCESS_KEY_ID="none", AWS_SECRET_ACCESS_KEY="none")
"""


def main(source: str = "") -> int:
    """Run the tests and report; returns the exit code."""
    version = importlib.metadata.version(PACKAGE)
    with tempfile.TemporaryDirectory(prefix="holdfast-upstream-") as scratch:
        place = Path(scratch)
        text = read_repository(source, TESTS) if source else read_sdist(place, PACKAGE, version, TESTS)
        if text is None:
            print(f"skipped: {source or f'the source distribution of {PACKAGE} {version}'} has no {TESTS}")
            return 0
        python = make_venv(place, f"{PACKAGE}=={version}", *NEEDED)
        fixtures = place / "tests" / "fixtures"
        fixtures.mkdir(parents=True)
        (fixtures / "mock_session_repository.py").write_text(MOCK)
        (place / "conftest.py").write_text(CONFTEST)
        (place / "test_repository_session_manager.py").write_bytes(text)
        return run_tests(python, place, "-o", "asyncio_mode=auto", expected=PASSED_EXPECTED)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
