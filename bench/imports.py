"""`import`: what it costs to import each library in a new process, and to have it installed.

Time is that of a whole process less that of a bare one, in rounds. Packages and bytes are counted in a new virtual
environment into which only that library is installed, with the versions of requirements/bench.txt; where that cannot
be done they are added up from the installed packages' own metadata, and the table says so.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final, NamedTuple

from bench.results import Spread
from bench.table import table

BARE: Final = "bare python"
FLOOR: Final = "sqlite3, msgspec"
IMPORTS: Final = {
    BARE: "pass",
    FLOOR: "import sqlite3, msgspec",
    "holdfast": "import holdfast",
    "holdfast and its SQLite store": "import holdfast, holdfast.store.sqlite.sqlite_store",
    "langgraph saver": "import langgraph.checkpoint.sqlite",
    "langgraph graph": "import langgraph.graph, langgraph.checkpoint.sqlite",
    "dbos": "import dbos",
}
INSTALLS: Final = {
    "holdfast": ("holdfast",),
    "langgraph": ("langgraph", "langgraph-checkpoint-sqlite"),
    "dbos": ("dbos",),
}
BOUND: Final = 2.0


class Installed(NamedTuple):
    """How much a library brings along."""

    packages: int
    megabytes: float
    how: str


class Imported(NamedTuple):
    """All that was found."""

    seconds: dict[str, list[float]]
    installed: dict[str, Installed]
    failures: dict[str, str]

    def over_bare(self, name: str) -> Spread:
        """Milliseconds more than a bare process, round by round."""
        pairs = zip(self.seconds[name], self.seconds[BARE], strict=True)
        return Spread.of([(one - bare) * 1000 for one, bare in pairs])

    def times_floor(self, name: str) -> Spread:
        """Times the floor, of medians: single rounds are a few milliseconds apart by chance alone."""
        floor = self.over_bare(FLOOR).median
        found = self.over_bare(name)
        return Spread(*(value / floor for value in found))


def measure(rounds: int, tell: Callable[[str], None]) -> Imported:
    """Import everything `rounds` times, in an order that rotates."""
    seconds: dict[str, list[float]] = {name: [] for name in IMPORTS}
    failures: dict[str, str] = {}
    for number in range(rounds + 1):  # the first one compiles what has changed, and does not count
        shift = number % len(IMPORTS)
        names = list(IMPORTS)
        for name in names[shift:] + names[:shift]:
            try:
                seconds[name].append(_seconds(IMPORTS[name]))
            except subprocess.CalledProcessError as error:
                failures[name] = error.stderr.decode().strip().rpartition("\n")[2].replace("|", "/")[:200]
    counted = {name: each[1:] for name, each in seconds.items() if name not in failures}
    tell("import: times taken, installing each alone")
    return Imported(counted, {name: _installed(wanted) for name, wanted in INSTALLS.items()}, failures)


def _seconds(code: str) -> float:
    start = perf_counter()
    subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, check=True)
    return perf_counter() - start


# --- installed -------------------------------------------------------------------------------------------------------


def _installed(wanted: tuple[str, ...]) -> Installed:
    uv = shutil.which("uv") or str(Path(".venv/bin/uv"))
    try:
        with tempfile.TemporaryDirectory() as place:
            return _alone(uv, Path(place), wanted)
    except (OSError, subprocess.CalledProcessError):
        return _by_metadata(wanted)


def _alone(uv: str, place: Path, wanted: tuple[str, ...]) -> Installed:
    """Install into a new environment, and count."""
    closure = sorted(_closure(wanted))
    own = [name for name in closure if name == "holdfast"]
    pinned = [f"{name}=={metadata.version(name)}" for name in closure if name not in own]
    _quietly(uv, "venv", "--quiet", "--python", sys.executable, str(place / "venv"))
    python = str(place / "venv" / "bin" / "python")
    _quietly(uv, "pip", "install", "--quiet", "--no-deps", "--link-mode", "copy", "--python", python, *pinned)
    if own:
        _quietly(uv, "pip", "install", "--quiet", "--no-deps", "--link-mode", "copy", "--python", python, ".")
    [packages] = (place / "venv" / "lib").glob("python*/site-packages")
    found = [path for path in packages.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    size = sum(path.stat().st_size for path in found if not path.name.startswith("_virtualenv"))
    return Installed(len(list(packages.glob("*.dist-info"))), size / 1e6, "installed alone")


def _quietly(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=300)


def _by_metadata(wanted: tuple[str, ...]) -> Installed:
    closure = _closure(wanted)
    size = 0
    for name in closure:
        for file in metadata.files(name) or ():
            path = Path(str(file.locate()))
            size += path.stat().st_size if path.is_file() and path.suffix != ".pyc" else 0
    return Installed(len(closure), size / 1e6, "from metadata")


def _closure(wanted: Iterable[str]) -> set[str]:
    """The packages and all that they require here, by their installed metadata."""
    found: set[str] = set()
    left = [_plain(name) for name in wanted]
    while left:
        name = left.pop()
        if name in found:
            continue
        try:
            required = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # required only on other platforms
        found.add(name)
        left += [_plain(re.split(r"[^\w.-]", one, maxsplit=1)[0]) for one in required if "extra ==" not in one]
    return found


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# --- shown -----------------------------------------------------------------------------------------------------------


def text(found: Imported) -> str:
    """The table of times, the verdict, and the table of installations."""
    rows: list[tuple[str, ...]] = []
    for name in found.seconds:
        over = found.over_bare(name)
        whole = median(found.seconds[name]) * 1000
        times = "-" if name == BARE else f"{found.times_floor(name).median:.2f}"
        rows.append((name, f"{whole:.0f}", f"{over.median:.0f} [{over.least:.0f}..{over.greatest:.0f}]", times))
    rows += [(name, f"failed: {reason}", "-", "-") for name, reason in found.failures.items()]
    times = table(("import", "ms in all", "ms over bare", "x floor"), rows)
    counts = [(name, str(one.packages), f"{one.megabytes:.1f}", one.how) for name, one in found.installed.items()]
    sizes = table(("library", "packages", "MB", "how counted"), counts)
    return f"{times}\n\n{len(found.seconds[BARE])} rounds. {verdict(found)}.\n\n{sizes}"


def verdict(found: Imported) -> str:
    """Whether the target was met."""
    times = found.times_floor("holdfast").median
    wanted = f"Target: `import holdfast` <= {BOUND:g} times `import {FLOOR}`: {times:.2f}"
    return f"{wanted}, " + ("met" if times <= BOUND else f"MISSED by {times / BOUND - 1:.0%}")
