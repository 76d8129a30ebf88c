"""Room on the disk: saves are refused while there still is enough left for prune to work."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Final

from holdfast.errors import StorageFailed, StorageFull
from holdfast.model.commit import Commit

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
        self._unchecked_bytes += sum(map(_size, commits))
        if self._unchecked_bytes <= self._reserve_bytes // 16:
            return
        free = free_bytes(self._path)
        if free >= self._reserve_bytes or free + reusable_bytes() >= self._reserve_bytes:
            self._unchecked_bytes = 0
        elif any(c.checkpoints or c.entries or c.attachments or c.effects or c.create for c in commits):
            raise StorageFull(
                f"{self._path}: {free} bytes are free and {self._reserve_bytes} are kept in reserve for prune; "
                "free some space, prune, or open the store with a smaller reserve_bytes"
            )


def _size(commit: Commit) -> int:
    """About what a commit takes on disk."""
    bodies = [part.body for parts in (commit.chunks, commit.entries, commit.effects) for part in parts]
    bodies += [effect.call for effect in commit.effects]
    roots = [part.root for parts in (commit.checkpoints, commit.attachments) for part in parts]
    return _COMMIT_BYTES + sum(map(len, bodies)) + sum(map(len, roots))


def free_bytes(path: str) -> int:
    """Free space where the file lies."""
    try:
        found = os.statvfs(os.path.dirname(os.path.abspath(path)))
    except OSError as error:
        raise StorageFailed(f"the free space around {path} cannot be read: {error}") from error
    return found.f_bavail * found.f_frsize
