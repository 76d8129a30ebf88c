"""Chunks: one file each, named by the hash of what it holds. A file that has its name is whole and synced.

The file holds the chunk's body (docs/formats.md) as it is. Names become durable together, before the line that needs
them is written; they are synced even if all chunks of a commit are there already, for the one who put them there may
have died before.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence

from holdfast.model.rows import ChunkRow
from holdfast.store.directory.disk import Disk
from holdfast.store.directory.names import chunk_hash, chunk_name


def add_chunks(disk: Disk, directory: str, chunks: Sequence[ChunkRow]) -> int:
    """Make sure that these are there, durably; how many bytes were added. If it fails, none of them was added."""
    if not chunks:
        return 0
    files, added, size = disk.files, [], 0
    try:
        there = set(files.listdir(directory))
        for chunk in chunks:
            name = chunk_name(chunk.hash)
            if name not in there:
                path = os.path.join(directory, name)
                disk.put(path, chunk.body)
                there.add(name)
                added.append(path)
                size += len(chunk.body)
        files.sync_directory(directory)
    except OSError:
        for path in added:
            with contextlib.suppress(OSError):
                files.unlink(path)
        raise
    return size


def read_chunks(disk: Disk, directory: str, hashes: Iterable[bytes]) -> dict[bytes, bytes]:
    """The bodies of those that are there."""
    found = {}
    for name in hashes:
        with contextlib.suppress(FileNotFoundError):
            found[name] = disk.files.read(os.path.join(directory, chunk_name(name)))
    return found


def sizes_of_chunks(disk: Disk, directory: str) -> dict[bytes, int]:
    """All there are, and how large their bodies are."""
    found = {}
    for name in disk.files.listdir(directory):
        chunk = chunk_hash(name)
        identity = disk.files.identity(os.path.join(directory, name)) if chunk is not None else None
        if chunk is not None and identity is not None:
            found[chunk] = identity.size
    return found


def remove_chunks(disk: Disk, directory: str, hashes: Iterable[bytes]) -> None:
    """Remove these, durably."""
    for name in hashes:
        disk.files.unlink(os.path.join(directory, chunk_name(name)))
    disk.files.sync_directory(directory)
