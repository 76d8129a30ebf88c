"""The timeline of a run: a row for each call, fact and gap, in order.

A run without a workflow (saved by hand, a LangGraph thread, an import) has one row for each entry, checkpoint and
effect.
"""

from __future__ import annotations

import datetime as dt
from typing import Final, NamedTuple

import msgspec

from holdfast.errors import InvalidInput
from holdfast.inspect.calls import LAST_TURN, CallRecord, JournalEntry, group_calls, is_declared, with_stages
from holdfast.inspect.idle import Gap, Span, find_gaps, find_work, gap_row, without_holes
from holdfast.inspect.rows import RunFacts, row_of
from holdfast.inspect.status import answers_in_inbox, find_status
from holdfast.inspect.threads import THREADS, open_interrupts
from holdfast.inspect.views import Row, Timeline
from holdfast.limits import NUMBER_MAX
from holdfast.model.rows import CheckpointRow, EffectRow, EntryRow, RunRow
from holdfast.model.views import Effect
from holdfast.operations.context import StoreContext
from holdfast.operations.gates import gate_info
from holdfast.operations.read import effects_since, known_run, retry_if_changed
from holdfast.operations.store_reads import StoreReads
from holdfast.operations.views import (
    RESUME,
    checked_checkpoint,
    effect_view,
    entry_view,
    metadata_dict,
    moment,
    run_info,
)
from holdfast.store.decide import is_live
from holdfast.store.journal_prune import PRUNED
from holdfast.store.port import CheckpointQuery

_EPOCH: Final = moment(0)
_TRIES: Final = 5
_PLAIN_GAP_US: Final = 60_000_000
"""A run without a workflow does not record how long its work took, so only long gaps count."""

Key = tuple[int, int, int]
"""The order of a row: after this position, after this checkpoint, and which of several."""


def timeline(store: StoreReads, run_id: str, *, newest: int | None = None) -> Timeline:
    """Return what the run did, and its status.

    `newest` limits how many entries and checkpoints are read, from the end, with the effects recorded there; the first
    entry is always read.

    Example:
        for row in timeline(store, "order-17").rows:
            row.kind, row.name, row.state, row.duration_us
    """
    if newest is not None and (type(newest) is not int or newest < 1):
        raise InvalidInput(f"newest must be 1 or more, not {newest!r}")
    core = store.access.core
    return retry_if_changed(core, run_id, lambda: _read_consistent(core, run_id, newest))


def _read_consistent(core: StoreContext, run_id: str, newest: int | None) -> Timeline:
    """The timeline, read again if the run changed meanwhile. After some tries it is returned as it was read."""
    for _ in range(_TRIES):
        before = core.port.run(run_id)
        found = _timeline(core, run_id, newest)
        if core.port.run(run_id) == before:
            break
    return found


class StoredRun(NamedTuple):
    """The part of a run that was read."""

    run: RunRow
    entries: list[JournalEntry]
    """In order. There may be gaps between positions; the first entry is always among them."""
    left_out: int
    checkpoints: list[CheckpointRow]
    effects: list[EffectRow]


def _timeline(core: StoreContext, run_id: str, newest: int | None) -> Timeline:
    return build_timeline(core, _read(core, known_run(core, run_id), newest))


def build_timeline(core: StoreContext, past: StoredRun) -> Timeline:
    """The timeline of the part of a run that was read."""
    run, now_us = past.run, core.clock.now_us()
    ledger = {row.key: effect_view(run, row) for row in past.effects}
    held = bool(run.owner) and is_live(run, core.clock.lease_time) and not core.liveness.owner_is_dead(run.owner)
    around = RunFacts(run.status, now_us, held, ledger, position=run.position)
    around.answers = answers_in_inbox(core, run)
    drafts = group_calls(past.entries) if is_workflow(past.entries) else _entry_records(past.entries)
    around.loops = frozenset(draft.call for draft in drafts if draft.kind == "loop") | _loops_of_turns(past.entries)
    keyed = _rows(past, drafts, around)
    keyed.sort(key=lambda pair: pair[0])
    keyed += _gaps(past, keyed, around)
    keyed.sort(key=lambda pair: pair[0])
    closed = _close_containers([row for _, row in keyed], around)
    rows = tuple(with_stages(closed, past.entries[-1]) if is_declared(past.entries) else closed)
    life = Span(_first_moment(past), now_us)
    idle = [(row.reason, _gap_length(life, row)) for row in rows if row.kind == "gap"]
    workflow = is_workflow(past.entries)
    open_gates = [gate_info(run, gate, core.clock.now_us()) for gate in core.gates_of(run.run)]
    open_gates += open_interrupts(core, run) if run.workflow == THREADS else []
    return Timeline(
        run=run_info(run),
        rows=rows,
        gates=tuple(open_gates),
        effects=tuple(ledger.values()),
        standing=find_status(core, run, rows, open_gates, held=held, workflow=workflow),
        checkpoints=run.serial,
        left_out=past.left_out,
        worked_us=sum(_length(life, span) for span in (find_work(past.entries) if workflow else ())),
        idle_us=sum(each for _, each in idle),
        waited_us=sum(each for reason, each in idle if reason != "unclaimed"),
    )


