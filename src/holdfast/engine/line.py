"""The line: which parts of the journal are needed to go on.

A durable loop skips its finished turns: on resume the entries before the loop are replayed, then those after the last
finished turn. So the entries that matter are a few *spans* of positions, and everything after the newest checkpoint.
Every checkpoint of the engine carries, under "holdfast" in its metadata, what is needed to resume from it:

    {"spans": [[first, last], …],     positions to replay, at or below what the checkpoint covers
     "loops": [{"call", "turn", "checkpoint", "at"}, …],   loops that were entered, how far each was, where its state is
     "needs": [checkpoint ids],       other checkpoints of the run whose state is needed
     "epoch": n, "version": n,        rollbacks so far, and the version of the workflow that wrote it
     "left": {key: epoch},            effects that rollbacks have left as they are
     "edits": [{"at", "checkpoint", "entry"}, …],   changes of the state from outside; see `engine.edits`
     "tokens": {key: [digest, token, epoch]},   failed effects that are retried under the idempotency key they had;
                                      of one that may have happened also why, and how many of its intents are kept
     "forked": how}                   only of a fork: how it treats effects its family performed
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.engine.edits import Edit

Span = tuple[int, int]


class LoopMark(msgspec.Struct, frozen=True):
    """How far a loop is: `turn` turns are finished, their state is in `checkpoint`; the loop began at position `at`."""

    call: str
    turn: int
    checkpoint: str
    at: int


class Line:
    """What of the journal matters up to where the newest checkpoint stands. Entries behind it all matter."""

    def __init__(self, spans: list[Span] | None = None, covers: int = 0, loops: list[LoopMark] | None = None) -> None:
        self.spans = spans or []
        self.covers = covers
        self.loops = loops or []
        self.kept: list[int] = []
        """Positions that matter in whatever turn they stand: versions of the code, a cancellation."""
        self.left: dict[str, int] = {}
        """Effects that a rollback has left as they are, and its epoch: what is done anew has that in its key."""
        self.tokens: dict[str, list[Any]] = {}
        self.epoch = 0
        self.forked = ""
        self.edits: list[Edit] = []

    def spans_to(self, position: int) -> list[Span]:
        """What of the journal up to `position` matters."""
        spans = [(first, min(last, position)) for first, last in self.spans if first <= position]
        if position > self.covers:
            spans.append((self.covers + 1, position))
        return joined(spans)

    def found(self, call: str) -> LoopMark | None:
        """How far the loop was, if it was entered before."""
        return next((mark for mark in self.loops if mark.call == call), None)

    def before(self, call: str) -> list[LoopMark]:
        """The loops that were entered before this one, which are not inside its turns."""
        names = [mark.call for mark in self.loops]
        marks = self.loops[: names.index(call)] if call in names else self.loops
        return [mark for mark in marks if not mark.call.startswith(f"{call}[")]

    def resume(self, position: int, version: int, own: LoopMark | None = None) -> dict[str, Any]:
        """What a checkpoint that covers `position` carries. `own`: the loop whose turn ends with it."""
        if own is None:
            edits = [edit for edit in self.edits if edit.at <= position]
            return self.told(self.spans_to(position), self.loops, version, edits)
        return self.told(self._spans_of(own), [*self.before(own.call), own], version)

    def finished(self, own: LoopMark, position: int) -> None:
        """A turn of the loop has ended at `position`: what came before in the loop does not matter any more."""
        self.spans, self.loops = self._spans_of(own), [*self.before(own.call), own]
        self.covers = position
        self.edits = []

    def _spans_of(self, own: LoopMark) -> list[Span]:
        return joined([*self.spans_to(own.at), *[(position, position) for position in self.kept]])

    def told(
        self, spans: list[Span], loops: list[LoopMark], version: int, edits: Sequence[Edit] = ()
    ) -> dict[str, Any]:
        """A line as a checkpoint carries it."""
        needs = [mark.checkpoint for mark in loops if mark.checkpoint]
        needs += [edit.checkpoint for edit in edits if edit.checkpoint]
        found: dict[str, Any] = {
            "spans": [list(span) for span in spans],
            "loops": [msgspec.to_builtins(mark) for mark in loops],
            "needs": needs,
            "epoch": self.epoch,
            "version": version,
        }
        found |= {"edits": [msgspec.to_builtins(edit) for edit in edits]} if edits else {}
        found |= {"left": self.left} if self.left else {}
        found |= {"tokens": self.tokens} if self.tokens else {}
        return {**found, "forked": self.forked} if self.forked else found


def line_of(resume: dict[str, Any], covers: int, checkpoint_id: str) -> Line:
    """The line as a checkpoint tells it. One that was not saved by the engine may tell no more than its spans."""
    marks = resume.get("loops", [])
    loops = [LoopMark(m["call"], m["turn"], m["checkpoint"] or checkpoint_id, m["at"]) for m in marks]
    line = Line([(first, last) for first, last in resume["spans"]], covers, loops)
    line.epoch = resume.get("epoch", 0)
    line.forked = resume.get("forked", "")
    line.left = resume.get("left", {})
    line.edits = [
        Edit(e["at"], e["checkpoint"] or ("" if e["entry"] else checkpoint_id), e["entry"])
        for e in resume.get("edits", [])
    ]
    line.tokens = resume.get("tokens", {})
    return line


def minus(spans: list[Span], gap: Span) -> list[Span]:
    """Spans without the positions of `gap`."""
    parts = [part for first, last in spans for part in ((first, min(last, gap[0] - 1)), (max(first, gap[1] + 1), last))]
    return joined(parts)


def joined(spans: list[Span]) -> list[Span]:
    """Spans that touch become one."""
    found: list[Span] = []
    for first, last in sorted(spans):
        if first > last:
            continue
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found
