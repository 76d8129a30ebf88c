"""Runs CrewAI's own tests of flow persistence on ours.

    python -m tests.adapters.crewai.upstream [CHECKOUT]

The tests come from the source distribution of the version that is installed, or from a checkout or a bare repository of
CrewAI. They are run by this Python, because CrewAI takes a gigabyte; our persistence takes the place of CrewAI's. Exits
with 1 if fewer pass than are expected; without tests it says why and exits with 0.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.adapters.burr.upstream import ROOT, read_repository, read_sdist, run_tests

PACKAGE: Final = "crewai"
TESTS: Final = "tests/test_flow_persistence.py"
PASSED_EXPECTED: Final = 18
CONFTEST: Final = """
from crewai.flow.persistence import sqlite
from holdfast.adapters.crewai import HoldfastFlowPersistence

sqlite.SQLiteFlowPersistence = lambda path: HoldfastFlowPersistence(f"sqlite:{path}")
"""


def main(source: str = "") -> int:
    """Run the tests and report; returns the exit code."""
    version = importlib.metadata.version(PACKAGE)
    with tempfile.TemporaryDirectory(prefix="holdfast-upstream-") as scratch:
        place, library = Path(scratch) / "tests", Path(scratch) / "library"
        place.mkdir()
        text = read_repository(source, TESTS) if source else read_sdist(Path(scratch), PACKAGE, version, TESTS)
        if text is None:
            print(f"skipped: {source or f'the source distribution of {PACKAGE} {version}'} has no {TESTS}")
            return 0
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(library), "pytest-asyncio"]
        subprocess.run(command, check=True)
        (place / "conftest.py").write_text(CONFTEST)
        (place / "test_flow_persistence.py").write_bytes(text)
        os.environ |= {"PYTHONPATH": f"{library}{os.pathsep}{ROOT / 'src'}", "CREWAI_STORAGE_DIR": scratch}
        os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}
        return run_tests(sys.executable, place, "-o", "asyncio_mode=auto", expected=PASSED_EXPECTED)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
