"""Fork: a new run that begins at a position of another run.

A fork neither repeats nor undoes the effects of its source. What it does with an effect that its family has performed
since is decided by the ledgers of the family.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from holdfast.drivers import Plan
from holdfast.engine.commands import EntryData
from holdfast.engine.journal_cut import cut_at
from holdfast.engine.resume_point import ResumePoint
from holdfast.engine.rollback import without_positions
from holdfast.engine.state_edits import Edit, Path, apply_changes, path_of
from holdfast.errors import CheckpointNotFound, InvalidInput
from holdfast.ids import check_id, check_via
from holdfast.model.commit import Commit, Committed, NewCheckpoint, NewEntry, NewRun, Outcome, Reason
from holdfast.model.rows import READY, EntryRow, RunRow
from holdfast.operations.context import refusal
from holdfast.operations.fork import recreate
from holdfast.operations.prune import delete
from holdfast.operations.run_tree import inherited
from holdfast.operations.state_commit import EMPTY_STATE, BulkEncoder
from holdfast.operations.views import RESUME, encode_body
from holdfast.runtime.execute import EditRefused, claim_known, run_until_idle
from holdfast.runtime.replay_input import CODEC, entry_data, state_of
from holdfast.runtime.rollback import check_basis, take_back_to
from holdfast.runtime.run_history import Base, RunHistory, read_history
from holdfast.runtime.start import new_run_id
from holdfast.state.values import pack, pack_sorted
from holdfast.store.journal_prune import last_of
from holdfast.store.port import RunRows
from holdfast.store.search import write_metadata

if TYPE_CHECKING:
    from holdfast.runtime.app_core import AppCore

_replace = msgspec.structs.replace

TREATMENTS: Final = ("reuse", "perform", "ask")
_WITHOUT_CALLS: Final = frozenset({"saved", "turn", "log"})
_Changes = list[tuple[Path, object]]


class ForkSpec(NamedTuple):
    """Where a fork begins, how it treats effects of its family, and how its state is changed."""

    at: object = None
    """A position, a checkpoint's id or a call."""
    step: int | None = None
    checkpoint_id: str | None = None
    effects: str = "reuse"
    state: object = None
    update: object = None
    by: str | None = None
    """The person to record; none by default."""
    via: str = ""
    basis: str | None = None
    """That of the plan of a rollback to the same place."""


def fork(app: AppCore, run_id: str, new_id: str | None, spec: ForkSpec, *, here: bool) -> Plan[str]:
    """Create the fork, execute it if `here`, and return its id. Without the paths to set there is no fork."""
    name = yield from _create(app, run_id, new_id, spec)
    claimed = (yield from claim_known(app, name)) if here else None
    if claimed is not None:
        try:
            yield from run_until_idle(app, claimed)
        except EditRefused as error:
            yield from delete(app.access, name)
            raise InvalidInput(f"run {run_id!r} was not forked: {error.__cause__}") from error
    return name


def _create(app: AppCore, run_id: str, new_id: str | None, spec: ForkSpec) -> Plan[str]:
    check_id("run_id", run_id)
    check_via(spec.via)
    if spec.by is not None:
        check_id("by", spec.by)
    changes = _find_changes(spec.state, spec.update)
    if spec.effects not in TREATMENTS:
        raise InvalidInput(f"effects must be one of {', '.join(TREATMENTS)}, not {spec.effects!r}")
    while True:
        history: RunHistory = yield lambda: read_history(app.core, run_id)
        name = check_id("new run_id", new_id) if new_id is not None else new_run_id(app, history.run.workflow or "fork")
        position = _find_position(history, spec)
        if spec.basis is not None:
            taken = yield lambda history=history, at=position: take_back_to(app, history, at)
            check_basis(history, taken, spec.basis)
        if changes:
            yield lambda history=history, at=position: _check_paths(app, history, at, changes)
        commit = _commit(app, history, name, position, spec, changes)
        outcome: Outcome = yield commit
        if isinstance(outcome, Committed):
            return name
        if outcome.reason != Reason.SOURCE:  # else the source was swept while it was read: read it again
            raise refusal(app.access, commit, outcome)


def _find_changes(state: object, update: object) -> _Changes:
    """Check how the state is to be changed, and return the values to set in it by their paths."""
    if state is not None and update is not None:
        raise InvalidInput("state replaces the whole state and update sets values in it; give one of them")
    if state is not None and not isinstance(state, dict):
        raise InvalidInput(f"state must be a dict, as run.state is, not {state!r}")
    if update is not None and not isinstance(update, Mapping):
        raise InvalidInput(f"update must be a dict of values by their paths in the state, not {update!r}")
    return [(path_of(path), CODEC.round_trip(value)) for path, value in (update or {}).items()]


