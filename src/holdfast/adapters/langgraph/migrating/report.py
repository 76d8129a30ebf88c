"""What a migration did."""

from __future__ import annotations

from typing import Final

import msgspec

_SHOWN_MAX: Final = 10
_UNITS: Final = ("bytes", "KB", "MB", "GB", "TB")


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    """What was moved; in a dry run, what would be."""

    threads: int
    """Threads that something was moved of."""
    checkpoints: int
    writes: int
    unchanged: int
    """Threads that were moved by an earlier call; nothing was added to them since, here or there."""
    skipped: list[str]
    """Threads that were left as they are in the store, each with the reason."""
    problems: list[str]
    """What could not be moved, or not as one might expect: where it is, and what is the matter with it."""
    source_bytes: int
    """What the threads that were moved take in the columns of the source's tables, without its indexes."""
    stored_bytes: int
    """What the store grew by, with its indexes and its log; 0 in a dry run."""
    seconds: float
    dry_run: bool
    verified: bool
    """Whether everything that was moved was read back and compared."""

    def __str__(self) -> str:
        """A few lines to read."""
        done = "would be moved" if self.dry_run else "moved and verified" if self.verified else "moved, not verified"
        lines = [
            f"{self.threads} threads, {self.checkpoints} checkpoints, {self.writes} writes {done} "
            f"in {self.seconds:.1f} s"
        ]
        if self.threads:
            lines.append(self._sizes())
        if self.unchanged:
            lines.append(f"{self.unchanged} threads were moved before and are unchanged")
        lines += _listed("skipped", self.skipped) + _listed("problem", self.problems)
        return "\n".join(lines)

    def _sizes(self) -> str:
        if self.dry_run or self.stored_bytes <= 0:
            return f"{_size(self.source_bytes)} in the source"
        ratio = self.source_bytes / self.stored_bytes
        return f"{_size(self.source_bytes)} in the source, {_size(self.stored_bytes)} in the store: {ratio:.1f} to 1"


def _listed(what: str, texts: list[str]) -> list[str]:
    shown = [f"{what}: {text}" for text in texts[:_SHOWN_MAX]]
    more = len(texts) - len(shown)
    return [*shown, f"{what}: and {more} more"] if more else shown


def _size(count: float) -> str:
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
