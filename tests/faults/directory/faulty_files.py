"""A file layer that fails when told to, or that is full: the n-th call of a kind raises, once or from then on."""

from __future__ import annotations

import errno
import os
from collections import Counter
from typing import Final, NamedTuple

from holdfast.files.os_files import Identity, SystemFiles


class Kind(NamedTuple):
    """A kind of failure: which call, and the error it raises."""

    call: str
    code: int = errno.EIO


KINDS: Final[dict[str, Kind]] = {
    "disk full": Kind("write", errno.ENOSPC),
    **{
        f"{call} fails": Kind(call)
        for call in (
            "listdir", "identity", "read", "mkdir", "create", "open_for_append", "open_lock", "write", "truncate",
            "sync", "close", "sync_directory", "rename", "unlink", "rmdir", "try_lock", "unlock", "is_at",
            "read_note", "write_note",
        )
    },
}  # fmt: skip


class FaultyFiles(SystemFiles):
    """The system's files, which fail as they are told."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.hits = 0
        self.reused = 0
        """Calls on a handle after its sync had failed."""
        self.quota_bytes: int | None = None
        self._kind: Kind | None = None
        self._at = 0
        self._sticky = False
        self._is_counting = True
        self._failed: set[int] = set()
        self._paths: dict[int, str] = {}
        self._sizes: dict[str, int] = {}

    def fail(self, kind: Kind, at: int, *, sticky: bool) -> None:
        """From now on the `at`-th call of this kind fails, and if sticky all after it."""
        self.calls.clear()
        self.hits = 0
        self._kind, self._at, self._sticky = kind, at, sticky

    def heal(self) -> None:
        """Nothing fails any more, and calls are no longer counted."""
        self._kind, self._is_counting = None, False

    def used_bytes(self) -> int:
        return sum(self._sizes.values())

    def _meet(self, call: str) -> None:
        self.calls[call] += self._is_counting
        kind, count = self._kind, self.calls[call]
        if kind is None or kind.call != call or count < self._at or (count > self._at and not self._sticky):
            return
        self.hits += 1
        raise OSError(kind.code, f"injected: {os.strerror(kind.code)}")

    def _rely(self, handle: int) -> None:
        self.reused += handle in self._failed

    # --- calls that may fail -----------------------------------------------------------------------------------------

    def listdir(self, path: str) -> list[str]:
        self._meet("listdir")
        return super().listdir(path)

    def identity(self, path: str) -> Identity | None:
        self._meet("identity")
        return super().identity(path)

    def read(self, path: str) -> bytes:
        self._meet("read")
        return super().read(path)

    def mkdir(self, path: str) -> None:
        self._meet("mkdir")
        super().mkdir(path)

    def create(self, path: str) -> int:
        self._meet("create")
        handle = super().create(path)
        self._paths[handle], self._sizes[path] = path, 0
        return handle

    def open_for_append(self, path: str) -> int:
        self._meet("open_for_append")
        handle = super().open_for_append(path)
        self._paths[handle] = path
        return handle

    def open_lock(self, path: str, *, create: bool = True) -> int:
        self._meet("open_lock")
        handle = super().open_lock(path, create=create)
        self._paths[handle] = path
        self._sizes.setdefault(path, 0)
        return handle

    def write(self, handle: int, data: bytes | bytearray) -> None:
        self._rely(handle)
        try:
            self._meet("write")
        except OSError:
            self._grow(handle, data[: len(data) // 2])
            raise
        if self.quota_bytes is not None and self.used_bytes() + len(data) > self.quota_bytes:
            self.hits += 1
            self._grow(handle, data[: max(0, self.quota_bytes - self.used_bytes())])
            raise OSError(errno.ENOSPC, "injected: the quota is used up")
        self._grow(handle, data)

    def _grow(self, handle: int, data: bytes | bytearray) -> None:
        super().write(handle, data)
        self._sizes[self._paths[handle]] += len(data)

    def truncate(self, handle: int, size: int) -> None:
        self._rely(handle)
        self._meet("truncate")
        super().truncate(handle, size)
        self._sizes[self._paths[handle]] = size

    def sync(self, handle: int) -> None:
        """Nothing is really synced: what is tested here is what is done after an error."""
        self._rely(handle)
        try:
            self._meet("sync")
        except OSError:
            self._failed.add(handle)
            raise

    def close(self, handle: int) -> None:
        super().close(handle)
        self._failed.discard(handle)
        self._paths.pop(handle, None)
        self._meet("close")

    def sync_directory(self, path: str) -> None:
        self._meet("sync_directory")

    def rename(self, old: str, new: str) -> None:
        self._meet("rename")
        super().rename(old, new)
        self._sizes[new] = self._sizes.pop(old)

    def unlink(self, path: str) -> None:
        self._meet("unlink")
        super().unlink(path)
        self._sizes.pop(path, None)

    def rmdir(self, path: str) -> None:
        self._meet("rmdir")
        super().rmdir(path)

    def try_lock(self, handle: int, *, shared: bool = False) -> bool:
        self._meet("try_lock")
        return super().try_lock(handle, shared=shared)

    def unlock(self, handle: int) -> None:
        self._meet("unlock")
        super().unlock(handle)

    def is_at(self, handle: int, path: str) -> bool:
        self._meet("is_at")
        return super().is_at(handle, path)

    def read_note(self, handle: int, size: int) -> bytes:
        self._meet("read_note")
        return super().read_note(handle, size)

    def write_note(self, handle: int, data: bytes) -> None:
        self._meet("write_note")
        super().write_note(handle, data)
