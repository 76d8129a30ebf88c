"""The resume point: the parts of the journal needed to continue a run.

A durable loop skips its finished turns: a resume replays the entries before the loop, then those after the last
finished turn. So it needs a few *spans* of positions, and everything after the newest checkpoint. The metadata of
every checkpoint of the engine has, under "holdfast", the data to resume from it:

    {"spans": [[first, last], …],     positions to replay, at or below what the checkpoint covers
     "loops": [{"call", "turn", "checkpoint", "at"}, …],   loops in progress, see `LoopProgress`
     "needs": [checkpoint ids],       other checkpoints of the run whose state is needed
     "epoch": n, "version": n,        rollbacks so far, and the version of the workflow that wrote it
     "left": {key: epoch},            effects that rollbacks did not undo
     "edits": [{"at", "checkpoint", "entry"}, …],   changes of the state from outside; see `engine.state_edits`
     "tokens": {key: [digest, token, epoch]},   failed effects that are retried under their old idempotency key;
                                      if one may have happened, also the reason and the number of its kept intents
     "forked": how}                   only in a fork: how it treats effects that its family performed
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.engine.commands import EntryData
from holdfast.engine.state_edits import Edit

Span = tuple[int, int]
Tokens = dict[str, list[Any]]


class LoopProgress(msgspec.Struct, frozen=True):
    """The progress of a loop: `turn` turns are finished, with their state in `checkpoint`; it began at `at`."""

    call: str
    turn: int
    checkpoint: str
    at: int


class ResumePoint:
    """The entries that a resume needs up to the newest checkpoint. It needs all entries after that."""

    def __init__(
        self, spans: list[Span] | None = None, covers: int = 0, loops: list[LoopProgress] | None = None
    ) -> None:
        self.spans = spans or []
        self.covers = covers
        self.loops = loops or []
        self.kept: list[int] = []
        """Positions that every resume needs, in any turn: see `record.KEPT`."""
        self.left: dict[str, int] = {}
        """Effects that a rollback did not undo, with its epoch, which becomes part of the key of the next one."""
        self.tokens: Tokens = {}
        self.epoch = 0
        self.forked = ""
        self.edits: list[Edit] = []

    def spans_to(self, position: int) -> list[Span]:
        """The spans of the journal up to `position` that a resume needs."""
        spans = [(first, min(last, position)) for first, last in self.spans if first <= position]
        if position > self.covers:
            spans.append((self.covers + 1, position))
        return join_spans(spans)

    def progress_of(self, call: str) -> LoopProgress | None:
        """The progress of a loop that was entered before, else None."""
        return next((mark for mark in self.loops if mark.call == call), None)

    def loops_before(self, call: str) -> list[LoopProgress]:
        """The loops that were entered before this one, which are not inside its turns."""
        names = [mark.call for mark in self.loops]
        marks = self.loops[: names.index(call)] if call in names else self.loops
        return [mark for mark in marks if not mark.call.startswith(f"{call}[")]

    def metadata_at(self, position: int, version: int, own: LoopProgress | None = None) -> EntryData:
        """The metadata of a checkpoint that covers `position`. `own`: the loop whose turn it ends."""
        if own is None:
            edits = [edit for edit in self.edits if edit.at <= position]
            return self.to_metadata(self.spans_to(position), self.loops, version, edits)
        return self.to_metadata(self._spans_of(own), [*self.loops_before(own.call), own], version)

    def finish_turn(self, own: LoopProgress, position: int) -> None:
        """Note that a turn of the loop ended at `position`: earlier entries of the loop are no longer needed."""
        self.spans, self.loops = self._spans_of(own), [*self.loops_before(own.call), own]
        self.covers = position
        self.edits = []

    def _spans_of(self, own: LoopProgress) -> list[Span]:
        return join_spans([*self.spans_to(own.at), *[(position, position) for position in self.kept]])

    def to_metadata(
        self, spans: list[Span], loops: list[LoopProgress], version: int, edits: Sequence[Edit] = ()
    ) -> EntryData:
        """The metadata of a checkpoint with these spans, loops and edits."""
        needs = [mark.checkpoint for mark in loops if mark.checkpoint]
        needs += [edit.checkpoint for edit in edits if edit.checkpoint]
        found: EntryData = {
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


def resume_point_from(resume: EntryData, covers: int, checkpoint_id: str) -> ResumePoint:
    """The resume point in a checkpoint's metadata. One that the engine did not save may have only spans."""
    marks = resume.get("loops", [])
    loops = [LoopProgress(m["call"], m["turn"], m["checkpoint"] or checkpoint_id, m["at"]) for m in marks]
    point = ResumePoint([(first, last) for first, last in resume["spans"]], covers, loops)
    point.epoch = resume.get("epoch", 0)
    point.forked = resume.get("forked", "")
    point.left = resume.get("left", {})
    point.edits = [
        Edit(e["at"], e["checkpoint"] or ("" if e["entry"] else checkpoint_id), e["entry"])
        for e in resume.get("edits", [])
    ]
    point.tokens = resume.get("tokens", {})
    return point


def subtract_span(spans: list[Span], gap: Span) -> list[Span]:
    """Spans without the positions of `gap`."""
    parts = [part for first, last in spans for part in ((first, min(last, gap[0] - 1)), (max(first, gap[1] + 1), last))]
    return join_spans(parts)


def join_spans(spans: list[Span]) -> list[Span]:
    """Spans in order, with adjacent and overlapping ones joined."""
    found: list[Span] = []
    for first, last in sorted(spans):
        if first > last:
            continue
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found