def _loops_of_turns(entries: list[JournalEntry]) -> frozenset[str]:
    """The loops whose turns were read; their own entries may not have been."""
    return frozenset(loop for met in entries if met.kind == "turn" and isinstance(loop := met.data.get("loop"), str))


def _first_moment(past: StoredRun) -> int:
    """Return when the run began. Imported or restored records may be older than the run in this store.

    The first entries of a fork are older as well, but they belong to its source.
    """
    if past.run.origin:
        return past.run.created_us
    moments = [met.created_us for met in past.entries] + [row.created_us for row in past.checkpoints]
    return min([past.run.created_us, *moments, *(row.created_us for row in past.effects)])


def _length(life: Span, span: Span) -> int:
    """Return how much of an interval lies within the life of the run."""
    return max(0, min(span.end_us, life.end_us) - max(span.start_us, life.start_us))


def _gap_length(life: Span, row: Row) -> int:
    if row.started_at is None:
        return 0
    start_us = (row.started_at - _EPOCH) // dt.timedelta(microseconds=1)
    return _length(life, Span(start_us, start_us + (row.duration_us or 0)))


def _read(core: StoreContext, run: RunRow, newest: int | None) -> StoredRun:
    after = 0 if newest is None else max(0, run.position - newest)
    rows = core.port.rows(EntryRow, run.run, after)
    if after:
        rows = core.port.rows(EntryRow, run.run, 0, 1) + [row for row in rows if row.position > 1]
    entries = [journal_entry(run, row) for row in rows]
    query = CheckpointQuery(run.run_id, limit=-1 if newest is None else newest)
    found = [row for _, row in reversed(core.port.find_checkpoints(query)) if not after or row.covers > after]
    checkpoints = [checked_checkpoint(run, row) for row in found]
    return StoredRun(run, entries, max(0, after - 1), checkpoints, _effects(core, run, entries, after))


def _effects(core: StoreContext, run: RunRow, entries: list[JournalEntry], after: int) -> list[EffectRow]:
    """The effects of these entries, and those recorded after a position without an entry."""
    if not after:
        return core.port.rows(EffectRow, run.run)
    keys = {key for met in entries if type(key := met.data.get("key")) is str}
    return [row for row in effects_since(core, run, after, keys) if row.key in keys or row.after_position >= after]


def journal_entry(run: RunRow, row: EntryRow) -> JournalEntry:
    """An entry, checked and decoded."""
    data = entry_view(run, row).data
    facts = data if isinstance(data, dict) else {}
    return JournalEntry(row.position, row.kind, row.created_us, facts, row.commit_id)


def is_workflow(entries: list[JournalEntry]) -> bool:
    """Whether the engine wrote this journal."""
    return bool(entries) and entries[0].kind == "started" and "args" in entries[0].data and "version" in entries[0].data


def _entry_records(entries: list[JournalEntry]) -> list[CallRecord]:
    kinds = {PRUNED: "pruned"}
    return [CallRecord(kinds.get(met.kind, "entry"), met.kind, "", "", [met]) for met in entries]


