"""What is special about the disk below a directory: appended lines, and files that are rewritten without a sync."""

from __future__ import annotations

from typing import Final

from tests.faults.core.calls import CREATE, RENAME, WRITE, Call
from tests.faults.core.images import Disk, Tear, sector_borders

_FOR_PEOPLE: Final = ".newest.json"


class DirectoryDisk(Disk):
    """A disk with directories of the directory store, or of `holdfast.formats`."""

    def merge(self, call: Call) -> None:
        """What is overwritten again and again without a sync, and never compared, would only multiply images."""
        if call.kind == WRITE and call.offset == 0:  # the note in the lock file
            self.settle([c for c in self.pending if c.kind == WRITE and c.inode == call.inode])
        elif call.kind == RENAME and call.path.endswith(_FOR_PEOPLE):
            old = [c for c in self.pending if c.kind == RENAME and c.path == call.path]
            inodes = {c.inode for c in old}
            self.settle([c for c in self.pending if c in old or (c.kind == CREATE and c.inode in inodes)])

    def tears(self, call: Call) -> list[Tear]:
        """Cuts at the first and last sector border that the write crosses, at both ends of it, and anywhere."""
        size, borders = len(call.data), sector_borders(call)
        cuts = {0, size - 1, self.chance.randrange(size), *borders[:1], *borders[-1:]}
        return [Tear(cut, missing) for cut in sorted(cuts) for missing in ("rest", "end", "start")]
