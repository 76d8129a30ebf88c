"""The timeline of a run: one row for each thing it did, in order, and one for each stretch in which it did nothing.

A run that no workflow moves (saved and appended to by hand, a thread of LangGraph, an import) has one row for each
entry, checkpoint and effect.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.errors import InvalidInput
from holdfast.inspect.calls import Draft, Met, drafted
from holdfast.inspect.gaps import Span, gap_row, gaps_in, work_in
from holdfast.inspect.inbox import answers_in_inbox
from holdfast.inspect.rows import Around, row_of
from holdfast.inspect.shapes import Row, Timeline
from holdfast.inspect.stages import is_declared, with_stages
from holdfast.inspect.standing import standing_of
from holdfast.inspect.threads import THREADS, open_interrupts
from holdfast.limits import NUMBER_MAX
from holdfast.model.rows import CheckpointRow, EffectRow, RunRow
from holdfast.model.views import Effect
from holdfast.runtime.outside import gate_info
from holdfast.runtime.reads import RESUME
from holdfast.store.decide import is_live
from holdfast.store.port import CheckpointQuery
from holdfast.store.pruning import PRUNED
from holdfast.verbs.core import Core
from holdfast.verbs.reading import in_peace, known_run
from holdfast.verbs.shown import checked_checkpoint, effect_view, entry_view, run_info
from holdfast.verbs.store import Store
from holdfast.verbs.values import metadata_dict, moment

_EPOCH: Final = moment(0)
_TRIES: Final = 5
_PLAIN_GAP_US: Final = 60_000_000
"""Of a run without a workflow nobody tells how long its work took, so only long stretches count."""

Key = tuple[int, int, int]
"""Where a row stands: behind this position, behind this checkpoint, and which of several."""


def timeline(store: Store, run_id: str, *, newest: int | None = None) -> Timeline:
    """What the run did and where it stands.

    `newest` reads only so many entries and checkpoints, from the end; the beginning of the journal is always there.

    Example:
        for row in timeline(store, "order-17").rows:
            row.kind, row.name, row.state, row.duration_us
    """
    if newest is not None and (type(newest) is not int or newest < 1):
        raise InvalidInput(f"newest must be 1 or more, not {newest!r}")
    core = store._place.core
    return in_peace(core, run_id, lambda: _of_one_moment(core, run_id, newest))


def _of_one_moment(core: Core, run_id: str, newest: int | None) -> Timeline:
    """The timeline; made again if the run moved on while it was read. One that never rests is told as it was met."""
    for _ in range(_TRIES):
        before = core.port.run(run_id)
        found = _timeline(core, run_id, newest)
        if core.port.run(run_id) == before:
            break
    return found


class _Past(NamedTuple):
    """What is stored of a run, as far as it was read."""

    run: RunRow
    entries: list[Met]
    left_out: int
    checkpoints: list[CheckpointRow]
    effects: list[EffectRow]


def _timeline(core: Core, run_id: str, newest: int | None) -> Timeline:
    past = _read(core, known_run(core, run_id), newest)
    run, now_us = past.run, core.clock.now_us()
    ledger = {row.key: effect_view(run, row) for row in past.effects}
    held = bool(run.owner) and is_live(run, core.clock.lease_time) and not core.port.is_gone(run.owner)
    around = Around(run.status, now_us, held, ledger, position=run.position)
    around.answers = answers_in_inbox(core, run)
    drafts = drafted(past.entries) if is_workflow(past.entries) else _plain(past.entries)
    around.loops = frozenset(draft.call for draft in drafts if draft.kind == "loop")
    keyed = _rows(past, drafts, around)
    keyed.sort(key=lambda pair: pair[0])
    keyed += _gaps(past, keyed, around)
    keyed.sort(key=lambda pair: pair[0])
    settled = _settled([row for _, row in keyed], around)
    rows = tuple(with_stages(settled, past.entries[-1]) if is_declared(past.entries) else settled)
    life = Span(_first_moment(past), now_us)
    idle = [(row.reason, _gap_length(life, row)) for row in rows if row.kind == "gap"]
    workflow = is_workflow(past.entries)
    open_gates = [gate_info(run, gate) for _, gate in core.port.gates(run.run, "open", NUMBER_MAX)]
    open_gates += open_interrupts(core, run) if run.workflow == THREADS else []
    return Timeline(
        run=run_info(run), rows=rows, gates=tuple(open_gates), effects=tuple(ledger.values()),
        standing=standing_of(core, run, rows, open_gates, held=held, workflow=workflow),
        checkpoints=run.serial, left_out=past.left_out,
        worked_us=sum(_length(life, span) for span in (work_in(past.entries) if workflow else ())),
        idle_us=sum(each for _, each in idle), waited_us=sum(each for reason, each in idle if reason != "nobody"),
    )  # fmt: skip


def _first_moment(past: _Past) -> int:
    """When the life of the run began. What was imported or restored may be older than the run in this store.

    The first entries of a fork are older too, but they tell of the life of its source.
    """
    if past.run.origin:
        return past.run.created_us
    moments = [met.created_us for met in past.entries] + [row.created_us for row in past.checkpoints]
    return min([past.run.created_us, *moments, *(row.created_us for row in past.effects)])


def _length(life: Span, span: Span) -> int:
    """How much of a stretch lies in the life of the run."""
    return max(0, min(span.end_us, life.end_us) - max(span.start_us, life.start_us))


def _gap_length(life: Span, row: Row) -> int:
    if row.started_at is None:
        return 0
    start_us = (row.started_at - _EPOCH) // dt.timedelta(microseconds=1)
    return _length(life, Span(start_us, start_us + (row.duration_us or 0)))


def _read(core: Core, run: RunRow, newest: int | None) -> _Past:
    after = 0 if newest is None else max(0, run.position - newest)
    rows = core.port.entries(run.run, after, -1)
    if after:
        rows = core.port.entries(run.run, 0, 1) + [row for row in rows if row.position > 1]
    entries = []
    for row in rows:
        data = entry_view(run, row).data
        told = data if isinstance(data, dict) else {}
        entries.append(Met(row.position, row.kind, row.created_us, told, row.commit_id))
    query = CheckpointQuery(run.run_id, limit=-1 if newest is None else newest)
    found = [row for _, row in reversed(core.port.find_checkpoints(query)) if not after or row.covers > after]
    checkpoints = [checked_checkpoint(run, row) for row in found]
    return _Past(run, entries, max(0, after - 1), checkpoints, core.port.effects(run.run))


def is_workflow(entries: list[Met]) -> bool:
    """Whether a journal is one of the engine's."""
    return bool(entries) and entries[0].kind == "started" and "args" in entries[0].data and "version" in entries[0].data