def _rows(past: StoredRun, drafts: list[CallRecord], around: RunFacts) -> list[tuple[Key, Row]]:
    """Return the rows of calls and facts, then of the checkpoints and effects that belong to none of them."""
    made = _checkpoints_by_position(past) if is_workflow(past.entries) else {}
    found: list[tuple[Key, Row]] = []
    keys: set[str] = set()
    for draft in drafts:
        row = row_of(draft, around)
        for met in draft.entries:
            checkpoint = made.get(met.position) if not _is_last_turn(row) else None
            if checkpoint is not None:
                facts = {"checkpoint_id": checkpoint.checkpoint_id, "next_node": checkpoint.next_node}
                row = msgspec.structs.replace(row, **facts)
        keys |= {key for met in draft.entries if type(key := met.data.get("key")) is str}
        found.append(((row.first, -1, 0 if row.kind == "turn" else 1), row))
    shown = {row.number for row in made.values()}
    for checkpoint in past.checkpoints:
        if checkpoint.number not in shown:
            key = (checkpoint.covers, checkpoint.number, 0)
            found.append((key, _checkpoint_row(past.run, checkpoint)))
    unlisted = [line for line in past.effects if line.key not in keys]
    found += [((one.after_position, one.after_checkpoint, 1), _effect_row(around.ledger[one.key])) for one in unlisted]
    return found


def _checkpoints_by_position(past: StoredRun) -> dict[int, CheckpointRow]:
    """The engine's checkpoints, by the position of the last entry each was committed with.

    One that ends a turn, or a rollback, covers that very entry; all others cover what was there before their commit.
    """
    at = {met.position: met for met in past.entries}
    last = {met.commit: met.position for met in past.entries}
    found: dict[int, CheckpointRow] = {}
    for row in past.checkpoints:
        own, following = at.get(row.covers), at.get(row.covers + 1)
        if own is not None and own.kind in ("turn", "rolled_back", "forked") and own.created_us == row.created_us:
            found.setdefault(own.position, row)
        elif following is not None and following.created_us == row.created_us and not row.lane:
            found.setdefault(last[following.commit], row)
    return found


def _gaps(past: StoredRun, keyed: list[tuple[Key, Row]], around: RunFacts) -> list[tuple[Key, Row]]:
    """Return the gaps, each behind the row before it. `keyed` are all other rows, in order."""
    now_us = around.now_us
    if is_workflow(past.entries):
        answered = {gate: given.at_us for gate, given in around.answers.items()}
        gaps: list[Gap] = []
        for part in without_holes(past.entries):  # entries that were not read are not a gap
            ended = around.ended or part[-1] is not past.entries[-1]
            gaps += find_gaps(part, now_us, ended=ended, held=around.held, answered=answered)
        return [((gap.after, NUMBER_MAX, n), gap_row(gap, now_us)) for n, gap in enumerate(gaps)]
    moments = [
        JournalEntry(at, "", int((row.started_at - _EPOCH) / dt.timedelta(microseconds=1)), {})
        for at, (_, row) in enumerate(keyed)
        if row.started_at is not None
    ]
    gaps = find_gaps(moments, now_us, ended=around.ended, held=around.held, least_us=_PLAIN_GAP_US)
    found = []
    for gap in gaps:
        position, number, which = keyed[gap.after][0]
        found.append(((position, number, which + 1), gap_row(gap._replace(after=position), now_us)))
    return found


def _checkpoint_row(run: RunRow, row: CheckpointRow) -> Row:
    metadata = metadata_dict(row.metadata, f"checkpoint {row.checkpoint_id!r} of run {run.run_id!r}")
    lane = f" on lane {row.lane}" if row.lane else ""
    return Row(
        kind="checkpoint",
        name="checkpoint",
        text=f"step {row.step}{lane}",
        checkpoint_id=row.checkpoint_id,
        next_node=row.next_node,
        first=row.covers,
        last=row.covers,
        started_at=moment(row.created_us),
        ended_at=moment(row.created_us),
        result={key: part for key, part in metadata.items() if key != RESUME} or None,
    )


def _effect_row(line: Effect) -> Row:
    known = line.state != "in_doubt"
    return Row(
        kind="effect",
        name=line.tool or line.key,
        call="",
        text=line.target or "",
        state=line.state,
        effect=line,
        result=line.result,
        started_at=line.created_at,
        ended_at=line.updated_at if known else None,
    )


