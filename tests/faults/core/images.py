"""The trees of files a power cut could leave.

A disk has what was synced: of a file its content, of a directory its names. Of the calls since, any may have reached it
or not, in any order, and a write may be torn: a part of it is missing, or zeros. Names may be missing, or be those of
before. If everything arrived, it is what a killed process leaves.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from blake3 import blake3

from tests.faults.core.calls import (
    CREATE,
    MKDIR,
    RENAME,
    RMDIR,
    SYNC,
    SYNC_DIRECTORY,
    SYNC_FAILED,
    TRUNCATE,
    UNLINK,
    WRITE,
    Call,
)

SECTOR: Final = 512
_NAMES: Final = (CREATE, MKDIR, RENAME, UNLINK, RMDIR)


class Image(NamedTuple):
    """Directories and files, by path."""

    directories: tuple[str, ...]
    files: dict[str, bytes]


class Tear(NamedTuple):
    """How a write was torn at a byte of it: the rest is missing, or the rest is zeros, or what is before it is."""

    at: int
    missing: str

    def of(self, data: bytes) -> bytes:
        """What arrived."""
        if self.missing == "start":
            return bytes(self.at) + data[self.at :]
        return data[: self.at] + (bytes(len(data) - self.at) if self.missing == "end" else b"")


class Variant(NamedTuple):
    """Which of the pending calls arrived, by their place among them, and which were torn."""

    arrived: frozenset[int]
    torn: tuple[tuple[int, Tear], ...] = ()


class _Tree:
    """Names and contents while calls are applied to them. A content is copied when it is changed first."""

    def __init__(self, directories: set[str], names: dict[str, int], contents: Mapping[int, bytes | bytearray]) -> None:
        self.directories = set(directories)
        self.names = dict(names)
        self.contents = dict(contents)
        self._own: set[int] = set()

    def apply(self, call: Call, tear: Tear | None = None) -> None:
        if call.kind == MKDIR:
            self.directories.add(call.path)
        elif call.kind == RMDIR:
            self.directories.discard(call.path)
        elif call.kind == CREATE:
            self.names[call.path] = call.inode
        elif call.kind == RENAME:
            self.names[call.path] = call.inode
            if self.names.get(call.old) == call.inode:
                del self.names[call.old]
        elif call.kind == UNLINK:
            if self.names.get(call.path) == call.inode:
                del self.names[call.path]
        else:
            self._change(call, tear)

    def _change(self, call: Call, tear: Tear | None) -> None:
        if call.inode not in self._own:
            self.contents[call.inode] = bytearray(self.contents.get(call.inode, b""))
            self._own.add(call.inode)
        content = self.contents[call.inode]
        assert isinstance(content, bytearray)
        if call.kind == TRUNCATE:
            del content[call.offset :]
            content.extend(bytes(call.offset - len(content)))
        else:
            data = call.data if tear is None else tear.of(call.data)
            content.extend(bytes(max(0, call.offset - len(content))))
            content[call.offset : call.offset + len(data)] = data

    def image(self) -> Image:
        directories = sorted(path for path in self.directories if self._is_reached(path))
        return Image(
            tuple(directories),
            {
                path: bytes(self.contents.get(inode, b""))
                for path, inode in self.names.items()
                if self._is_reached(os.path.dirname(path))
            },
        )

    def _is_reached(self, path: str) -> bool:
        return not path or (path in self.directories and self._is_reached(os.path.dirname(path)))


class Disk:
    """What surely is on the disk, and what is pending."""

    def __init__(self, chance: random.Random) -> None:
        self._sure = _Tree(set(), {}, {})
        self.pending: list[Call] = []
        self.chance = chance

    def adopt(self, image: Image, inodes: Mapping[str, int]) -> None:
        """Begin with what an earlier cut has left."""
        contents = {inodes[path]: content for path, content in image.files.items()}
        self._sure = _Tree(set(image.directories), dict(inodes), contents)

    def add(self, call: Call) -> None:
        """Take in a call."""
        if call.kind == SYNC:
            self.settle([c for c in self.pending if c.inode == call.inode and c.kind in (WRITE, TRUNCATE)])
        elif call.kind == SYNC_FAILED:
            self._fail([c for c in self.pending if c.inode == call.inode and c.kind in (WRITE, TRUNCATE)])
        elif call.kind == SYNC_DIRECTORY:
            self._sync_directory("" if call.path == "." else call.path)
        elif call.kind in (WRITE, TRUNCATE, *_NAMES):
            self.merge(call)
            self.pending.append(call)

    def _fail(self, calls: list[Call]) -> None:
        """A failed sync: some of it may have arrived, the rest never will, for the system takes it for written."""
        likely = self.chance.choice((0.0, 0.5, 1.0))
        self.settle([call for call in calls if self.chance.random() < likely])
        dropped = set(map(id, calls))
        self.pending = [call for call in self.pending if id(call) not in dropped]

    def _sync_directory(self, path: str) -> None:
        names = [c for c in self.pending if c.kind in _NAMES]
        # A file that surely has its new name surely exists, and has no longer the old one.
        renamed = {c.inode for c in names if c.kind == RENAME and os.path.dirname(c.path) == path}
        self.settle([c for c in names if os.path.dirname(c.path) == path or (c.kind == CREATE and c.inode in renamed)])

    def merge(self, call: Call) -> None:
        """A call is about to be added. What only multiplies images can be settled here."""

    def tears(self, call: Call) -> list[Tear]:
        """Cuts at the sector borders that the write crosses: the first, the last and one between; and at its start."""
        borders = sector_borders(call)
        cuts = {0, *borders[:1], *borders[-1:]}
        if len(borders) > 2:
            cuts.add(self.chance.choice(borders))
        return [Tear(cut, missing) for cut in sorted(cuts) for missing in ("rest", "end")]

    def settle(self, sure: list[Call]) -> None:
        for call in sure:
            self._sure.apply(call)
        settled = set(map(id, sure))
        self.pending = [call for call in self.pending if id(call) not in settled]

    def image(self, variant: Variant) -> Image:
        """The tree as it would be found."""
        tree = _Tree(self._sure.directories, self._sure.names, self._sure.contents)
        torn = dict(variant.torn)
        for at in sorted(variant.arrived):
            tree.apply(self.pending[at], torn.get(at))
        return tree.image()

    def variants(self, random_count: int) -> Iterator[Variant]:
        """Ways a cut at this moment could end: the plainest first, then every systematic one, then random ones."""
        chance, count = self.chance, len(self.pending)
        everything = frozenset(range(count))
        yield Variant(frozenset())
        yield Variant(everything)
        for at in range(1, count):
            yield Variant(frozenset(range(at)))
        for at in range(count):
            yield Variant(everything - {at})
            yield Variant(frozenset({at}))
        for at, call in enumerate(self.pending):
            if call.kind == WRITE:
                for tear in self.tears(call):
                    yield Variant(everything, ((at, tear),))
                    yield Variant(frozenset(range(at + 1)), ((at, tear),))
        for _ in range(random_count if count > 1 else 0):
            arrived = frozenset(at for at in range(count) if chance.random() < 0.5)
            torn = [
                (at, chance.choice(self.tears(self.pending[at])))
                for at in arrived
                if self.pending[at].kind == WRITE and chance.random() < 0.3
            ]
            yield Variant(arrived, tuple(torn))


def sector_borders(call: Call) -> list[int]:
    """Where in the data of a write a sector of the file begins."""
    first = call.offset // SECTOR * SECTOR + SECTOR
    return [border - call.offset for border in range(first, call.offset + len(call.data), SECTOR)]


def lay_out(image: Image, place: Path) -> None:
    """Make the tree there, and nothing else."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for directory in image.directories:
        os.mkdir(place / directory)
    for name, content in image.files.items():
        (place / name).write_bytes(content)


def fingerprint(image: Image) -> bytes:
    """Tells images apart."""
    found = blake3("\n".join(image.directories).encode())
    for name in sorted(image.files):
        found.update(b"%d %d " % (len(name), len(image.files[name])))
        found.update(name.encode())
        found.update(image.files[name])
    return found.digest(16)