def _plain(entries: list[Met]) -> list[Draft]:
    kinds = {PRUNED: "pruned"}
    return [Draft(kinds.get(met.kind, "entry"), met.kind, "", "", [met]) for met in entries]


def _rows(past: _Past, drafts: list[Draft], around: Around) -> list[tuple[Key, Row]]:
    """The rows of calls and facts; then checkpoints and effects of which none of them tells."""
    made = _made_with(past) if is_workflow(past.entries) else {}
    found: list[tuple[Key, Row]] = []
    keys: set[str] = set()
    for draft in drafts:
        row = row_of(draft, around)
        for met in draft.entries:
            own = met.kind == "turn" or met.position != row.first or draft.kind != "turn"
            checkpoint = made.get(met.position) if own else None
            if checkpoint is not None:
                facts = {"checkpoint_id": checkpoint.checkpoint_id, "next_node": checkpoint.next_node}
                row = msgspec.structs.replace(row, **facts)
        keys |= {key for met in draft.entries if type(key := met.data.get("key")) is str}
        found.append(((row.first, -1, 0 if row.kind == "turn" else 1), row))
    told = {row.number for row in made.values()}
    for checkpoint in past.checkpoints:
        if checkpoint.number not in told:
            key = (checkpoint.covers, checkpoint.number, 0)
            found.append((key, _checkpoint_row(past.run, checkpoint)))
    untold = [line for line in past.effects if line.key not in keys]
    found += [((one.after_position, one.after_checkpoint, 1), _effect_row(around.ledger[one.key])) for one in untold]
    return found


def _made_with(past: _Past) -> dict[int, CheckpointRow]:
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


def _gaps(past: _Past, keyed: list[tuple[Key, Row]], around: Around) -> list[tuple[Key, Row]]:
    """The idle times, each behind what was done before it. `keyed` are all other rows, in order."""
    now_us = around.now_us
    if is_workflow(past.entries):
        read = past.entries[1:] if past.left_out else past.entries  # what lies between was not read, so nobody idled
        answered = {gate: given.at_us for gate, given in around.answers.items()}
        gaps = gaps_in(read, now_us, ended=around.ended, held=around.held, answered=answered)
        return [((gap.after, NUMBER_MAX, n), gap_row(gap, now_us, 0)) for n, gap in enumerate(gaps)]
    moments = [
        Met(at, "", int((row.started_at - _EPOCH) / dt.timedelta(microseconds=1)), {})
        for at, (_, row) in enumerate(keyed)
        if row.started_at is not None
    ]
    gaps = gaps_in(moments, now_us, ended=around.ended, held=around.held, least_us=_PLAIN_GAP_US)
    found = []
    for gap in gaps:
        position, number, which = keyed[gap.after][0]
        found.append(((position, number, which + 1), gap_row(gap._replace(after=position), now_us, 0)))
    return found


