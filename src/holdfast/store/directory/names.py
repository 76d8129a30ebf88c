"""Names of files: injective, readable, and the same on every file system.

    family directory := NUMBER "-" WORDS            00000007-order-4711
    run's files      := WORDS "-" HASH ENDING       order-4711-0b5c…e1.journal, order-4711-0b5c…e1.newest.json
    chunk            := HASH                        the chunk's own hash

WORDS are for people: the id's ASCII letters and digits in lower case, everything else a hyphen, cut after 40. HASH is
16 bytes of BLAKE3 over the id in UTF-8, in hex, and keeps ids apart that differ only in case, Unicode form or in what
became a hyphen. A name has nothing but a-z, 0-9, "-" and ".", so no id leaves its directory, and none is a reserved
name, because the hash is part of what stands before the first dot. What is inside a file says which run it is; names
are never trusted for that.
"""

from __future__ import annotations

import re
from typing import Final

from blake3 import blake3

MARK: Final = "holdfast.json"
"""What makes a directory a store: its format and version."""
COUNTER: Final = "last-run.json"
LOCK: Final = "lock"
UNFINISHED: Final = "tmp"
"""Files that are being written; whatever is found there was never finished."""
OWNERS: Final = "owners"
"""Signs of life of those who hold runs; see holdfast.store.owners."""
FAMILIES: Final = "families"
CHUNKS: Final = "chunks"
PASSING: Final = "passing"
"""In a family that is being made, or whose last run is being deleted: without a journal all of it may go."""
JOURNAL: Final = ".journal"
NEWEST: Final = ".newest.json"

_WORDS_MAX: Final = 40
_OTHER: Final = re.compile(r"[^a-z0-9]+")
_FAMILY: Final = re.compile(r"([0-9]{8,20})-[a-z0-9-]*")
_STEM: Final = re.compile(r"[a-z0-9-]+-[0-9a-f]{32}|-?[0-9a-f]{32}")
_CHUNK: Final = re.compile(r"[0-9a-f]{2,128}")


def _words(run_id: str) -> str:
    return _OTHER.sub("-", run_id[: 2 * _WORDS_MAX].lower()).strip("-")[:_WORDS_MAX].strip("-") or "run"


def stem(run_id: str) -> str:
    """What the names of a run's files begin with."""
    name = run_id.encode(errors="surrogatepass")  # what is found in a damaged file must have a name as well
    return f"{_words(run_id)}-{blake3(name).hexdigest(16)}"


def family_name(family: int, run_id: str) -> str:
    """The directory of a family; `run_id` is its first run's."""
    return f"{family:08}-{_words(run_id)}"


def family_number(name: str) -> int | None:
    """The number of the family whose directory has this name; None if it is no family's."""
    found = _FAMILY.fullmatch(name)
    return int(found[1]) if found else None


def journal_stem(name: str) -> str | None:
    """What a journal's name begins with; None if it is no journal's name."""
    start, dot, ending = name.partition(".")
    return start if dot + ending == JOURNAL and _STEM.fullmatch(start) else None


def chunk_name(chunk: bytes) -> str:
    """The file of a chunk."""
    return chunk.hex()


def chunk_hash(name: str) -> bytes | None:
    """The hash of the chunk in the file of this name; None if it is no chunk's name."""
    return bytes.fromhex(name) if _CHUNK.fullmatch(name) and len(name) % 2 == 0 else None
