"""The names of files, and the files of chunks.

    family directory := NUMBER "-" WORDS            00000007-order-4711
    run's files      := WORDS "-" HASH ENDING       order-4711-0b5c…e1.journal, order-4711-0b5c…e1.newest.json
    chunk            := HASH                        the chunk's own hash

Names are unique, readable, and valid on every file system. WORDS are for people: the id's ASCII letters and digits in
lower case, everything else a hyphen, at most 40. HASH is 16 bytes of BLAKE3 over the id in UTF-8, in hex; it
distinguishes ids that differ only in case, Unicode form or in characters that became hyphens. A name consists of a-z,
0-9, "-" and ".", so no id leaves its directory, and none is a reserved name, because the hash is before the first dot.
The content of a file names its run; the file name is never trusted for that.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Sequence
from typing import Final

from blake3 import blake3

from holdfast.files.durable import DurableDirectory
from holdfast.model.rows import ChunkRow

MARK: Final = "holdfast.json"
"""The file that marks a directory as a store, with format and version."""
COUNTER: Final = "last-run.json"
LOCK: Final = "lock"
UNFINISHED: Final = "tmp"
"""Files that are being written; files found there were never finished."""
OWNERS: Final = "owners"
"""Owner locks; see holdfast.store.liveness."""
CATALOG: Final = "catalog"
"""Published workflows, a file for each."""
FAMILIES: Final = "families"
CHUNKS: Final = "chunks"
PACKS: Final = "packs"
PASSING: Final = "passing"
"""Marks a family that is being created, or whose last run is being deleted; without a journal it can be removed."""
JOURNAL: Final = ".journal"
NEWEST: Final = ".newest.json"
WORKFLOW: Final = ".workflow"
_WORDS_MAX: Final = 40
_OTHER: Final = re.compile(r"[^a-z0-9]+")
_FAMILY: Final = re.compile(r"([0-9]{8,20})-[a-z0-9-]*")
_STEM: Final = re.compile(r"[a-z0-9-]+-[0-9a-f]{32}|-?[0-9a-f]{32}")
_CHUNK: Final = re.compile(r"[0-9a-f]{2,128}")


def _words(run_id: str) -> str:
    return _OTHER.sub("-", run_id[: 2 * _WORDS_MAX].lower()).strip("-")[:_WORDS_MAX].strip("-") or "run"


def run_stem(run_id: str) -> str:
    """The stem of a run's files."""
    name = run_id.encode(errors="surrogatepass")  # an id from a damaged file needs a name as well
    return f"{_words(run_id)}-{blake3(name).hexdigest(16)}"


def family_name(family: int, run_id: str) -> str:
    """The directory of a family; `run_id` is the id of its first run."""
    return f"{family:08}-{_words(run_id)}"


def family_number(name: str) -> int | None:
    """The number of the family whose directory has this name; None if it is not that of a family."""
    found = _FAMILY.fullmatch(name)
    return int(found[1]) if found else None


def journal_stem(name: str) -> str | None:
    """The stem of a journal; None if the name is not that of a journal."""
    start, dot, ending = name.partition(".")
    return start if dot + ending == JOURNAL and _STEM.fullmatch(start) else None


def chunk_name(chunk: bytes) -> str:
    """The file of a chunk."""
    return chunk.hex()


def chunk_hash(name: str) -> bytes | None:
    """The hash of the chunk in the file of this name; None if it is not that of a chunk."""
    return bytes.fromhex(name) if _CHUNK.fullmatch(name) and len(name) % 2 == 0 else None


def catalog_path(root: str, name: str) -> str:
    """The file of a published workflow."""
    return os.path.join(root, CATALOG, f"{run_stem(name)}{WORKFLOW}")


def add_chunks(disk: DurableDirectory, directory: str, chunks: Sequence[ChunkRow], packed: set[bytes]) -> int:
    """Store these chunks durably, except `packed` ones, and return how many bytes were added. If it fails, none was."""
    if not chunks:
        return 0
    files, added, size = disk.files, [], 0
    try:
        existing = set(files.listdir(directory))
        for chunk in chunks:
            name = chunk_name(chunk.hash)
            if name not in existing and chunk.hash not in packed:
                path = os.path.join(directory, name)
                disk.put(path, chunk.body)
                existing.add(name)
                added.append(path)
                size += len(chunk.body)
        files.sync_directory(directory)
    except OSError:
        for path in added:
            with contextlib.suppress(OSError):
                files.unlink(path)
        raise
    return size


def read_chunks(disk: DurableDirectory, directory: str, hashes: Iterable[bytes]) -> dict[bytes, bytes]:
    """The bodies of the chunks that exist."""
    found = {}
    for name in hashes:
        with contextlib.suppress(FileNotFoundError):
            found[name] = disk.files.read(os.path.join(directory, chunk_name(name)))
    return found


def chunk_sizes(disk: DurableDirectory, directory: str) -> dict[bytes, int]:
    """The sizes of all chunks, by hash."""
    found = {}
    for name in disk.files.listdir(directory):
        chunk = chunk_hash(name)
        identity = disk.files.identity(os.path.join(directory, name)) if chunk is not None else None
        if chunk is not None and identity is not None:
            found[chunk] = identity.size
    return found


def remove_chunks(disk: DurableDirectory, directory: str, hashes: Iterable[bytes]) -> None:
    """Remove these chunks, durably."""
    for name in hashes:
        disk.files.unlink(os.path.join(directory, chunk_name(name)))
    disk.files.sync_directory(directory)