def _checkpoint_row(run: RunRow, row: CheckpointRow) -> Row:
    metadata: dict[str, Any] = metadata_dict(row.metadata, f"checkpoint {row.checkpoint_id!r} of run {run.run_id!r}")
    lane = f" on lane {row.lane}" if row.lane else ""
    return Row(
        kind="checkpoint", name="checkpoint", text=f"step {row.step}{lane}", checkpoint_id=row.checkpoint_id,
        next_node=row.next_node, first=row.covers, last=row.covers, started_at=moment(row.created_us),
        ended_at=moment(row.created_us), result={key: part for key, part in metadata.items() if key != RESUME} or None,
    )  # fmt: skip


def _effect_row(line: Effect) -> Row:
    known = line.state != "in_doubt"
    return Row(
        kind="effect", name=line.tool or line.key, call="", text=line.target or "", state=line.state, effect=line,
        result=line.result, started_at=line.created_at, ended_at=line.updated_at if known else None,
    )  # fmt: skip


# --- what the rows inside say about the rows around them -------------------------------------------------------------


class _Inside(msgspec.Struct):
    """What is in a map, a gather or a loop."""

    ended_at: Any = None
    open: str = ""
    turns: int = 0


def _settled(rows: list[Row], around: Around) -> list[Row]:
    """Rows of maps, gathers and loops get their end and state of what is in them; gaps stand as deep as their work."""
    inside: dict[str, _Inside] = {}
    later: dict[str, int] = {}
    for row in rows:
        if row.kind == "gap" or row.state == "taken_back":
            continue
        if row.kind != "turn" and row.call:  # a turn stands beside its loop, and is still in it
            later[row.scope] = row.first
        path = row.call if row.kind == "turn" else row.scope
        for at in (at for at, sign in enumerate(path) if sign == "["):
            _note_inside(inside.setdefault(path[:at], _Inside()), row, whole=row.kind == "turn" and row.call == path)
    found, depth = [], 0
    turns = {row.call for row in rows if row.kind == "turn" and row.state != "taken_back"}
    for row in rows:
        if row.kind == "gap":
            found.append(msgspec.structs.replace(row, depth=depth))
            continue
        depth = row.depth
        if row.kind in ("map", "gather", "loop") and row.state != "taken_back":
            passed = later.get(row.scope, 0) > row.first or row.scope.partition("/")[0] in turns
            row = _container(row, inside.get(row.call, _Inside()), passed, around)  # noqa: PLW2901
        found.append(row)
    return found


def _note_inside(about: _Inside, row: Row, *, whole: bool) -> None:
    if row.ended_at is not None and (about.ended_at is None or row.ended_at > about.ended_at):
        about.ended_at = row.ended_at
    if row.state in ("waiting", "running", "in_doubt"):
        about.open = about.open or row.state
    if whole:
        about.turns = max(about.turns, row.count)


def _container(row: Row, about: _Inside, passed: bool, around: Around) -> Row:
    state = "done" if passed or around.status == "completed" else "stopped" if around.ended else ""
    ended_at = about.ended_at if state else None
    took = None if ended_at is None or row.started_at is None else ended_at - row.started_at
    return msgspec.structs.replace(
        row, state=state or about.open or around.unended, ended_at=ended_at, count=row.count or about.turns,
        duration_us=None if took is None else int(took.total_seconds() * 1_000_000),
    )  # fmt: skip


# --- folding ---------------------------------------------------------------------------------------------------------


def folded(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """The rows without what lies in finished turns; turns that follow one another become one row.

    Example:
        folded(timeline(store, "order-17").rows)
    """
    found: list[Row] = []
    hidden = ""
    for row in rows:
        if row.kind == "turn":
            hidden = row.call
            if found and found[-1].kind in ("turn", "turns") and _is_next(found[-1], row):
                found[-1] = _joined(found[-1], row)
            else:
                found.append(row)
        elif not hidden or not (row.scope == hidden or row.scope.startswith(f"{hidden}/") or row.kind == "gap"):
            hidden = ""
            found.append(row)
    return tuple(found)


def _is_next(turns: Row, row: Row) -> bool:
    loops = [one.call.rpartition("[")[0] for one in (turns, row)]
    return loops[0] == loops[1] and turns.state == row.state


def _joined(turns: Row, row: Row) -> Row:
    took = None
    if turns.started_at is not None and row.ended_at is not None:
        took = int((row.ended_at - turns.started_at).total_seconds() * 1_000_000)
    first = turns.name.removeprefix("turns ").removeprefix("turn ").partition(" ")[0]
    return msgspec.structs.replace(
        turns, kind="turns", name=f"turns {first} to {row.count}", call=row.call, last=row.last, ended_at=row.ended_at,
        duration_us=took, count=row.count, checkpoint_id=row.checkpoint_id, next_node=row.next_node,
    )  # fmt: skip
