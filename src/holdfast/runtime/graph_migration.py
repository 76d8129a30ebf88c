"""Migration of declared workflows' runs to another definition, and adoption of definitions.

One commit records the new definition in the journal of the run. It is refused while another process executes the run.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from holdfast.drivers import Plan
from holdfast.engine.record import record_of
from holdfast.errors import InvalidInput, RunEnded, RunError
from holdfast.graphs.definition import Ask, Graph
from holdfast.graphs.diff import changes
from holdfast.graphs.flow import stage_of
from holdfast.graphs.load import from_stored, to_stored
from holdfast.graphs.semantics import verify
from holdfast.graphs.structure import refuse_errors
from holdfast.model.commit import Commit, Committed, Guard, NewEntry, Reason
from holdfast.model.rows import PAUSED, READY, TERMINAL, RunRow
from holdfast.operations.context import refusal
from holdfast.operations.read import find_checkpoint
from holdfast.operations.views import encode_body
from holdfast.runtime.control import default_actor, require_run
from holdfast.runtime.graph_workflows import DeclaredWorkflow
from holdfast.runtime.replay_input import first_entry, last_entry, read_replay_input
from holdfast.runtime.start import Claimed, new_take, take_claim, to_claimed
from holdfast.store.port import Select

if TYPE_CHECKING:
    from holdfast.runtime.app_core import AppCore


def definition_of_run(app: AppCore, run_id: str) -> Plan[Graph]:
    """The definition that a run uses."""
    row = yield from require_run(app, run_id)
    return (yield from _definition(app, row))


def _definition(app: AppCore, row: RunRow) -> Plan[Graph]:
    past = yield lambda: read_replay_input(app.core, row)
    found = record_of(past.entries).definition
    if found is None:
        raise InvalidInput(f"run {row.run_id!r} is not of a declared workflow that has begun")
    return from_stored(found, row.run_id)


def adopt_workflow(app: AppCore, run_id: str) -> Plan[bool]:
    """Register the workflows of a run and of the runs above it from their journals. Whether it can continue here."""
    row = yield from require_run(app, run_id)
    found = yield from _adopt_one(app, row)
    first = yield lambda: first_entry(app.core, row)
    parent = first.get("parent")
    if parent is not None and not parent["detached"]:  # the parent may name this workflow
        yield from adopt_workflow(app, parent["run"])
    return found


def _adopt_one(app: AppCore, row: RunRow) -> Plan[bool]:
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
    """A run and the definition that it is to continue with."""

    row: RunRow
    new: Graph
    changes: list[str]


def migrate_run(
    app: AppCore, run_id: str, graph: Graph | None, by: str | None, *, here: bool
) -> Plan[tuple[list[str], Claimed | None]]:
    """Record a definition, the registered one or `graph`, as the run's. Returns the changes and the claim, if any.

    Runs inside it that have not ended are migrated with it.
    """
    actor = default_actor(by)
    row = yield from require_run(app, run_id)
    new = _choose_definition(app, row, graph)
    while True:
        first, *inner = yield from _plan_changes(app, run_id, new)
        for change in inner:
            if change.changes:
                yield from _record(app, change, actor, here=False)
        is_recorded, claimed = yield from _record(app, first, actor, here=here)
        if is_recorded:
            break
    if graph is not None:
        app.registry.declare(row.workflow, graph)
    return first.changes, claimed


def _choose_definition(app: AppCore, row: RunRow, graph: Graph | None) -> Graph:
    """The definition to continue with, without errors."""
    if graph is not None and graph.id != row.workflow:
        raise InvalidInput(f"run {row.run_id!r} is of workflow {row.workflow!r}, and this is {graph.id!r}")
    known = app.known(row.workflow)
    new = graph if graph is not None else known.graph if isinstance(known, DeclaredWorkflow) else None
    if new is None:
        raise InvalidInput(f"this process has no definition of {row.workflow!r} to migrate to; give one")
    refuse_errors(row.workflow, verify(new, app.registry))
    return new


def _plan_changes(app: AppCore, run_id: str, new: Graph) -> Plan[list[_Change]]:
    """The run and the runs inside it that would change, checked."""
    row = yield from require_run(app, run_id)
    if row.status in TERMINAL:
        raise RunEnded(run_id, row.status)
    past = yield lambda: read_replay_input(app.core, row)
    record = record_of(past.entries)
    if record.rollback:
        raise InvalidInput(f"run {run_id!r} is being rolled back; continue the rollback first, or wait for it")
    if record.definition is None:
        raise InvalidInput(f"run {run_id!r} is not of a declared workflow that has begun")
    old = from_stored(record.definition, run_id)
    yield from _check_stage(app, row, old, new, bool(record.gates))
    found = [_Change(row, new, changes(old.as_data(), new.as_data()))]
    inner = dict(DeclaredWorkflow(app.registry, row.workflow, new).inner())
    for child in record.children:
        there: RunRow | None = yield lambda child=child: app.core.port.run(child)
        if there is not None and there.status not in TERMINAL and there.workflow in inner:
            found += yield from _plan_changes(app, child, inner[there.workflow])
    return found


def _record(app: AppCore, change: _Change, by: str, *, here: bool) -> Plan[tuple[bool, Claimed | None]]:
    """Record the definition. Returns False if the run was executed meanwhile, and the claim if it was taken `here`."""
    row, run_id = change.row, change.row.run_id
    last = yield lambda: last_entry(app.core, row)
    stays = row.status == PAUSED and last.get("kind") != "diverged"  # paused by request
    entry = {"kind": "definition", "definition": to_stored(change.new), "by": by, "changes": change.changes}
    entries = (NewEntry("definition", encode_body(app.core, entry, "a journal entry")),) if change.changes else ()
    taken_at, guard = time.monotonic(), Guard(incarnation=row.incarnation, position=row.position)
    take = new_take(app, paused=True) if here and not stays else None
    status = None if take is not None else PAUSED if stays else READY
    commit = Commit(run_id, app.token(8), guard, take=take, status=status, entries=entries)
    outcome = yield from take_claim(app, commit, revocations=None)
    if isinstance(outcome, Committed):
        return True, to_claimed(app, outcome.run, taken_at) if take is not None else None
    if outcome.reason == Reason.POSITION:
        return False, None
    raise refusal(app.access, commit, outcome)


def _check_stage(app: AppCore, row: RunRow, old: Graph, new: Graph, asks: bool) -> Plan[None]:
    """Refuse a definition without the stage at which the run is, or with another type or other fields of it."""
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
        how = "changes to ask for other fields"
    if how:
        raise InvalidInput(
            f"run {row.run_id!r} is at stage {at!r}, which the new definition {how}; keep the stage, or roll "
            "the run back to before it first"
        )
