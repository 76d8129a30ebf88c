"""Facts about the machine and the versions, which go with every number."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import apsw
from tests.store.postgres.server import newest

_PACKAGES: Final = (
    "holdfast",
    "apsw",
    "backports.zstd",
    "blake3",
    "msgspec",
    "ormsgpack",
    "langgraph",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
    "psycopg",
    "langchain-core",
    "aiosqlite",
    "dbos",
    "sqlalchemy",
)


def facts(directory: Path) -> dict[str, Any]:
    """What a reader needs to judge a number by; no names and no paths."""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "postgres": newest(),
        "python": platform.python_version(),
        "sqlite_stdlib": sqlite3.sqlite_version,
        "sqlite_apsw": apsw.sqlite_lib_version(),
        "cpus": os.cpu_count(),
        "cpu": _cpu(),
        "kernel": platform.release(),
        "filesystem": _filesystem(directory),
        "load": [round(one, 2) for one in os.getloadavg()],
        "revision": _revision(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
    }


def is_disk(directory: Path) -> bool:
    """Whether files there outlive a power cut."""
    return _filesystem(directory) not in ("tmpfs", "ramfs")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _revision() -> str:
    """The commit that was measured; a star if files were changed since."""
    try:
        ran = subprocess.run(["git", "describe", "--always", "--dirty=*"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return ran.stdout.strip()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _filesystem(directory: Path) -> str:
    """The type of the file system, by the longest mount point that leads there."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
    except OSError:
        return "unknown"
    place = directory.resolve()
    leading = [(len(point), kind) for point, kind in mounts if place.is_relative_to(point)]
    return max(leading)[1] if leading else "unknown"
