"""Runs Burr's own tests of persisters on ours.

    python -m tests.adapters.burr.upstream [CHECKOUT]

The tests come from the source distribution of the version that is installed, or from a checkout or a bare repository of
Burr. They are run in a virtual environment of their own, where our persisters take the place of Burr's in-memory
ones. Exits with 1 if fewer pass than are expected; without tests it says why and exits with 0. The source distribution
of 0.43.0 has no tests.
"""

from __future__ import annotations

import importlib.metadata
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
PACKAGE: Final = "apache-burr"
TESTS: Final = "tests/core/test_persistence.py"
NEEDED: Final = ("aiosqlite", "pytest", "pytest-asyncio")
PASSED_EXPECTED: Final = 29
CONFTEST: Final = """
import burr.core.persistence as persistence
from holdfast.adapters.burr import AsyncHoldfastPersister, HoldfastPersister

persistence.InMemoryPersister = lambda: HoldfastPersister("memory:")
persistence.AsyncInMemoryPersister = lambda: AsyncHoldfastPersister("memory:")
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
        (place / "test_persistence.py").write_bytes(text)
        return run_tests(python, place, "-o", "asyncio_mode=auto", expected=PASSED_EXPECTED)


def read_sdist(place: Path, package: str, version: str, path: str) -> bytes | None:
    """A file of a source distribution; None if it has none, or cannot be downloaded."""
    command = ["pip", "download", "--no-deps", "--no-binary", package, "--dest", str(place), f"{package}=={version}"]
    ran = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)
    if ran.returncode:
        print(ran.stderr.splitlines()[-1])
        return None
    with tarfile.open(next(place.glob("*.tar.gz"))) as archive:
        names = [name for name in archive.getnames() if name.endswith(f"/{path}")]
        found = archive.extractfile(names[0]) if names else None
        return None if found is None else found.read()


def read_repository(source: str, path: str) -> bytes | None:
    """A file of a checkout, or of the newest commit of a bare repository."""
    if (Path(source) / path).is_file():
        return (Path(source) / path).read_bytes()
    command = ["git", "-C", source, "archive", "--format=tar", "HEAD", path]
    ran = subprocess.run(command, capture_output=True, check=False)
    if ran.returncode:
        return None
    with tarfile.open(fileobj=io.BytesIO(ran.stdout)) as archive:
        found = archive.extractfile(path)
        return None if found is None else found.read()


def make_venv(place: Path, *packages: str) -> Path:
    """A virtual environment with Holdfast and these packages; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", place / "venv"], check=True)
    python = place / "venv" / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(ROOT), *packages]
    subprocess.run(command, check=True)
    return python


def run_tests(python: Path | str, place: Path, *options: str, expected: int) -> int:
    """Run the tests in `place`; returns 0 if as many pass as are expected."""
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--ignore=venv", *options, "."]
    ran = subprocess.run(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(ran.stdout[-4000:])
    found = re.search(r"(\d+) passed", ran.stdout)
    passed = int(found[1]) if found else 0
    print(f"{passed} passed, {expected} are expected")
    return 0 if passed >= expected else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