def _check_paths(app: AppCore, history: RunHistory, to: int, changes: _Changes) -> None:
    """Refuse paths that the state does not have, if it was saved just before that position.

    After other calls, and after an earlier edit, the state is known only when the code is replayed.
    """
    rows = [row for row in history.checkpoints if row.lane == "" and row.covers <= to]
    if not rows or history.base(to).edits:
        return
    between = {entry["kind"] for position, entry in history.live if rows[-1].covers < position <= to}
    if between <= _WITHOUT_CALLS:
        state, _ = state_of(app.core, history.run, rows[-1].checkpoint_id)
        if isinstance(state, dict):
            apply_changes(state, changes)


def _find_position(history: RunHistory, spec: ForkSpec) -> int:
    """Where the fork begins: at a position, checkpoint or call; at the checkpoint of a step; or at the end."""
    if sum(choice is not None for choice in (spec.at, spec.step, spec.checkpoint_id)) > 1:
        raise InvalidInput("at, step and checkpoint_id exclude each other; give one of them")
    if spec.step is None and spec.checkpoint_id is None:
        return history.target(spec.at)
    rows = [row for row in history.checkpoints if row.lane == "" and spec.step in (None, row.step)]
    rows = [row for row in rows if spec.checkpoint_id in (None, row.checkpoint_id)]
    if not rows:
        wanted = repr(spec.checkpoint_id) if spec.step is None else f"with step {spec.step!r}"
        raise CheckpointNotFound(history.run.run_id, wanted)
    return history.target(rows[-1].checkpoint_id)


def _commit(app: AppCore, history: RunHistory, name: str, to: int, spec: ForkSpec, changes: _Changes) -> Commit:
    run, base, cut = history.run, history.base(to), cut_at(history.live, to, fork=True)
    undone = sorted((cut.undone | history.undone_keys()) - cut.keys)
    if undone:
        raise InvalidInput(
            f"run {run.run_id!r} has undone effect {undone[0]!r} since position {to}; a fork from there would "
            "continue as if it were done, so fork from before that effect"
        )
    rows = [row for row in history.rows if last_of(row) <= to]
    end = last_of(rows[-1]) if rows else 0
    entry: EntryData = {"kind": "forked", "from": run.run_id, "to": to, "void": cut.void, "effects": spec.effects}
    entry |= {key: value for key, value in (("by", spec.by), ("via", spec.via)) if value}
    edits = list(base.edits)
    if changes:
        entry["set"] = [[list(path), value] for path, value in changes]
        edits.append(Edit(end, entry=end + 1))
    encoder = BulkEncoder()
    root = base.row.root if base.row is not None else EMPTY_STATE
    if spec.state is not None:
        root = encoder.encode_state(spec.state)
        entry["edited"] = True
        edits.append(Edit(end))
    needs = {base.row.checkpoint_id, *base.needs} if base.row is not None else set()
    checkpoints = [row for row in history.checkpoints if row.lane == "" and row.checkpoint_id in needs]
    failed = {row.key for row in history.effects if row.state == "failed"}
    entries = [_own_entry(app, run, row, failed) for row in rows]
    recorded = history.recorded_keys()
    ended = [row for row in history.effects if row.state in ("done", "failed")]
    before = [row for row in ended if (row.key not in cut.keys if row.key in recorded else row.after_position < to)]
    effects = [inherited(app.core, run, row) for row in before]
    parts = RunRows(_replace(run, status=READY), checkpoints, entries, effects, attachments=[])
    create = NewRun(True, run.run_id, run.incarnation, run.gc_epoch, pack(f"{run.run_id}@journal.{to}"))
    commit = recreate(app.access, parts, name, create)
    return _replace(
        commit,
        entries=(*commit.entries, NewEntry("forked", encode_body(app.core, entry, "an entry"))),
        checkpoints=(*commit.checkpoints, _first(base, root, cut.void, spec.effects, edits)),
        chunks=app.core.chunk_rows(encoder.chunks),
    )


def _own_entry(app: AppCore, run: RunRow, row: EntryRow, failed: set[str]) -> EntryRow:
    """An entry as the fork has it.

    The fork of a child has no parent, so its end wakes no other run. A failed effect belongs to the fork if the fork
    retries it, so it gets another idempotency key.
    """
    if row.kind not in ("started", "intent"):
        return row
    entry = entry_data(run, row)
    wrong = "parent" if row.kind == "started" else "token" if entry.get("key") in failed else ""
    if entry.pop(wrong, None) is None:
        return row
    return _replace(row, body=encode_body(app.core, entry, "a journal entry"))


def _first(base: Base, root: bytes, void: list[int], effects: str, edits: list[Edit]) -> NewCheckpoint:
    """The first checkpoint of the fork: the state it begins with, and what it must replay."""
    line = ResumePoint()
    line.epoch, line.forked, line.left = base.epoch, effects, base.left
    resume = line.to_metadata(without_positions(base.spans, void), base.loops, base.version, edits)
    node = base.row.next_node if base.row is not None else None
    metadata = write_metadata(((RESUME, pack_sorted(resume)),))
    return NewCheckpoint("", root, next_node=node, status=READY, metadata=metadata)
