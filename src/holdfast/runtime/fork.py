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
from holdfast.ids import check_id
from holdfast.model.commit import Commit, Committed, NewCheckpoint, NewEntry, NewRun, Outcome, Reason
from holdfast.model.rows import READY, CheckpointRow, EffectRow, EntryRow, RunRow
from holdfast.operations.context import refusal
from holdfast.operations.fork import to_new_checkpoint, to_new_effect, to_new_entry
from holdfast.operations.prune import delete
from holdfast.operations.run_tree import inherited
from holdfast.operations.state_commit import EMPTY_STATE, BulkEncoder
from holdfast.operations.views import encode_body
from holdfast.runtime.execute import EditRefused, claim_known, run_until_idle
from holdfast.runtime.replay_input import CODEC, RESUME, entry_data, state_of
from holdfast.runtime.run_history import Base, RunHistory, read_history
from holdfast.runtime.start import new_run_id
from holdfast.state.values import pack, pack_sorted
from holdfast.store.journal_pruning import last_of
from holdfast.store.search import read_metadata, write_metadata

if TYPE_CHECKING:
    from holdfast.runtime.app_core import AppCore

TREATMENTS: Final = ("reuse", "perform", "ask")
_ENDS: Final = ("completed", "failed", "cancelling", "cancelled")
_WITHOUT_CALLS: Final = frozenset({"saved", "turn", "log"})


class ForkSpec(NamedTuple):
    """Where a fork begins, how it treats effects of its family, and how its state is changed."""

    at: object = None
    """A position, a checkpoint's id or a call."""
    step: int | None = None
    checkpoint_id: str | None = None
    effects: str = "reuse"
    state: object = None
    update: object = None


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
    change = _to_change(spec.state, spec.update)
    if spec.effects not in TREATMENTS:
        raise InvalidInput(f"effects must be one of {', '.join(TREATMENTS)}, not {spec.effects!r}")
    while True:
        history: RunHistory = yield lambda: read_history(app.core, run_id)
        name = check_id("new run_id", new_id) if new_id is not None else new_run_id(app, history.run.workflow or "fork")
        position = _find_position(history, spec)
        if change.paths:
            yield lambda history=history, at=position: _check_paths(app, history, at, change)
        commit = _commit(app, history, name, position, spec.effects, change)
        outcome: Outcome = yield commit
        if isinstance(outcome, Committed):
            return name
        if outcome.reason != Reason.SOURCE:  # else the source was swept while it was read: read it again
            raise refusal(app.access, commit, outcome)


class _Change(NamedTuple):
    """How the state the fork begins with differs from its source's."""

    state: dict[str, object] | None
    paths: list[tuple[Path, object]]


def _to_change(state: object, update: object) -> _Change:
    if state is not None and update is not None:
        raise InvalidInput("state replaces the whole state and update sets values in it; give one of them")
    if state is not None and not isinstance(state, dict):
        raise InvalidInput(f"state must be a dict, as run.state is, not {state!r}")
    if update is not None and not isinstance(update, Mapping):
        raise InvalidInput(f"update must be a dict of values by their paths in the state, not {update!r}")
    return _Change(state, [(path_of(path), CODEC.round_trip(value)) for path, value in (update or {}).items()])


def _check_paths(app: AppCore, history: RunHistory, to: int, change: _Change) -> None:
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
            apply_changes(state, change.paths)


def _find_position(history: RunHistory, spec: ForkSpec) -> int:
    """Where the fork begins: at a position, checkpoint or call; at the checkpoint of a step; or at the end."""
    if sum(choice is not None for choice in (spec.at, spec.step, spec.checkpoint_id)) > 1:
        raise InvalidInput("at, step and checkpoint_id exclude each other; give one of them")
    rows = [row for row in history.checkpoints if row.lane == ""]
    if spec.checkpoint_id is not None:
        if not any(row.checkpoint_id == spec.checkpoint_id for row in rows):
            raise CheckpointNotFound(history.run.run_id, repr(spec.checkpoint_id))
        return history.target(spec.checkpoint_id)
    if spec.step is not None:
        rows = [row for row in rows if row.step == spec.step]
        if not rows:
            raise CheckpointNotFound(history.run.run_id, f"with step {spec.step!r}")
        return history.target(rows[-1].checkpoint_id)
    if spec.at is not None:
        return history.target(spec.at)
    ends = [position for position, entry in history.live if entry["kind"] in _ENDS]
    return history.target(ends[0] - 1 if ends else history.run.position)


