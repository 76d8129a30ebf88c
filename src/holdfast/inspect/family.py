"""A family as a tree: its runs, where each was forked from, their checkpoints and rollbacks."""

from __future__ import annotations

import datetime as dt
from collections.abc import Container
from typing import Final

import msgspec

from holdfast.inspect.calls import number_of
from holdfast.model.rows import CheckpointRow, RunRow
from holdfast.model.views import View
from holdfast.runtime.reads import resume_of
from holdfast.store.port import CheckpointQuery, RunQuery
from holdfast.verbs.core import Core
from holdfast.verbs.reading import in_peace, known_run
from holdfast.verbs.shown import checked_checkpoint, entry_view, run_info
from holdfast.verbs.store import Store
from holdfast.verbs.values import moment

RUNS_MAX: Final = 200
CHECKPOINTS_MAX: Final = 500
"""Of each run, the newest; what was left out is counted."""


class Node(View, frozen=True, kw_only=True):
    """Something in the life of a run that others may have come from."""

    kind: str
    """`checkpoint`, or `rollback` for a checkpoint with which one ended."""
    checkpoint_id: str
    parent_id: str | None
    lane: str
    step: int
    covers: int
    next_node: str | None
    created_at: dt.datetime
    taken_back: bool = False
    """A later rollback went back to before it."""


class Branch(View, frozen=True, kw_only=True):
    """A run of the family."""

    run_id: str
    status: str
    workflow: str
    created_at: dt.datetime
    forked_from: str | None
    """The run it was forked from; None if it was not."""
    forked_at: str | None
    """The checkpoint's id, or the position as `journal.41`, at which it was forked."""
    depth: int
    position: int
    nodes: tuple[Node, ...]
    """Oldest first."""
    left_out: int
    """How many older checkpoints are not listed."""


class Family(View, frozen=True, kw_only=True):
    """A run and all its forks. Each stands behind the one it was forked from."""

    branches: tuple[Branch, ...]
    more_runs: bool
    """Whether there are more runs than are listed."""


def family(store: Store, run_id: str, *, checkpoints: int = CHECKPOINTS_MAX) -> Family:
    """The family of a run.

    Example:
        [branch.run_id for branch in family(store, "order-17").branches]
    """
    core = store._place.core
    return in_peace(core, run_id, lambda: _family(core, run_id, checkpoints))


def _family(core: Core, run_id: str, limit: int) -> Family:
    wanted = known_run(core, run_id)
    rows = core.port.runs(RunQuery(family=wanted.family, limit=RUNS_MAX + 1))
    more, rows = len(rows) > RUNS_MAX, rows[:RUNS_MAX]
    if all(row.run != wanted.run for row in rows):
        rows.append(wanted)
    known = {row.run_id for row in rows}
    branches = {row.run_id: _branch(core, row, limit, known) for row in sorted(rows, key=lambda row: row.run)}
    return Family(branches=tuple(_ordered(branches)), more_runs=more)


def _ordered(branches: dict[str, Branch]) -> list[Branch]:
    """Forks behind what they were forked from, oldest first; a run whose source is gone stands for itself."""
    forks: dict[str | None, list[Branch]] = {}
    for branch in branches.values():
        source = branch.forked_from if branch.forked_from in branches else None
        forks.setdefault(None if source == branch.run_id else source, []).append(branch)
    found: list[Branch] = []
    todo = [(branch, 0) for branch in reversed(forks.get(None, []))]
    while todo:
        branch, depth = todo.pop()
        found.append(msgspec.structs.replace(branch, depth=depth))
        todo += [(fork, depth + 1) for fork in reversed(forks.get(branch.run_id, []))]
    return found


def _branch(core: Core, run: RunRow, limit: int, known: Container[str]) -> Branch:
    info = run_info(run)
    source, at = split_origin(info.forked_from, known)
    found = core.port.find_checkpoints(CheckpointQuery(run.run_id, limit=limit + 1))
    rows = [checked_checkpoint(run, row) for _, row in reversed(found[:limit])]
    left_out = rows[0].number - 1 if len(found) > limit and rows else 0
    return Branch(
        run_id=run.run_id, status=info.status, workflow=info.workflow, created_at=info.created_at, forked_from=source,
        forked_at=at, depth=0, position=run.position, nodes=_nodes(core, run, rows), left_out=left_out,
    )  # fmt: skip


def _nodes(core: Core, run: RunRow, rows: list[CheckpointRow]) -> tuple[Node, ...]:
    """The checkpoints. One that a rollback made has a higher epoch than the one before, and covers its entry."""
    rows = [row for row in rows if "keeps" not in (resume_of(run, row) or {})]  # without those that pin a rollback
    backs: dict[int, int] = {}
    epoch = 0
    for row in rows:
        now = number_of((resume_of(run, row) or {}).get("epoch"))
        entry = core.port.entry_at(run.run, row.covers) if now > epoch else None
        if entry is not None and entry.kind == "rolled_back" and entry.position == row.covers:
            backs[row.covers] = number_of(entry_view(run, entry).data.get("to"))
        epoch = max(epoch, now)
    dead = [(to, at) for at, to in backs.items()]
    return tuple(
        Node(
            kind="rollback" if row.covers in backs else "checkpoint", checkpoint_id=row.checkpoint_id,
            parent_id=row.parent_id, lane=row.lane, step=row.step, covers=row.covers, next_node=row.next_node,
            created_at=moment(row.created_us), taken_back=any(to < row.covers < at for to, at in dead),
        )
        for row in rows
    )  # fmt: skip


def split_origin(origin: str | None, known: Container[str] = ()) -> tuple[str | None, str | None]:
    """Where a fork came from, as its run and the place in it.

    Both may have the sign between them in their ids, so a run that is `known` counts first.
    """
    if origin is None:
        return None, None
    at = origin.find("@")
    while at >= 0:
        if origin[:at] in known:
            return origin[:at], origin[at + 1 :]
        at = origin.find("@", at + 1)
    source, sign, place = origin.rpartition("@")
    return (source, place) if sign else (origin, None)
