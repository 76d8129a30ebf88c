"""Runs LangGraph's own tests on HoldfastSaver, and reports outcomes that differ.

    python -m tests.adapters.langgraph.upstream [VERSION or path of a checkout] [--store sqlite] [--strict-msgpack]

The tests come from the source distributions of langgraph and langgraph-prebuilt, or from a checkout of their
repository. They are run in a virtual environment of their own: with LangGraph's savers, and with ours in their place
(see upstream_plugin.py), on each store. A test that ends otherwise is run again by itself, because some of them depend
on how fast the machine is. Exits with 1 if a test fails only on our savers. Takes some minutes; `make test` does not
run it. Packages are installed with pip, as it is configured.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from tests.store.postgres import shared_servers

ROOT: Final = Path(__file__).parents[3]
_PACKAGES: Final = {"langgraph": "libs/langgraph", "langgraph-prebuilt": "libs/prebuilt"}
"""The packages whose tests are run, and where they are in a checkout."""
_NOT_NEEDED: Final = ("langgraph-cli", "py-spy", "pyperf", "pytest-cov", "pytest-watcher", "uvloop")
"""What LangGraph's test dependencies have beside what its tests with savers import."""
_FAILURES_CHARS: Final = 20_000
_OWN: Final = "LangGraph's own savers"


def main(arguments: list[str]) -> int:
    """Run the tests and report; gives the exit code."""
    given = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="holdfast-upstream-") as scratch:
        suite = _Suite(Path(scratch), given.source, jobs=given.jobs, strict=given.strict_msgpack)
        suite.install()
        differ = sum(suite.compare(package, given.store or ["sqlite", "postgres"]) for package in _PACKAGES)
    print(f"{differ} tests end otherwise on Holdfast")
    return 1 if differ else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.adapters.langgraph.upstream", description=(__doc__ or "").strip()
    )
    version = importlib.metadata.version("langgraph")
    parser.add_argument(
        "source", nargs="?", default=version, help=f"a version or a checkout's path; {version} if absent"
    )
    parser.add_argument("--store", action="append", choices=["memory", "sqlite", "dir", "postgres"], help="repeatable")
    parser.add_argument("--strict-msgpack", action="store_true", help="set LANGGRAPH_STRICT_MSGPACK in all runs")
    parser.add_argument("--jobs", default="2", help="processes that run tests at once")
    return parser


