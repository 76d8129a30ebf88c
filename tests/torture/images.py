"""The disk images a power cut could leave.

A disk has what was synced. Of the calls since, any may have reached it or not, in any order, and a write may be torn at
a sector: the rest of it is what was there before, or zeros. A name may be missing, or a deleted one may be back.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final, NamedTuple

from blake3 import blake3

from tests.torture.recorder import CREATE, SYNC, SYNC_DIRECTORY, SYNC_FAILED, TRUNCATE, UNLINK, WRITE, Call

SECTOR: Final = 512

Image = dict[str, bytes]


class Tear(NamedTuple):
    """How a write was torn: so many bytes of it arrived, the rest is old or zeros."""

    kept: int
    zeros: bool


class Variant(NamedTuple):
    """Which of the pending calls arrived, by their place among them, and which were torn."""

    arrived: frozenset[int]
    torn: tuple[tuple[int, Tear], ...] = ()


class Disk:
    """What surely is on the disk, and what is pending."""

    def __init__(self, chance: random.Random) -> None:
        self._names: dict[str, int] = {}
        self._contents: dict[int, bytes] = {}
        self.pending: list[Call] = []
        self._chance = chance

    def add(self, call: Call) -> bool:
        """Take in a call; False if it changes nothing here."""
        if call.kind in (CREATE, WRITE, TRUNCATE, UNLINK):
            self.pending.append(call)
        elif call.kind == SYNC:
            self._settle(self._of_file(call.inode))
        elif call.kind == SYNC_DIRECTORY:
            self._settle([c for c in self.pending if c.kind in (CREATE, UNLINK)])
        elif call.kind == SYNC_FAILED:
            self._fail(self._of_file(call.inode))
        else:
            return False
        return True

    def _of_file(self, inode: int) -> list[Call]:
        return [call for call in self.pending if call.inode == inode and call.kind in (WRITE, TRUNCATE)]

    def _fail(self, calls: list[Call]) -> None:
        """A failed sync: some of it may have arrived, the rest never will, for the system takes it for written."""
        likely = self._chance.choice((0.0, 0.5, 1.0))
        self._settle([call for call in calls if self._chance.random() < likely])
        dropped = set(map(id, calls))
        self.pending = [call for call in self.pending if id(call) not in dropped]

    def _settle(self, sure: list[Call]) -> None:
        settled = set(map(id, sure))
        names, contents = dict(self._names), {k: bytearray(v) for k, v in self._touched(sure).items()}
        for call in sure:
            _apply(call, names, contents, None)
        self._names = names
        self._contents.update({inode: bytes(content) for inode, content in contents.items()})
        self.pending = [call for call in self.pending if id(call) not in settled]

    def _touched(self, calls: list[Call]) -> dict[int, bytes]:
        inodes = {call.inode for call in calls if call.kind in (WRITE, TRUNCATE)}
        return {inode: self._contents.get(inode, b"") for inode in inodes}

    def image(self, variant: Variant) -> Image:
        """The files as they would be found."""
        chosen = [(at, self.pending[at]) for at in sorted(variant.arrived)]
        torn = dict(variant.torn)
        names = dict(self._names)
        contents = {k: bytearray(v) for k, v in self._touched([call for _, call in chosen]).items()}
        for at, call in chosen:
            _apply(call, names, contents, torn.get(at))
        return {
            name: bytes(contents[inode]) if inode in contents else self._contents.get(inode, b"")
            for name, inode in names.items()
        }

    def variants(self, random_count: int) -> Iterator[Variant]:
        """Ways a cut at this moment could end: the plainest first, then every systematic one, then random ones."""
        chance, count = self._chance, len(self.pending)
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
                for tear in _tears(call, chance):
                    yield Variant(everything, ((at, tear),))
                    yield Variant(frozenset(range(at + 1)), ((at, tear),))
        for _ in range(random_count if count > 1 else 0):
            arrived = frozenset(at for at in range(count) if chance.random() < 0.5)
            torn = [(at, chance.choice(_tears(self.pending[at], chance))) for at in arrived if chance.random() < 0.3]
            yield Variant(arrived, tuple((at, tear) for at, tear in torn if self.pending[at].kind == WRITE))


def _tears(call: Call, chance: random.Random) -> list[Tear]:
    """Cuts at the sectors of the file that the write crosses: the first, the last and one between; and at its start."""
    end = call.offset + len(call.data)
    borders = range(call.offset // SECTOR * SECTOR + SECTOR, end, SECTOR)
    cuts = {0, *(border - call.offset for border in (*borders[:1], *borders[-1:]))}
    if len(borders) > 2:
        cuts.add(chance.choice(borders) - call.offset)
    return [Tear(cut, zeros) for cut in sorted(cuts) for zeros in (False, True)]


def _apply(call: Call, names: dict[str, int], contents: dict[int, bytearray], tear: Tear | None) -> None:
    if call.kind == CREATE:
        names[call.name] = call.inode
    elif call.kind == UNLINK:
        if names.get(call.name) == call.inode:
            del names[call.name]
    elif call.kind == TRUNCATE:
        content = contents[call.inode]
        del content[call.offset :]
        content.extend(bytes(call.offset - len(content)))
    elif call.kind == WRITE:
        content, data = contents[call.inode], call.data
        if tear is not None:
            data = data[: tear.kept] + (bytes(len(data) - tear.kept) if tear.zeros else b"")
        if len(content) < call.offset:
            content.extend(bytes(call.offset - len(content)))
        content[call.offset : call.offset + len(data)] = data


def fingerprint(image: Image) -> bytes:
    """Tells images apart."""
    found = blake3()
    for name in sorted(image):
        found.update(b"%d %d " % (len(name), len(image[name])))
        found.update(name.encode())
        found.update(image[name])
    return found.digest(16)
