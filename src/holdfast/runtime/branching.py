"""Fork: a new run from a position of another. It neither repeats nor undoes; the family's ledgers decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from holdfast.engine.edits import Edit, Path, changed, path_of
from holdfast.engine.goingback import cut_at, without
from holdfast.engine.line import Line
from holdfast.errors import CheckpointNotFound, InvalidInput
from holdfast.ids import check_id
from holdfast.model import commit as why
from holdfast.model.commit import Commit, Committed, NewCheckpoint, NewEntry, NewRun
from holdfast.model.rows import CheckpointRow, EffectRow, EntryRow, RunRow
from holdfast.model.status import READY
from holdfast.runtime.codec import CODEC
from holdfast.runtime.reads import RESUME, entry_data, state_of
from holdfast.runtime.starting import Acts, new_run_id
from holdfast.runtime.whole import Base, Whole, whole_of
from holdfast.state.encoder import Encoded, encode
from holdfast.state.values import pack, pack_sorted
from holdfast.store.pruning import last_of
from holdfast.store.tags import read_metadata, write_metadata
from holdfast.verbs.moving import appended, recorded
from holdfast.verbs.refusals import refusal
from holdfast.verbs.run_tree import inherited
from holdfast.verbs.values import value_body

if TYPE_CHECKING:
    from holdfast.runtime.core import AppCore

TREATMENTS = ("reuse", "perform", "ask")


def forked(
    app: AppCore, run_id: str, new_id: str | None, to: Any, step: int | None, checkpoint_id: str | None, effects: str,
    state: Any = None, update: Any = None,
) -> Acts[str]:  # fmt: skip
    """Make the fork. Gives its id."""
    check_id("run_id", run_id)
    change = _change(state, update)
    if effects not in TREATMENTS:
        raise InvalidInput(f"effects must be one of {', '.join(TREATMENTS)}, not {effects!r}")
    while True:
        whole: Whole = yield lambda: whole_of(app.core, run_id)
        name = check_id("new run_id", new_id) if new_id is not None else new_run_id(app, whole.run.workflow or "fork")
        position = _position(whole, to, step, checkpoint_id)
        if change.paths:
            yield lambda whole=whole, at=position: _check_paths(app, whole, at, change)
        commit = _commit(app, whole, name, position, effects, change)
        outcome = yield commit
        if type(outcome) is Committed:
            return name
        if outcome.why != why.SOURCE:  # else the source was swept while it was read: read it again
            raise refusal(app.place, commit, outcome)


def _check_paths(app: AppCore, whole: Whole, to: int, change: _Change) -> None:
    """Refuse paths that the state does not have, if it was saved just before that position.

    After other calls, and after an earlier edit, the state is known only when the code is replayed.
    """
    rows = [row for row in whole.checkpoints if row.lane == "" and row.covers <= to]
    if not rows or whole.base(to).edits:
        return
    between = {entry["kind"] for position, entry in whole.live if rows[-1].covers < position <= to}
    if between <= _WITHOUT_CALLS:
        state, _ = state_of(app.core, whole.run, rows[-1].checkpoint_id)
        if isinstance(state, dict):
            changed(state, change.paths)


_WITHOUT_CALLS: Final = frozenset({"saved", "turn", "log"})


class _Change(NamedTuple):
    """How the state the fork begins with differs from its source's."""

    state: dict[str, Any] | None = None
    paths: list[tuple[Path, Any]] = []  # noqa: RUF012 - read only


def _change(state: Any, update: Any) -> _Change:
    if state is not None and update is not None:
        raise InvalidInput("state replaces the whole state and update sets values in it; give one of them")
    if state is not None and not isinstance(state, dict):
        raise InvalidInput(f"state must be a dict, as run.state is, not {state!r}")
    if update is not None and not isinstance(update, Mapping):
        raise InvalidInput(f"update must be a dict of values by their paths in the state, not {update!r}")
    return _Change(state, [(path_of(path), CODEC.settled(value)) for path, value in (update or {}).items()])


def _position(whole: Whole, to: Any, step: int | None, checkpoint_id: str | None) -> int:
    """Where the fork begins: at a position, checkpoint or call; at the checkpoint of a step; or at the end."""
    if sum(choice is not None for choice in (to, step, checkpoint_id)) > 1:
        raise InvalidInput("at, step and checkpoint_id choose a place each in its own way; give one of them")
    if checkpoint_id is not None:
        if not any(row.checkpoint_id == checkpoint_id and row.lane == "" for row in whole.checkpoints):
            raise CheckpointNotFound(whole.run.run_id, repr(checkpoint_id))
        return whole.target(checkpoint_id)
    if step is not None:
        rows = [row for row in whole.checkpoints if row.lane == "" and row.step == step]
        if not rows:
            raise CheckpointNotFound(whole.run.run_id, f"with step {step!r}")
        return whole.target(rows[-1].checkpoint_id)
    if to is not None:
        return whole.target(to)
    ends = [position for position, entry in whole.live if entry["kind"] in _ENDS]
    return whole.target(ends[0] - 1 if ends else whole.run.position)


