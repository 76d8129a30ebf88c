"""Operations that read runs: their list, journal, timeline, checkpoints, ledger and family."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

from holdfast.errors import CheckpointNotFound, RunNotFound
from holdfast.inspect.family import family
from holdfast.inspect.refs import Located, changes_between
from holdfast.inspect.threads import THREADS, thread_state
from holdfast.inspect.timeline import timeline
from holdfast.model.views import CheckpointInfo, RunInfo
from holdfast.operations.read import find_checkpoint
from holdfast.operations.views import checked_checkpoint, checkpoint_info
from holdfast.state.json_preview import to_jsonable
from holdfast.store.checksum import verify_run
from holdfast.store.journal_prune import PRUNED
from holdfast.store.port import CheckpointQuery, Select
from holdfast.web.api import requests, schemas
from holdfast.web.api.convert import Converter
from holdfast.web.api.operation import run_of
from holdfast.web.api.timeline_schemas import Timeline
from holdfast.web.run_filter import check_metadata
from holdfast.web.site import Context
from holdfast.web.text_values import json_or_text

_READS_MAX: Final = 20
"""How many pages are read to fill one for a user that does not see all workflows."""
_DETAIL_ENTRIES: Final = 200
"""How many entries are read to describe what a run waits for."""


def commit_of(c: Context, run_id: str) -> str:
    """The id of the last commit of a run."""
    row = c.store.port.run(run_id)
    if row is None:
        raise RunNotFound(run_id)
    return row.commit_id.hex()


def list_runs(c: Context, query: requests.RunsQuery) -> schemas.RunPage:
    """List runs, newest first.

    Runs of workflows that the user may not see are left out, so a page may have fewer runs than `limit`.
    """
    pairs = [text.partition("=") for text in query.metadata]
    metadata = {key: json_or_text(value) for key, _, value in pairs}
    check_metadata(metadata, c.site.mask)
    chosen: dict[str, Any] = {
        "status": tuple(query.status) or None,
        "workflow": query.workflow or None,
        "prefix": query.prefix,
        "metadata": metadata or None,
    }
    found: list[RunInfo] = []
    after: str | None = query.after or None
    for _ in range(1 if c.user.sees_all else _READS_MAX):
        page = c.store.runs(**chosen, limit=query.limit, after=after, damaged="skip")
        seen = [run for run in page if c.user.can_see(run.workflow)]
        fitting = seen[: query.limit - len(found)]
        found += fitting
        after = fitting[-1].cursor if len(fitting) < len(seen) else page.cursor
        if after is None or len(found) == query.limit:
            break
    return schemas.RunPage(runs=Converter(c).results(schemas.Run, found), next=after)


def get_run(c: Context) -> schemas.RunDetail:
    """Describe a run: its status, what it waits for, and its result or error."""
    run_id = run_of(c)
    commit = commit_of(c, run_id)
    return Converter(c).detail(timeline(c.store, run_id, newest=_DETAIL_ENTRIES), commit)


def get_journal(c: Context, query: requests.JournalQuery) -> schemas.Journal:
    """Read a part of a run's journal.

    An entry of the kind `pruned` stands for all that were removed from its position through `data.through`.
    """
    run_id, convert = run_of(c), Converter(c)
    convert.know_input(run_id)
    entries = c.store.journal(run_id, after=query.after, limit=query.limit)
    last = entries[-1] if len(entries) == query.limit else None
    following = None if last is None else last.data["through"] if last.kind == PRUNED else last.position
    return schemas.Journal(entries=convert.results(schemas.Entry, entries), next=following)


def get_timeline(c: Context, query: requests.TimelineQuery) -> Timeline:
    """Read what a run did, one row per call, with waits and idle time."""
    return Converter(c).timeline(timeline(c.store, run_of(c), newest=query.newest))


def list_checkpoints(c: Context, query: requests.CheckpointsQuery) -> schemas.CheckpointPage:
    """List the checkpoints of a run, newest first, without their states."""
    run_id = run_of(c)
    before = (0, query.before) if query.before else None
    wanted = CheckpointQuery(run_id, lane=query.lane, before=before, limit=query.limit + 1)
    rows = c.store.port.find_checkpoints(wanted)
    shown = rows[: query.limit]
    infos = [checkpoint_info(verify_run(run), checked_checkpoint(run, row)) for run, row in shown]
    following = infos[-1].number if len(rows) > len(shown) else None
    convert = Converter(c)
    return schemas.CheckpointPage(checkpoints=[convert.checkpoint(info) for info in infos], next=following)


def get_checkpoint(c: Context, query: requests.CheckpointQuery) -> schemas.CheckpointState:
    """Read a checkpoint with its state."""
    run_id, checkpoint_id = run_of(c), unquote(str(c.request.path_params["checkpoint_id"]))
    info = _find(c, run_id, query.lane, checkpoint_id)
    if c.app.handle(run_id).info().workflow == THREADS:
        state = thread_state(c.store, run_id, info)
    else:
        loaded = c.store.load(run_id, checkpoint_id=checkpoint_id, lane=query.lane)
        if loaded is None:
            raise CheckpointNotFound(run_id, repr(checkpoint_id))
        state = loaded.state
    convert = Converter(c)
    return schemas.CheckpointState(checkpoint=convert.checkpoint(info), state=convert.value(state))


def _find(c: Context, run_id: str, lane: str, checkpoint_id: str) -> CheckpointInfo:
    found = find_checkpoint(c.store.access.core, run_id, Select(lane, checkpoint_id))
    if found is None:
        raise CheckpointNotFound(run_id, repr(checkpoint_id))
    return checkpoint_info(*found)


def get_diff(c: Context, query: requests.DiffQuery) -> schemas.Diff:
    """Compare the states of two checkpoints of a run."""
    run_id, convert = run_of(c), Converter(c)
    info = c.app.handle(run_id).info()
    old, new = [Located(run=info, checkpoint=_find(c, run_id, query.lane, name)) for name in (query.a, query.b)]
    changes = [
        schemas.Change(op=one.op, path=one.pointer, old=to_jsonable(one.old), new=to_jsonable(one.new))
        for one in convert.masker.changes(changes_between(c.store, old, new))
    ]
    return schemas.Diff(a=query.a, b=query.b, changes=changes)


def get_effects(c: Context) -> schemas.Ledger:
    """Read the ledger of a run's side effects."""
    return schemas.Ledger(effects=Converter(c).results(schemas.Effect, c.store.effects(run_of(c))))


def get_family(c: Context) -> schemas.Family:
    """List a run and all its forks."""
    found = family(c.store, run_of(c), checkpoints=1)
    seen = [branch for branch in found.branches if c.user.can_see(branch.workflow)]
    return schemas.Family(branches=Converter(c).results(schemas.Branch, seen), more_runs=found.more_runs)
