"""Runs ADK's own tests of session services on ours.

    python -m tests.adapters.adk.upstream [CHECKOUT]

The tests come from the source distribution of the version that is installed, or from a checkout or a bare repository of
ADK. They are run in a virtual environment of their own, where our service takes the place of the one in memory. Exits
with 1 if fewer pass than are expected; without tests it says why and exits with 0. The source distribution of 2.13.0
has no tests. Of the copy of 2025-06, two of eight fail on every service of 2.13.0, also ADK's own.
"""

from __future__ import annotations

import importlib.metadata
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.adapters.burr.upstream import make_venv, read_repository, read_sdist, run_tests

PACKAGE: Final = "google-adk"
TESTS: Final = "tests/unittests/sessions/test_session_service.py"
NEEDED: Final = ("aiosqlite", "pytest", "pytest-asyncio", "sqlalchemy")
PASSED_EXPECTED: Final = 6
CONFTEST: Final = """
import google.adk.sessions
import google.adk.sessions.in_memory_session_service as in_memory
from holdfast.adapters.adk import HoldfastSessionService

google.adk.sessions.InMemorySessionService = in_memory.InMemorySessionService = (
    lambda: HoldfastSessionService("memory:")
)
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
        (place / "conftest.py").write_text(CONFTEST)
        (place / "test_session_service.py").write_bytes(text)
        return run_tests(python, place, "-o", "asyncio_mode=auto", "-k", "IN_MEMORY", expected=PASSED_EXPECTED)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
