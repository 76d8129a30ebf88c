"""How often Holdfast syncs for a save: counted below SQLite, in a process of its own.

Prints JSON: for a number of saves, how many of them synced once, twice and so on. SQLite syncs the WAL once for each
commit; a WAL checkpoint adds one sync of the WAL and one of the database, and the commit after it one of the WAL's
new header.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import apsw

from bench import data
from holdfast import Store
from holdfast.clock import SystemClock
from holdfast.limits import RESERVE_BYTES
from holdfast.store.sqlite.sqlite_store import SqliteStore


class CountingFile(apsw.VFSFile):
    """A file of the real VFS that counts its syncs."""

    synced = 0

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        CountingFile.synced += 1
        super().xSync(flags)


class CountingVFS(apsw.VFS):
    """The real VFS, with files that count."""

    def __init__(self) -> None:
        super().__init__("counting", "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> Any:  # noqa: N802 - SQLite's name
        return CountingFile("", name, flags)


def count(directory: Path, saves: int) -> dict[str, Any]:
    """Save, and count."""
    vfs = CountingVFS()
    port = SqliteStore(str(directory / "runs.db"), SystemClock(), reserve_bytes=RESERVE_BYTES, vfs="counting")
    found: Counter[int] = Counter()
    with Store(port) as store:
        store.save(data.RUN, data.state(0))
        for number in range(1, saves + 1):
            before = CountingFile.synced
            store.save(data.RUN, data.state(number))
            found[CountingFile.synced - before] += 1
    vfs.unregister()
    per_save = sum(syncs * times for syncs, times in found.items()) / saves
    return {"saves": saves, "syncs_per_save": per_save, "saves_by_syncs": dict(sorted(found.items()))}


def text(directory: Path) -> str:
    """The sentence for the tables."""
    found = counted(directory)
    return (
        f"{found['syncs_per_save']:.4f} syncs per save of Holdfast over {found['saves']} saves. Saves by their number "
        f"of syncs: {json.dumps(found['saves_by_syncs'])}; more than one is a WAL checkpoint, or the save after one."
    )


def counted(directory: Path) -> dict[str, Any]:
    """The same in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-m", "bench.syncs", str(directory)], capture_output=True, text=True, check=True, timeout=300
    )
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1]) as place:
        print(json.dumps(count(Path(place), 5000)))
