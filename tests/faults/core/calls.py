"""File calls as recorders note them, in one total order, with marks in between."""

from __future__ import annotations

from typing import Final, NamedTuple

CREATE: Final = "create"
WRITE: Final = "write"
TRUNCATE: Final = "truncate"
SYNC: Final = "sync"
SYNC_FAILED: Final = "sync failed"
MKDIR: Final = "mkdir"
RENAME: Final = "rename"
UNLINK: Final = "unlink"
RMDIR: Final = "rmdir"
SYNC_DIRECTORY: Final = "sync directory"
MARK: Final = "mark"


class Call(NamedTuple):
    """One call. `inode` tells a file from others that have or had its name; paths are relative to the scratch place."""

    kind: str
    inode: int = 0
    path: str = ""
    offset: int = 0
    data: bytes = b""
    old: str = ""
    """The name before a rename."""
