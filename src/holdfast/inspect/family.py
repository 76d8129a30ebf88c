"""Families of runs as trees: the runs, their forks, checkpoints and rollbacks; and parents and children."""

from __future__ import annotations

import datetime as dt
from collections.abc import Container
from typing import Any, Final

import msgspec

from holdfast.errors import DamagedData
from holdfast.inspect.calls import is_retry, number_of, text_of
from holdfast.model.rows import CheckpointRow, EntryRow, RunRow
from holdfast.model.views import RunInfo, View
from holdfast.operations.context import StoreContext
from holdfast.operations.read import known_run, retry_if_changed
from holdfast.operations.store import Store
from holdfast.operations.views import checked_checkpoint, entry_view, moment, run_info
from holdfast.runtime.replay_input import resume_of
from holdfast.store.port import CheckpointQuery, RunQuery

RUNS_MAX: Final = 200
CHECKPOINTS_MAX: Final = 500
"""How many checkpoints of each run are listed; older ones are only counted."""


class Node(View, frozen=True, kw_only=True):
    """A checkpoint of a run, from which others may have been forked."""

    kind: str
    """`checkpoint`, or `rollback` if a rollback saved it."""
    checkpoint_id: str
    parent_id: str | None
    lane: str
    step: int
    covers: int
    next_node: str | None
    created_at: dt.datetime
    taken_back: bool = False
    """A later rollback returned to before it."""
    is_retry: bool = False
    """Of a rollback: it is the retry of a failed run."""


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
    """A run and all its forks. Each follows the run it was forked from."""

    branches: tuple[Branch, ...]
    more_runs: bool
    """Whether there are more runs than are listed."""


def family(store: Store, run_id: str, *, checkpoints: int = CHECKPOINTS_MAX) -> Family:
    """Return the family of a run.

    Example:
        [branch.run_id for branch in family(store, "order-17").branches]
    """
    core = store.access.core
    return retry_if_changed(core, run_id, lambda: _family(core, run_id, checkpoints))


def _family(core: StoreContext, run_id: str, limit: int) -> Family:
    wanted = known_run(core, run_id)
    rows = core.port.runs(RunQuery(family=wanted.family, limit=RUNS_MAX + 1))
    more, rows = len(rows) > RUNS_MAX, rows[:RUNS_MAX]
    if all(row.run != wanted.run for row in rows):
        rows.append(wanted)
    known = {row.run_id for row in rows}
    branches = {row.run_id: _branch(core, row, limit, known) for row in sorted(rows, key=lambda row: row.run)}
    return Family(branches=tuple(_ordered(branches)), more_runs=more)


def _ordered(branches: dict[str, Branch]) -> list[Branch]:
    """Sort forks behind their sources, oldest first; a run without its source in the store is a root."""
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


def _branch(core: StoreContext, run: RunRow, limit: int, known: Container[str]) -> Branch:
    info = run_info(run)
    source, at = split_origin(info.forked_from, known)
    found = core.port.find_checkpoints(CheckpointQuery(run.run_id, limit=limit + 1))
    rows = [checked_checkpoint(run, row) for _, row in reversed(found[:limit])]
    left_out = rows[0].number - 1 if len(found) > limit and rows else 0
    return Branch(
        run_id=run.run_id,
        status=info.status,
        workflow=info.workflow,
        created_at=info.created_at,
        forked_from=source,
        forked_at=at,
        depth=0,
        position=run.position,
        nodes=_nodes(core, run, rows),
        left_out=left_out,
    )


def _nodes(core: StoreContext, run: RunRow, rows: list[CheckpointRow]) -> tuple[Node, ...]:
    """Return the checkpoints. One saved by a rollback has a higher epoch than its predecessor, and covers its entry."""
    rows = [row for row in rows if "keeps" not in (resume_of(run, row) or {})]  # without those that pin a rollback
    backs: dict[int, int] = {}
    retries: set[int] = set()
    epoch = 0
    for row in rows:
        now = number_of((resume_of(run, row) or {}).get("epoch"))
        entries = core.port.rows(EntryRow, run.run, keys=[row.covers]) if now > epoch else []
        for entry in [entry for entry in entries if entry.kind == "rolled_back"]:
            data = entry_view(run, entry).data
            backs[row.covers] = number_of(data.get("to"))
            retries |= {row.covers} if is_retry(entry.kind, data) else set()
        epoch = max(epoch, now)
    dead = [(to, at) for at, to in backs.items()]
    return tuple(
        Node(
            kind="rollback" if row.covers in backs else "checkpoint",
            checkpoint_id=row.checkpoint_id,
            parent_id=row.parent_id,
            lane=row.lane,
            step=row.step,
            covers=row.covers,
            next_node=row.next_node,
            created_at=moment(row.created_us),
            is_retry=row.covers in retries,
            taken_back=any(to < row.covers < at for to, at in dead),
        )
        for row in rows
    )


