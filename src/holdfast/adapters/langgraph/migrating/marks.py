"""The mark: what every commit of a migration leaves in the run's metadata. The package's docstring says why."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.model.rows import RunRow
from holdfast.verbs.values import metadata_dict

MARK: Final = "langgraph.migrated"
"""The mark's name in the run's metadata."""


class Mark(msgspec.Struct, frozen=True):
    """What the last commit of a migration says of a thread."""

    thread: str
    serial: int
    attached: int
    rewrites: int
    last: tuple[str, str]
    """Namespace and id of the last checkpoint moved."""
    source: str
    """How the thread looked in the source; empty as long as it is not moved whole, and verified if that was asked."""

    def fits(self, run: RunRow) -> bool:
        """Whether the run has nothing that this migration did not put there."""
        return (self.serial, self.attached, self.rewrites) == (run.serial, run.attached, run.rewrites)


def mark_of(run: RunRow) -> Mark | None:
    """The mark that a migration left, if this run is the one it was left on."""
    found = metadata_dict(run.metadata, f"run {run.run_id!r}").get(MARK)
    try:
        mark = msgspec.convert(found, Mark)
    except msgspec.ValidationError:
        return None
    return mark if mark.thread == run.run_id else None