def _commit(app: AppCore, history: RunHistory, name: str, to: int, effects: str, change: _Change) -> Commit:
    run, base, cut = history.run, history.base(to), cut_at(history.live, to, fork=True)
    undone = sorted((cut.undone | history.undone_keys()) - cut.keys)
    if undone:
        raise InvalidInput(
            f"run {run.run_id!r} has undone effect {undone[0]!r} since position {to}; a fork from there would "
            "continue as if it were done, so fork from before that effect"
        )
    rows = [row for row in history.rows if last_of(row) <= to]
    end = last_of(rows[-1]) if rows else 0
    entry: EntryData = {"kind": "forked", "from": run.run_id, "to": to, "void": cut.void, "effects": effects}
    edits = list(base.edits)
    if change.paths:
        entry["set"] = [[list(path), value] for path, value in change.paths]
        edits.append(Edit(end, entry=end + 1))
    encoder = BulkEncoder()
    root = base.row.root if base.row is not None else EMPTY_STATE
    if change.state is not None:
        root = encoder.encode_state(change.state)
        entry["edited"] = True
        edits.append(Edit(end))
    needed = _select_needed(history, base)
    numbers = sorted(row.number for row in needed)
    kept = [row for row in history.effects if _is_before(row, history, to, cut.keys)]
    failed = {row.key for row in history.effects if row.state == "failed"}
    entries = [to_new_entry(_own_entry(app, run, row, failed)) for row in rows]
    return Commit(
        name,
        app.token(8),
        create=NewRun(True, run.run_id, run.incarnation, run.gc_epoch, pack(f"{run.run_id}@journal.{to}")),
        workflow=run.workflow or None,
        status=READY,
        metadata=tuple(read_metadata(run.metadata).items()),
        entries=(*entries, NewEntry("forked", encode_body(app.core, entry, "an entry"))),
        checkpoints=(*[to_new_checkpoint(row) for row in needed], _first(base, root, cut.void, effects, edits)),
        chunks=app.core.chunk_rows(encoder.chunks),
        effects=tuple(to_new_effect(inherited(app.core, run, row), numbers, end) for row in kept),
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
    return msgspec.structs.replace(row, body=encode_body(app.core, entry, "a journal entry"))


def _is_before(row: EffectRow, history: RunHistory, to: int, taken_back: set[str]) -> bool:
    """Whether the fork begins after the outcome of an effect."""
    if row.state not in ("done", "failed"):
        return False
    return row.key not in taken_back if row.key in history.recorded_keys() else row.after_position < to


def _select_needed(history: RunHistory, base: Base) -> list[CheckpointRow]:
    """The checkpoints whose state the fork may have to restore."""
    if base.row is None:
        return []
    wanted = {base.row.checkpoint_id, *base.needs}
    return [row for row in history.checkpoints if row.lane == "" and row.checkpoint_id in wanted]


def _first(base: Base, root: bytes, void: list[int], effects: str, edits: list[Edit]) -> NewCheckpoint:
    """The first checkpoint of the fork: the state it begins with, and what it must replay."""
    line = ResumePoint(loops=base.loops)
    line.epoch, line.forked, line.left = base.epoch, effects, base.left
    resume = line.to_metadata(without_positions(base.spans, void), base.loops, base.version, edits)
    node = base.row.next_node if base.row is not None else None
    metadata = write_metadata(((RESUME, pack_sorted(resume)),))
    return NewCheckpoint("", root, next_node=node, status=READY, metadata=metadata)
