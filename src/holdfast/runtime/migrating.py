"""Migrating a run to another definition: one commit of whoever holds it, which records the new one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.engine.record import record_of
from holdfast.errors import InvalidInput, RunEnded, RunError
from holdfast.graphs.changes import changes
from holdfast.graphs.definition import Ask, Graph
from holdfast.graphs.findings import refuse_errors
from holdfast.graphs.flow import stage_of
from holdfast.graphs.running import read_stored, stored
from holdfast.graphs.verifying import verify
from holdfast.model import commit as why
from holdfast.model.commit import Commit, Committed, Guard, NewEntry
from holdfast.model.rows import RunRow
from holdfast.model.status import PAUSED, READY, TERMINAL
from holdfast.runtime.declared import DeclaredWorkflow
from holdfast.runtime.outside import known_run, somebody
from holdfast.runtime.reads import first_entry, last_entry, past_of
from holdfast.runtime.starting import Acts, Claimed, claimed_of, fence_of_dead, take_of, taking
from holdfast.store.port import Select
from holdfast.verbs.reading import find_checkpoint
from holdfast.verbs.refusals import refusal
from holdfast.verbs.values import value_body

if TYPE_CHECKING:
    from holdfast.runtime.core import AppCore


def definition_of_run(app: AppCore, run_id: str) -> Acts[Graph]:
    """The definition a run goes by."""
    row = yield from known_run(app, run_id)
    return (yield from _definition(app, row))


def _definition(app: AppCore, row: RunRow) -> Acts[Graph]:
    past = yield lambda: past_of(app.core, row)
    found = record_of(past.entries).definition
    if found is None:
        raise InvalidInput(f"run {row.run_id!r} is not of a declared workflow that has begun")
    return read_stored(found, row.run_id)


def adopted(app: AppCore, run_id: str) -> Acts[bool]:
    """Know the workflow of a run, and of the runs it is inside of, by what they carry. Whether it can go on here."""
    row = yield from known_run(app, run_id)
    found = yield from _adopted_itself(app, row)
    first = yield lambda: first_entry(app.core, row)
    parent = first.get("parent")
    if parent is not None and not parent["detached"]:  # which may name this one as a workflow
        yield from adopted(app, parent["run"])
    return found


def _adopted_itself(app: AppCore, row: RunRow) -> Acts[bool]:
    known = app.known(row.workflow)
    if known is not None and not known.is_adopted:
        return True
    try:
        graph = yield from _definition(app, row)
    except (InvalidInput, RunError):  # a workflow of code, or of a newer version
        return False
    if any(finding.level == "error" for finding in verify(graph, app.registry)):
        return False
    app.registry.declare(row.workflow, None)
    return True


class _Change(NamedTuple):
    """A run that is to go on by another definition."""

    row: RunRow
    new: Graph
    changes: list[str]


def migrated(
    app: AppCore, run_id: str, graph: Graph | None, by: str | None, *, here: bool
) -> Acts[tuple[list[str], Claimed | None]]:
    """Record a definition, the registered one or `graph`, as the run's. What changed, and the claim to go on with.

    Runs inside it that have not ended are migrated with it.
    """
    who = somebody(by)
    row = yield from known_run(app, run_id)
    new = _wanted(app, row, graph)
    while True:
        plan = yield from _planned(app, run_id, new)
        found = plan[0].changes
        for change in plan[1:]:
            if change.changes:
                yield from _record(app, change, who, here=False)
        outcome = yield from _record(app, plan[0], who, here=here)
        if outcome is not _MOVED:
            break
    if graph is not None:
        app.registry.declare(row.workflow, graph)
    return found, outcome


_MOVED: Final[Any] = object()
"""The run has moved on while it was looked at."""


def _wanted(app: AppCore, row: RunRow, graph: Graph | None) -> Graph:
    """The definition to go on by, which must be sound."""
    if graph is not None and graph.id != row.workflow:
        raise InvalidInput(f"run {row.run_id!r} is of workflow {row.workflow!r}, and this is {graph.id!r}")
    known = app.known(row.workflow)
    new = graph if graph is not None else known.graph if isinstance(known, DeclaredWorkflow) else None
    if new is None:
        raise InvalidInput(f"this process has no definition of {row.workflow!r} to migrate to; give one")
    refuse_errors(row.workflow, verify(new, app.registry))
    return new


def _planned(app: AppCore, run_id: str, new: Graph) -> Acts[list[_Change]]:
    """The run and those inside it that would change, checked."""
    row = yield from known_run(app, run_id)
    if row.status in TERMINAL:
        raise RunEnded(run_id, row.status)
    past = yield lambda: past_of(app.core, row)
    record = record_of(past.entries)
    if record.rollback:
        raise InvalidInput(f"run {run_id!r} is being rolled back; take that up first, or wait for it")
    if record.definition is None:
        raise InvalidInput(f"run {run_id!r} is not of a declared workflow that has begun")
    old = read_stored(record.definition, run_id)
    yield from _check_standing(app, row, old, new, bool(record.gates))
    found = [_Change(row, new, changes(old.as_data(), new.as_data()))]
    inner = dict(DeclaredWorkflow(app.registry, row.workflow, new).inner())
    for child in record.children:
        there: RunRow | None = yield lambda child=child: app.core.port.run(child)
        if there is not None and there.status not in TERMINAL and there.workflow in inner:
            found += yield from _planned(app, child, inner[there.workflow])
    return found


def _record(app: AppCore, change: _Change, by: str, *, here: bool) -> Acts[Any]:
    """The commit that makes it so. The claim to go on with, None, or _MOVED."""
    row, run_id = change.row, change.row.run_id
    last = yield lambda: last_entry(app.core, row)
    stays = row.status == PAUSED and last.get("kind") != "diverged"  # paused because somebody asked for it
    entry = {"kind": "definition", "definition": stored(change.new), "by": by, "changes": change.changes}
    entries = (NewEntry("definition", value_body(app.core, entry, "a journal entry")),) if change.changes else ()
    gone: int | None = None
    while True:
        taken_at = time.monotonic()
        guard = Guard(incarnation=row.incarnation, position=row.position, gone=gone)
        take = take_of(app) if here and not stays else None
        status = None if take is not None else PAUSED if stays else READY
        commit = Commit(run_id, app.token(8), guard, take=take, status=status, entries=entries)
        outcome = yield from taking(app, commit) if take is not None else _plain(commit)
        if type(outcome) is Committed:
            return claimed_of(app, outcome.run, taken_at) if take is not None else None
        if outcome.why == why.POSITION:
            return _MOVED
        gone = (yield from fence_of_dead(app, outcome)) if outcome.why == why.CLAIMED else None
        if gone is None:
            raise refusal(app.place, commit, outcome)


def _plain(commit: Commit) -> Acts[Any]:
    return (yield commit)


def _check_standing(app: AppCore, row: RunRow, old: Graph, new: Graph, asks: bool) -> Acts[None]:
    """The stage at which the run stands must be there still, of the same type, and ask for what it has asked for."""
    found = yield lambda: find_checkpoint(app.core, row.run_id, Select()) if row.head else None
    at = found[1].next_node if found is not None else None
    if at is None:
        return
    stage, before = stage_of(new, at), stage_of(old, at)
    how = ""
    if stage is None:
        how = "does not have"
    elif before is not None and type(stage) is not type(before):
        how = "has as another type of stage"
    elif asks and isinstance(stage, Ask) and isinstance(before, Ask) and stage.fields != before.fields:
        how = "lets ask for other fields than the ones that are asked for now"
    if how:
        raise InvalidInput(
            f"run {row.run_id!r} stands at stage {at!r}, which the new definition {how}; keep it there, or roll "
            "the run back to before it first"
        )
