"""Migrating a run to another definition: one commit of whoever holds it, which records the new one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from holdfast.engine.record import record_of
from holdfast.errors import InvalidInput, RunEnded, RunError
from holdfast.graphs.changes import changes
from holdfast.graphs.definition import Graph
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


def adopted(app: AppCore, run_id: str) -> Acts[bool]:
    """Know the workflow of a run by what it carries, and those of the runs it is inside of. Whether it is known now."""
    row = yield from known_run(app, run_id)
    first = yield lambda: first_entry(app.core, row)
    parent = first.get("parent")
    if parent is not None and not parent["detached"]:
        yield from adopted(app, parent["run"])
    if app.known(row.workflow) is None:
        try:
            graph = yield from _definition(app, row)
        except (InvalidInput, RunError):  # a workflow of code, or of a newer version
            return False
        if any(finding.level == "error" for finding in verify(graph, app.registry)):
            return False
        app.registry.declare(row.workflow, None)
    return True


def _definition(app: AppCore, row: RunRow) -> Acts[Graph]:
    past = yield lambda: past_of(app.core, row)
    found = record_of(past.entries).definition
    if found is None:
        raise InvalidInput(f"run {row.run_id!r} is not of a declared workflow that has begun")
    return read_stored(found, row.run_id)


def migrated(app: AppCore, run_id: str, by: str | None, *, here: bool) -> Acts[tuple[list[str], Claimed | None]]:
    """Record the registered definition as the run's. What changed, and the claim to go on with."""
    who = somebody(by)
    gone: int | None = None
    while True:
        row = yield from known_run(app, run_id)
        if row.status in TERMINAL:
            raise RunEnded(run_id, row.status)
        new = _registered(app, row)
        old = yield from _definition(app, row)
        found = changes(old.as_data(), new.as_data())
        yield from _check_standing(app, row, old, new)
        last = yield lambda row=row: last_entry(app.core, row)
        entry = {"kind": "definition", "definition": stored(new), "by": who, "changes": found}
        taken_at = time.monotonic()
        commit = Commit(
            run_id, app.token(8), Guard(incarnation=row.incarnation, position=row.position, gone=gone),
            take=take_of(app), entries=(NewEntry("definition", value_body(app.core, entry, "a journal entry")),),
        )  # fmt: skip
        outcome = yield from taking(app, commit)
        if type(outcome) is Committed:
            break
        if outcome.why == why.POSITION:
            continue  # it moved on while it was looked at
        gone = (yield from fence_of_dead(app, outcome)) if outcome.why == why.CLAIMED else None
        if gone is None:
            raise refusal(app.place, commit, outcome)
    claimed = claimed_of(app, outcome.run, taken_at)
    stays = row.status == PAUSED and last.get("kind") != "diverged"  # paused because somebody asked for it
    if here and not stays:
        return found, claimed
    app.nonces.discard(claimed.row.nonce)
    yield Commit(run_id, app.token(8), claimed.place.guard(), status=PAUSED if stays else READY, release=True)
    return found, None


def _registered(app: AppCore, row: RunRow) -> Graph:
    """The definition this process has, which must be sound."""
    known = app.known(row.workflow)
    if not isinstance(known, DeclaredWorkflow) or known.graph is None:
        raise InvalidInput(f"this process has no definition of {row.workflow!r} to migrate to; give one")
    refuse_errors(known.name, verify(known.graph, app.registry))
    return known.graph


def _check_standing(app: AppCore, row: RunRow, old: Graph, new: Graph) -> Acts[None]:
    """The stage at which the run stands must be there still, and be of the same type."""
    found = yield lambda: find_checkpoint(app.core, row.run_id, Select()) if row.head else None
    at = found[1].next_node if found is not None else None
    if at is None:
        return
    stage, before = stage_of(new, at), stage_of(old, at)
    if stage is None or (before is not None and type(stage) is not type(before)):
        how = "does not have" if stage is None else "has as another type of stage"
        raise InvalidInput(
            f"run {row.run_id!r} stands at stage {at!r}, which the new definition {how}; keep it there, or roll "
            "the run back to before it first"
        )
