"""The packs of one family: files that are never changed, named by the hash of their content.

file   := the header's size (4 bytes, high byte first) header body
header := MessagePack array [plain size, [[hash, start, size], …]] of the chunks that are in use
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

import msgspec
from blake3 import blake3

from holdfast.errors import DamagedData
from holdfast.files.durable import DurableDirectory, make_directory
from holdfast.store.directory.paths import chunk_hash, chunk_name
from holdfast.store.packs import NewPack, PackedChunks, Packs, PackSize, Place

_NAME: Final = 16
_SIZE: Final = 4


class PackFile(NamedTuple):
    """What is known of a file without its body."""

    size: int
    """Of its plain bytes."""
    stored: int
    """Of its body."""
    chunks: dict[bytes, tuple[int, int]]
    """Where each chunk is: start and size."""
    file_bytes: int
    is_intact: bool = True
    """Whether its content matches its name."""


class PackFiles:
    """The packs in one directory. Callers hold the lock."""

    def __init__(self, disk: DurableDirectory, directory: str) -> None:
        self.directory = directory
        self._disk = disk
        self._known: dict[bytes, PackFile] = {}
        self._unreadable: DamagedData | None = None
        """The damage of a pack that is not among the known ones."""

    def files(self) -> dict[bytes, PackFile]:
        """All packs that can be read, by name."""
        names = self._names()
        self._known = {name: file for name, file in self._known.items() if name in names and file.is_intact}
        self._unreadable = None
        for name in names - self._known.keys():
            try:
                self._known[name] = self._read(name)[0]
            except DamagedData as damage:
                self._unreadable = damage
        return self._known

    def check(self) -> None:
        """Raise DamagedData if a pack is damaged: then it is unknown which chunks it holds, and which these need."""
        for name, file in self.files().items():
            self._require_intact(name, file)
        if self._unreadable is not None:
            raise self._unreadable

    def _require_intact(self, name: bytes, file: PackFile) -> None:
        if not file.is_intact:
            raise DamagedData(self._disk.relative(self._path(name)), "its content does not match its name")

    def damages(self) -> list[DamagedData]:
        """The damage of all packs."""
        found = []
        for name in sorted(self._names()):
            try:
                self._require_intact(name, self._read(name)[0])
            except DamagedData as damage:
                found.append(damage)
        return found

    def _names(self) -> set[bytes]:
        files = self._disk.files
        if files.identity(self.directory) is None:
            return set()
        found = {chunk_hash(name) for name in files.listdir(self.directory)}
        return {name for name in found if name is not None and len(name) == _NAME}

    def _path(self, name: bytes) -> str:
        return os.path.join(self.directory, chunk_name(name))

    def _read(self, name: bytes) -> tuple[PackFile, bytes]:
        path = self._path(name)
        data = self._disk.files.read(path)
        start = _SIZE + int.from_bytes(data[:_SIZE], "big")
        try:
            size, chunks = msgspec.msgpack.decode(data[_SIZE:start], type=tuple[int, list[tuple[bytes, int, int]]])
        except msgspec.MsgspecError as error:
            raise DamagedData(self._disk.relative(path), f"its header cannot be read ({error})") from error
        places = {chunk: (at, length) for chunk, at, length in chunks}
        is_intact = blake3(data).digest(_NAME) == name
        return PackFile(size, len(data) - start, places, len(data), is_intact), bytes(data[start:])

    # --- reading -----------------------------------------------------------------------------------------------------

    def find(self, hashes: Iterable[bytes], held: Collection[int]) -> PackedChunks:
        """The places of these chunks, and the bodies of packs that are not `held`.

        Raises DamagedData if one is not found that may be in a damaged pack.
        """
        found = PackedChunks({}, {})
        files = self.files()
        for chunk in hashes:
            for name, file in files.items():
                if chunk in file.chunks:
                    number = int.from_bytes(name, "big")
                    found.chunks[chunk] = Place(number, *file.chunks[chunk])
                    if number not in held and number not in found.bodies:
                        found.bodies[number] = self._read(name)[1]
                    break
            else:
                self.check()
        return found

    def layout(self) -> Packs:
        """All packs and their chunks."""
        packs = {int.from_bytes(name, "big"): file for name, file in self.files().items()}
        chunks = {chunk: Place(n, *where) for n, file in packs.items() for chunk, where in file.chunks.items()}
        return Packs(chunks, {number: PackSize(file.size, file.stored) for number, file in packs.items()})

    def names(self) -> set[bytes]:
        """The hashes of all chunks in packs that are not damaged."""
        return {chunk for file in self.files().values() if file.is_intact for chunk in file.chunks}

    # --- writing -----------------------------------------------------------------------------------------------------

    def add(self, pack: NewPack) -> None:
        """Store a pack durably, and remove its chunks from the others."""
        if self._disk.files.identity(self.directory) is None:
            make_directory(self._disk.files, self.directory)
        chunks = {name: (place.start, place.size) for name, place in pack.places(0).items()}
        name = self._put(pack.size, chunks, pack.body)
        try:
            self._disk.files.sync_directory(self.directory)
        except OSError:  # the chunks are still where they were
            with contextlib.suppress(OSError):
                self._disk.files.unlink(self._path(name))
            raise
        self.remove(chunks, spared=name)

    def _put(self, size: int, chunks: dict[bytes, tuple[int, int]], body: bytes) -> bytes:
        header = msgspec.msgpack.encode((size, [(chunk, *where) for chunk, where in chunks.items()]))
        data = len(header).to_bytes(_SIZE, "big") + header + body
        name = blake3(data).digest(_NAME)
        self._disk.put(self._path(name), data)
        self._known[name] = PackFile(size, len(body), chunks, len(data))
        return name

    def remove(self, chunks: Collection[bytes], spared: bytes | None = None) -> int:
        """Remove these chunks from all packs but one, durably. Returns how many bytes of bodies that freed.

        A pack of which some are left is written again with another header. A process that dies in between leaves both.
        """
        gone, freed = set(chunks), 0
        changed = {n: f for n, f in self.files().items() if n != spared and not gone.isdisjoint(f.chunks)}
        for name, file in list(changed.items()):
            left = {chunk: where for chunk, where in file.chunks.items() if chunk not in gone}
            if left:
                now, body = self._read(name)
                self._require_intact(name, now)
                self._put(file.size, left, body)
            else:
                freed += file.stored
        if changed:
            self._disk.files.sync_directory(self.directory)
        for name in changed:
            self._disk.files.unlink(self._path(name))
            self._known.pop(name, None)
        if changed:
            self._disk.files.sync_directory(self.directory)
        return freed

    def clear(self) -> None:
        """Remove all packs and the directory."""
        files = self._disk.files
        for name in self._names():
            files.unlink(self._path(name))
        files.rmdir(self.directory)