# --- containers: maps, gathers and loops -----------------------------------------------------------------------------


class _Inside(msgspec.Struct):
    """Facts about the rows in a map, a gather or a loop."""

    ended_at: dt.datetime | None = None
    open: str = ""
    turns: int = 0


def _close_containers(rows: list[Row], around: RunFacts) -> list[Row]:
    """Set the end and state of maps, gathers and loops by the rows in them, and the depth of gaps."""
    inside: dict[str, _Inside] = {}
    later: dict[str, int] = {}
    for row in rows:
        if row.kind == "gap" or row.state == "taken_back":
            continue
        if row.kind != "turn" and row.call:  # a turn has the scope of its loop but belongs to it
            later[row.scope] = row.first
        path = row.call if row.kind == "turn" else row.scope
        for at in (at for at, sign in enumerate(path) if sign == "["):
            _note_inside(inside.setdefault(path[:at], _Inside()), row, whole=row.kind == "turn" and row.call == path)
    found, depth = [], 0
    turns = {row.call for row in rows if row.kind == "turn" and row.state != "taken_back" and not _is_last_turn(row)}
    for row in rows:
        if row.kind == "gap":
            found.append(msgspec.structs.replace(row, depth=depth))
            continue
        depth = row.depth
        if (row.kind in ("map", "gather", "loop") and row.state != "taken_back") or _is_last_turn(row):
            passed = later.get(row.scope, 0) > row.first or row.scope.partition("/")[0] in turns
            call = row.call.rpartition("[")[0] if row.kind == "turn" else row.call
            row = _container(row, inside.get(call, _Inside()), passed, around)  # noqa: PLW2901
        found.append(row)
    return found


def _is_last_turn(row: Row) -> bool:
    """Whether a row is a turn without an end."""
    return row.kind == "turn" and row.text == LAST_TURN


def _note_inside(about: _Inside, row: Row, *, whole: bool) -> None:
    if row.ended_at is not None and (about.ended_at is None or row.ended_at > about.ended_at):
        about.ended_at = row.ended_at
    if row.state in ("waiting", "running", "in_doubt"):
        about.open = about.open or row.state
    if whole:
        about.turns = max(about.turns, row.count)


def _container(row: Row, about: _Inside, passed: bool, around: RunFacts) -> Row:
    state = "done" if passed or around.status == "completed" else "stopped" if around.ended else ""
    ended_at = about.ended_at if state else None
    took = None if ended_at is None or row.started_at is None else ended_at - row.started_at
    return msgspec.structs.replace(
        row,
        state=state or about.open or around.unended,
        ended_at=ended_at,
        count=row.count or about.turns,
        duration_us=None if took is None else int(took.total_seconds() * 1_000_000),
    )


# --- folding ---------------------------------------------------------------------------------------------------------


def fold_turns(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Remove the rows in finished turns, and join consecutive turns in one row.

    Example:
        fold_turns(timeline(store, "order-17").rows)
    """
    found: list[Row] = []
    hidden = ""
    for row in rows:
        if hidden and (row.kind == "gap" or row.scope == hidden or row.scope.startswith(f"{hidden}/")):
            continue
        hidden = row.call if row.kind == "turn" and not _is_last_turn(row) else ""
        if hidden and found and found[-1].kind in ("turn", "turns") and _is_next(found[-1], row):
            found[-1] = _join_turns(found[-1], row)
        else:
            found.append(row)
    return tuple(found)


def _is_next(turns: Row, row: Row) -> bool:
    loops = [one.call.rpartition("[")[0] for one in (turns, row)]
    return loops[0] == loops[1] and turns.state == row.state


def _join_turns(turns: Row, row: Row) -> Row:
    took = None
    if turns.started_at is not None and row.ended_at is not None:
        took = int((row.ended_at - turns.started_at).total_seconds() * 1_000_000)
    first = turns.name.removeprefix("turns ").removeprefix("turn ").partition(" ")[0]
    return msgspec.structs.replace(
        turns,
        kind="turns",
        name=f"turns {first} to {row.count}",
        call=row.call,
        last=row.last,
        ended_at=row.ended_at,
        duration_us=took,
        count=row.count,
        checkpoint_id=row.checkpoint_id,
        next_node=row.next_node,
    )