class _Suite:
    """A virtual environment with LangGraph, its tests and Holdfast."""

    def __init__(self, scratch: Path, source: str, *, jobs: str, strict: bool) -> None:
        self._scratch = scratch
        self._source = source
        self._jobs = jobs
        self._strict = strict
        self._python = scratch / "venv" / "bin" / "python"
        self._runs = 0

    def install(self) -> None:
        """Install LangGraph and Holdfast, and lay out the tests."""
        subprocess.run([sys.executable, "-m", "venv", self._scratch / "venv"], check=True)
        checkout = Path(self._source) if Path(self._source).is_dir() else None
        if checkout is not None:
            parts = [checkout / "libs" / name for name in ("checkpoint", "checkpoint-sqlite", "checkpoint-postgres")]
            self._pip("install", *parts, *(checkout / path for path in _PACKAGES.values()))
        else:
            self._pip("install", f"langgraph=={self._source}")
        for package, path in _PACKAGES.items():
            found = checkout / path if checkout is not None else self._unpack(package)
            for name in ("tests", "pyproject.toml"):
                copy = shutil.copytree if name == "tests" else shutil.copy
                (self._scratch / package).mkdir(exist_ok=True)
                copy(found / name, self._scratch / package / name)
        version = self._version("langgraph")
        wanted = [name for package in _PACKAGES for name in self._test_dependencies(package)]
        self._pip("install", f"{ROOT}[langgraph,postgres]", f"langgraph=={version}", *wanted)
        shutil.copy(Path(__file__).with_name("upstream_plugin.py"), self._scratch)
        names = ("langgraph", "langgraph-prebuilt", "langgraph-checkpoint")
        print(", ".join(f"{name} {self._version(name)}" for name in names), flush=True)

    def _pip(self, *arguments: object) -> None:
        command = [str(self._python), "-m", "pip", *map(str, arguments), "--quiet", "--disable-pip-version-check"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}")

    def _version(self, package: str) -> str:
        script = f"import importlib.metadata; print(importlib.metadata.version({package!r}))"
        done = subprocess.run([self._python, "-c", script], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def _unpack(self, package: str) -> Path:
        """The source distribution of the version that is installed."""
        folder = self._scratch / "sources" / package
        wanted = f"{package}=={self._version(package)}"
        self._pip("download", "--no-deps", "--no-binary", package, "--dest", folder, wanted)
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
        return next(path for path in folder.iterdir() if path.is_dir())

    def _settings(self, package: str) -> dict[str, Any]:
        return tomllib.loads((self._scratch / package / "pyproject.toml").read_text())

    def _test_dependencies(self, package: str) -> list[str]:
        group = self._settings(package)["dependency-groups"]["test"]
        mine = ("langgraph-prebuilt", "langgraph-checkpoint", "langgraph-sdk")
        return [
            name
            for name in group
            if isinstance(name, str) and not name.startswith(_NOT_NEEDED) and name not in (*mine, "langgraph")
        ]

    # --- runs --------------------------------------------------------------------------------------------------------

    def compare(self, package: str, stores: Iterable[str]) -> int:
        """Run a package's tests on LangGraph's savers and on ours; gives how many differ."""
        expected = self._run(package, "")
        self._report(package, _OWN, expected)
        differ = 0
        for store in stores:
            found = self._run(package, store)
            self._report(package, f"HoldfastSaver on {store}", found)
            odd = _differing(expected, found)
            if odd:
                print(
                    f"{len(odd)} end otherwise, and are run again by themselves: {', '.join(odd)}\n{self._failures()}"
                )
                expected_again, found = self._run(package, "", odd), self._run(package, store, odd)
                odd = _differing({name: expected_again.get(name, "missing") for name in odd}, found)
            for name in odd:
                print(f"  {package}: {name} {found.get(name, 'missing')} on {store}")
            if odd:
                print(self._failures())
            differ += len(odd)
        return differ

    def _report(self, package: str, savers: str, outcomes: dict[str, str]) -> None:
        passed = sum(outcome == "passed" for outcome in outcomes.values())
        print(f"{package}: {passed} of {len(outcomes)} passed with {savers}", flush=True)

    def _run(self, package: str, store: str, names: Iterable[str] = ()) -> dict[str, str]:
        """Run the tests, or these; gives how each ended."""
        self._runs += 1
        outcomes, log = (self._scratch / f"run-{self._runs}.{ending}" for ending in ("json", "log"))
        named = list(names)
        command = [
            str(self._python), "-m", "pytest", *(named or ["tests"]), "-p", "upstream_plugin", "-q", "--no-header",
            "--tb=short", *([] if named else ["-n", self._jobs]),
        ]  # fmt: skip
        if "asyncio_mode" not in self._settings(package)["tool"]["pytest"]["ini_options"]:
            command += ["-p", "no:asyncio"]
        with log.open("w") as output:
            subprocess.run(
                command, cwd=self._scratch / package, env=self._environment(store, outcomes),
                stdout=output, stderr=output, check=False,
            )  # fmt: skip
        if not outcomes.exists():
            raise SystemExit(f"{package}: the tests could not be run:\n{log.read_text()[-4000:]}")
        found: dict[str, str] = json.loads(outcomes.read_text())
        return found

    def _failures(self) -> str:
        """Return the output of the last run about failed tests."""
        output = (self._scratch / f"run-{self._runs}.log").read_text().partition("= FAILURES =")[2]
        return output[:_FAILURES_CHARS]

    def _environment(self, store: str, outcomes: Path) -> dict[str, str]:
        """No services that LangGraph's tests would want, and where our stores are."""
        folder = self._scratch / f"stores-{self._runs}"
        folder.mkdir()
        urls = {"": "", "memory": "memory:", "postgres": ""}
        url = urls.get(store, f"{store}:{folder}/{{}}")
        if store == "postgres":
            url = shared_servers.new_url(schema="upstream_{}").replace("%7B%7D", "{}")
        strict = "true" if self._strict else "false"
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(("LANGSMITH", "LANGCHAIN"))},
            "PYTHONPATH": str(self._scratch), "UPSTREAM_STORE": url, "UPSTREAM_OUTCOMES": str(outcomes),
            "NO_DOCKER": "true", "LANGGRAPH_TEST_FAST": "true", "LANGGRAPH_STRICT_MSGPACK": strict,
        }  # fmt: skip


def _differing(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    """The tests that pass on LangGraph's savers and do not on ours."""
    return [name for name, outcome in expected.items() if outcome == "passed" and found.get(name) != "passed"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
