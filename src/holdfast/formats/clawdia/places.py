"""Where a run's files lie in Clawdia's tree.

    segment := up to 80 characters of the id, all but A-Z a-z 0-9 . _ - replaced by "_", then "-" and the first
               12 hex digits of the SHA-256 of the id

Directories are also found whose name is the id alone, as other releases wrote them; a run that has one keeps it, and
its checkpoints are named the same way. What is inside a file says which run it is of.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

_VISIBLE_MAX: Final = 80
_OTHER: Final = re.compile(r"[^A-Za-z0-9._-]", re.ASCII)
_BARE_MAX: Final = 200


def segment(value: str) -> str:
    """The id as a part of a path."""
    visible = _OTHER.sub("_", value[:_VISIBLE_MAX]) or "id"
    return f"{visible}-{hashlib.sha256(value.encode()).hexdigest()[:12]}"


def bare_segment(value: str) -> str | None:
    """The id alone, if it can be a name as it is."""
    plain = not _OTHER.search(value) and value.strip(".") and len(value) <= _BARE_MAX
    return value if plain else None


def checkpoint_name(covers: int, checkpoint_id: str, *, bare: bool) -> str:
    """The name of a checkpoint's file."""
    name = (bare_segment(checkpoint_id) if bare else None) or segment(checkpoint_id)
    return f"{covers:020}-{name}.json"
