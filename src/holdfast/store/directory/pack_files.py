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


class PackFiles:
    """The packs in one directory. Callers hold the lock."""

    def __init__(self, disk: DurableDirectory, directory: str) -> None:
        self.directory = directory
        self._disk = disk
        self._known: dict[bytes, PackFile] = {}

    def files(self) -> dict[bytes, PackFile]:
        """All packs that can be read, by name."""
        names = self._names()
        self._known = {name: file for name, file in self._known.items() if name in names}
        for name in names - self._known.keys():
            with contextlib.suppress(DamagedData):  # the chunks that it holds are reported as missing
                self._known[name] = self._read(name)[0]
        return self._known

    def damages(self) -> list[DamagedData]:
        """The damage of all packs."""
        found = []
        for name in sorted(self._names()):
            path = self._path(name)
            try:
                self._read(name)
                if blake3(self._disk.files.read(path)).digest(_NAME) != name:
                    raise DamagedData(self._disk.relative(path), "its content does not match its name")
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
        return PackFile(size, len(data) - start, places, len(data)), bytes(data[start:])

    # --- reading -----------------------------------------------------------------------------------------------------

    def find(self, hashes: Iterable[bytes], held: Collection[int]) -> PackedChunks:
        """The places of these chunks, and the bodies of packs that are not `held`."""
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
        return found

    def layout(self) -> Packs:
        """All packs and their chunks."""
        packs = {int.from_bytes(name, "big"): file for name, file in self.files().items()}
        chunks = {chunk: Place(n, *where) for n, file in packs.items() for chunk, where in file.chunks.items()}
        return Packs(chunks, {number: PackSize(file.size, file.stored) for number, file in packs.items()})

    def names(self) -> set[bytes]:
        """The hashes of all chunks in packs."""
        return {chunk for file in self.files().values() for chunk in file.chunks}

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
                self._put(file.size, left, self._read(name)[1])
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