_ENDS = ("completed", "failed", "cancelling", "cancelled")


def _commit(app: AppCore, whole: Whole, name: str, to: int, effects: str, change: _Change) -> Commit:
    run, base, cut = whole.run, whole.base(to), cut_at(whole.live, to, fork=True)
    undone = sorted((cut.undone | whole.undone_keys()) - cut.keys)
    if undone:
        raise InvalidInput(
            f"run {run.run_id!r} has undone effect {undone[0]!r} since position {to}; a fork from there would go on as "
            "if it were done, so fork from before that effect"
        )
    rows = [row for row in whole.rows if last_of(row) <= to]
    end = last_of(rows[-1]) if rows else 0
    entry: dict[str, Any] = {"kind": "forked", "from": run.run_id, "to": to, "void": cut.void, "effects": effects}
    edits = list(base.edits)
    if change.paths:
        entry["set"] = [[list(path), value] for path, value in change.paths]
        edits.append(Edit(end, entry=end + 1))
    encoded = encode(change.state) if change.state is not None else None
    if encoded is not None:
        entry["edited"] = True
        edits.append(Edit(end))
    copied = _needed(whole, base)
    numbers = sorted(row.number for row in copied)
    kept = [row for row in whole.effects if _is_before(row, whole, to, cut.keys)]
    failed = {row.key for row in whole.effects if row.state == "failed"}
    rows = [_own_entry(app, run, row, failed) for row in rows]
    return Commit(
        name, app.token(8),
        create=NewRun(True, run.run_id, run.incarnation, run.gc_epoch, pack(f"{run.run_id}@journal.{to}")),
        workflow=run.workflow or None, status=READY, metadata=tuple(read_metadata(run.metadata).items()),
        entries=(*[appended(row) for row in rows], NewEntry("forked", value_body(app.core, entry, "an entry"))),
        checkpoints=(*[_copied(row) for row in copied], _first(base, cut.void, effects, edits, encoded)),
        chunks=app.core.chunk_rows(encoded.chunks) if encoded is not None and encoded.chunks else (),
        effects=tuple(recorded(inherited(app.core, run, row), numbers, end) for row in kept),
    )  # fmt: skip


def _own_entry(app: AppCore, run: RunRow, row: EntryRow, failed: set[str]) -> EntryRow:
    """An entry as the fork has it.

    The fork of a child is nobody's child, and its end wakes no run. An effect that failed is the fork's own if it is
    retried, so its idempotency key must be another.
    """
    if row.kind not in ("started", "intent"):
        return row
    entry = entry_data(run, row)
    wrong = "parent" if row.kind == "started" else "token" if entry.get("key") in failed else ""
    if entry.pop(wrong, None) is None:
        return row
    return msgspec.structs.replace(row, body=value_body(app.core, entry, "a journal entry"))


def _is_before(row: EffectRow, whole: Whole, to: int, taken_back: set[str]) -> bool:
    """Whether an effect is settled in what the fork takes over."""
    if row.state not in ("done", "failed"):
        return False
    return row.key not in taken_back if row.key in whole.recorded_keys() else row.after_position < to


def _needed(whole: Whole, base: Base) -> list[CheckpointRow]:
    """The checkpoints whose state the fork may have to restore."""
    if base.row is None:
        return []
    wanted = {base.row.checkpoint_id, *base.needs}
    return [row for row in whole.checkpoints if row.lane == "" and row.checkpoint_id in wanted]


def _copied(row: CheckpointRow) -> NewCheckpoint:
    return NewCheckpoint(
        row.checkpoint_id, row.root, row.lane, row.parent_id or "", row.step, row.next_node, row.covers, row.status,
        row.metadata, row.created_us,
    )  # fmt: skip


def _first(base: Base, void: list[int], effects: str, edits: list[Edit], encoded: Encoded | None) -> NewCheckpoint:
    """The fork's own first checkpoint: the state it begins with, and what it must replay."""
    line = Line(loops=base.loops)
    line.epoch, line.forked, line.left = base.epoch, effects, base.left
    resume = line.told(without(base.spans, void), base.loops, base.version, edits)
    root = base.row.root if base.row is not None else encode({}).root
    root = encoded.root if encoded is not None else root
    node = base.row.next_node if base.row is not None else None
    metadata = write_metadata(((RESUME, pack_sorted(resume)),))
    return NewCheckpoint("", root, next_node=node, status=READY, metadata=metadata)
