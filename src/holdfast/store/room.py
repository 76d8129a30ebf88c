"""Room on the disk: saves are refused while there still is enough left for prune to work."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Final

from holdfast.errors import StorageFailed, StorageFull
from holdfast.model.commit import Commit, commit_bytes

_COMMIT_BYTES: Final = 8192
"""About what a small commit takes on disk, for the guess when to look again."""


class Room:
    """Keeps a reserve free. Looks at the disk now and then: when a sixteenth of the reserve may have been used."""

    def __init__(self, path: str, reserve_bytes: int) -> None:
        self._path = path
        self._reserve_bytes = reserve_bytes
        self._unchecked_bytes = reserve_bytes

    def check(self, commits: Sequence[Commit], reusable_bytes: Callable[[], int] = lambda: 0) -> None:
        """Raise StorageFull if the commits add something and there is no room for it.

        `reusable_bytes` tells what the store can use again before it asks the disk for more.
        """
        added = sum(map(commit_bytes, commits))
        self._unchecked_bytes += added + _COMMIT_BYTES * len(commits)
        if self._unchecked_bytes <= self._reserve_bytes // 16:
            return
        free = free_bytes(self._path)
        large = added if added > self._reserve_bytes // 16 else 0
        needed = self._reserve_bytes + large
        if free >= needed or free + reusable_bytes() >= needed:
            self._unchecked_bytes = 0
        elif large or any(c.checkpoints or c.entries or c.attachments or c.effects or c.create for c in commits):
            adding = f"{large} bytes are to be added, " if large else ""
            raise StorageFull(
                f"{self._path}: {adding}{free} bytes are free and {self._reserve_bytes} are kept in reserve for prune; "
                "free some space, prune, or open the store with a smaller reserve_bytes"
            )


def free_bytes(path: str) -> int:
    """Free space where the file lies."""
    try:
        found = os.statvfs(os.path.dirname(os.path.abspath(path)))
    except OSError as error:
        raise StorageFailed(f"the free space around {path} cannot be read: {error}") from error
    return found.f_bavail * found.f_frsize
