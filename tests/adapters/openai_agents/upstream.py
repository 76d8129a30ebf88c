"""Runs the SDK's own tests of sessions on HoldfastSession.

    python -m tests.adapters.openai_agents.upstream [DIRECTORY of an unpacked source distribution]

The tests come from the source distribution of the version that is installed. They are run in a virtual environment of
their own, where HoldfastSession takes the place of SQLiteSession. Exits with 1 if other tests fail than those listed
here, which look inside SQLiteSession; without a source distribution it reports why and exits with 0. With 0.24.0, 53
of 71 pass.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
PACKAGE: Final = "openai-agents"
TESTS: Final = ("tests/memory/test_session.py", "tests/memory/test_session_limit.py")
NEEDED: Final = ("pytest", "pytest-asyncio", "inline-snapshot")
PLUGIN: Final = """
import agents
from holdfast.adapters.openai_agents import HoldfastSession


class Session(HoldfastSession):
    def __init__(self, session_id, db_path=":memory:", **options):
        url = "memory:" if str(db_path) == ":memory:" else f"sqlite:{db_path}.holdfast"
        super().__init__(session_id, url, **options)


agents.SQLiteSession = Session
"""
INSIDE_SQLITE: Final = {
    f"test_sqlite_session_{name}"
    for name in (
        "close_closes_worker_thread_connections",
        "close_retries_quarantined_connection",
        "closes_retired_connections_before_the_next_allocation",
        "failed_clear_session_rolls_back",
        "failed_pop_item_releases_write_lock",
        "file_lock_is_shared_across_instances",
        "get_items_limit_skips_corrupt_newest_rows",
        "get_items_session_settings_limit_skips_corrupt_rows",
        "keeps_connections_of_live_worker_threads",
        "pop_item_returns_none_after_dropping_only_corrupt_rows",
        "pop_item_skips_corrupt_most_recent",
        "post_commit_cancellation_propagates_after_known_outcome",
        "reaps_connections_from_exited_worker_threads",
        "rollback_failure_evicts_connection",
    )
}
"""Tests that read or replace the tables, connections, threads or locks of SQLiteSession."""
OTHER_ERRORS: Final = {
    f"test_sqlite_session_{name}" for name in ("closed_rejects_empty_add_items", "failed_add_items_releases_write_lock")
}
"""Tests that expect the error of SQLiteSession: another class, or its name in the text."""


def main(source: str = "") -> int:
    """Run the tests and report; returns the exit code."""
    version = importlib.metadata.version(PACKAGE)
    with tempfile.TemporaryDirectory(prefix="holdfast-upstream-") as scratch:
        place = Path(source) if source else download(Path(scratch), version)
        if place is None or not all((place / path).is_file() for path in TESTS):
            print(f"skipped: {source or f'the source distribution of {PACKAGE} {version}'} has no {', '.join(TESTS)}")
            return 0
        python = make_venv(Path(scratch), f"{PACKAGE}=={version}", *NEEDED)
        (Path(scratch) / "holdfast_upstream_plugin.py").write_text(PLUGIN)
        return run_tests(python, place, Path(scratch))


def download(place: Path, version: str) -> Path | None:
    """The unpacked source distribution; None if it cannot be had."""
    command = ["pip", "download", "--no-deps", "--no-binary", ":all:", "--dest", str(place), f"{PACKAGE}=={version}"]
    ran = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)
    if ran.returncode:
        print(ran.stderr[-500:])
        return None
    with tarfile.open(next(place.glob("*.tar.gz"))) as archive:
        archive.extractall(place / "source", filter="data")
    return next((place / "source").iterdir())


def make_venv(place: Path, *packages: str) -> Path:
    """A virtual environment with Holdfast and these packages; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", place / "venv"], check=True)
    python = place / "venv" / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(ROOT), *packages]
    subprocess.run(command, check=True)
    return python


def run_tests(python: Path, place: Path, scratch: Path) -> int:
    """Run the tests; returns 0 if those fail that are expected to."""
    options = ("-q", "-p", "no:cacheprovider", "-p", "holdfast_upstream_plugin", "-rfE", "--tb=line")
    command: list[str] = [str(python), "-m", "pytest", *options, *TESTS]
    ran = subprocess.run(
        command,
        cwd=place,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(scratch), "OPENAI_API_KEY": "unused"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(ran.stdout[-6000:])
    failed = set(re.findall(r"^(?:FAILED|ERROR) \S+::(\w+)", ran.stdout, re.MULTILINE))
    passed = re.search(r"(\d+) passed", ran.stdout)
    unexpected = sorted(failed - INSIDE_SQLITE - OTHER_ERRORS)
    print(f"{passed[1] if passed else 0} passed; unexpected failures: {', '.join(unexpected) or 'none'}")
    return 0 if passed and not unexpected else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