def split_origin(origin: str | None, known: Container[str] = ()) -> tuple[str | None, str | None]:
    """Split the origin of a fork into its run and the place in it.

    Ids may contain the separator themselves, so a run that is `known` is preferred.
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


# --- parents and children --------------------------------------------------------------------------------------------

RELATIVES_MAX: Final = 100
_ENTRIES_SEARCHED: Final = 2_000


class Relative(View, frozen=True, kw_only=True):
    """A parent or a child of a run."""

    run_id: str
    call: str
    """The call of the parent that started the child."""
    detached: bool
    info: RunInfo | None
    """None: it is not in this store any more, or damaged."""


class Relatives(View, frozen=True, kw_only=True):
    """The parents of a run, the nearest first, and its children, newest first."""

    parents: tuple[Relative, ...]
    children: tuple[Relative, ...]
    more_children: bool


def relatives(store: Store, run_id: str) -> Relatives:
    """Return the parents and the children of a run.

    Children are found by their ids, which begin with that of their parent, and in the newest part of the journal.

    Example:
        [child.run_id for child in relatives(store, "order-17").children]
    """
    core = store.access.core
    run = known_run(core, run_id)
    rows = {row.run_id: row for row in core.port.runs(RunQuery(prefix=f"{run_id}/", limit=10 * RELATIVES_MAX))}
    searched = core.port.rows(EntryRow, run.run, max(0, run.position - _ENTRIES_SEARCHED), _ENTRIES_SEARCHED)
    for entry in [entry for entry in searched if entry.kind == "child"]:
        name = _entry_data(run, entry).get("child")
        row = core.port.run(name) if isinstance(name, str) and name and name not in rows else None
        rows |= {row.run_id: row} if row is not None else {}
    children = []
    for row in rows.values():
        parent = _parent_of(core, row)
        if parent is not None and parent.run_id == run_id:
            child = Relative(run_id=row.run_id, call=parent.call, detached=parent.detached, info=_info(row))
            children.append((row.run, child))
        if len(children) > RELATIVES_MAX:
            break
    ordered = [child for _, child in sorted(children, key=lambda pair: -pair[0])]
    return Relatives(
        parents=tuple(_parents(core, run)),
        children=tuple(ordered[:RELATIVES_MAX]),
        more_children=len(ordered) > RELATIVES_MAX,
    )


def _parents(core: StoreContext, run: RunRow) -> list[Relative]:
    found: list[Relative] = []
    parent = _parent_of(core, run)
    while parent is not None and len(found) < RELATIVES_MAX and parent.run_id not in {run.run_id, *_ids(found)}:
        row = core.port.run(parent.run_id)
        found.append(msgspec.structs.replace(parent, info=None if row is None else _info(row)))
        parent = None if row is None else _parent_of(core, row)
    return found


def _ids(relatives: list[Relative]) -> list[str]:
    return [one.run_id for one in relatives]


def _parent_of(core: StoreContext, run: RunRow) -> Relative | None:
    rows = core.port.rows(EntryRow, run.run, 0, 1)
    parent = _entry_data(run, rows[0]).get("parent") if rows and rows[0].kind == "started" else None
    if not isinstance(parent, dict) or not text_of(parent.get("run")):
        return None
    call, detached = text_of(parent.get("call")), parent.get("detached") is True
    return Relative(run_id=parent["run"], call=call, detached=detached, info=None)


def _entry_data(run: RunRow, row: EntryRow) -> dict[str, Any]:
    """The data of an entry; empty if it cannot be read."""
    try:
        data = entry_view(run, row).data
    except DamagedData:
        return {}
    return data if isinstance(data, dict) else {}


def _info(row: RunRow) -> RunInfo | None:
    try:
        return run_info(row)
    except DamagedData:
        return None
