"""Operations about the store as a whole: counts, workflows, the user, events, and the description of the API."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from starlette.responses import Response

from holdfast.errors import InvalidId, RunNotFound
from holdfast.ids import check_id
from holdfast.store.port import RunQuery
from holdfast.web.api import requests, schemas
from holdfast.web.api.convert import Converter
from holdfast.web.api.failure import ApiError, encode, failure
from holdfast.web.gate_list import GateList
from holdfast.web.site import Context
from holdfast.web.workflow_catalog import NEVER, list_known

_WATCHED: Final = 200
"""How many rows of a view the mark covers; the counts cover the others."""


def get_me(c: Context) -> schemas.Me:
    """Describe the user of this request."""
    return Converter(c).result(schemas.Me, c.user)


def get_counts(c: Context) -> schemas.Counts:
    """Count the runs of each status, and the open gates.

    Only of the workflows that the user sees. Numbers of the statuses that `estimated` names are estimates.
    """
    if c.user.sees_all:
        found = c.store.counts()
        return schemas.Counts(runs=found.runs, open_gates=found.open_gates, estimated=list(found.estimated))
    counted = c.store.port.count_runs(c.user.can_see)
    open_gates = GateList.of(c.site).count_visible(c.user)
    return schemas.Counts(runs=counted.runs, open_gates=open_gates, estimated=sorted(counted.estimated))


def list_workflows(c: Context) -> schemas.Workflows:
    """List the workflows that can be started, with the JSON Schema of their input."""
    found = [
        schemas.Workflow(
            name=one.name,
            version=one.version,
            doc=one.doc,
            input_schema=one.form.json_schema(),
            published_at=one.published_at if one.published_at > NEVER else None,
        )
        for one in list_known(c)
    ]
    return schemas.Workflows(workflows=found)


def watch_events(c: Context, query: requests.EventsQuery) -> Response:
    """Watch the gates, the runs or one run: server-sent events.

    Each event has the type `changed` and a mark as its data. An event says only that something has changed; read it
    again. After a lost connection pass the last mark as `mark`, so that no change is missed.
    """
    seen = "*" if c.user.sees_all else "\n".join(sorted(c.user.workflows))
    if query.view == "run":
        run_id = _visible_run(c, query.run)
        response = c.site.live.response(f"api/run/{run_id}", lambda: _run_mark(c, run_id), query.mark)
    elif query.view == "runs":
        response = c.site.live.response(f"api/runs/{seen}", lambda: _runs_mark(c), query.mark)
    else:
        response = c.site.live.response(f"api/gates/{seen}", lambda: _gates_mark(c), query.mark)
    if response.status_code == 503:
        return failure(503, "too many streams are open", {"Retry-After": "30"})
    return response


def _visible_run(c: Context, run_id: str) -> str:
    if not run_id:
        raise ApiError(400, "the view of a run needs the query parameter run", code="invalid_query")
    try:
        c.visible(check_id("run", run_id))
    except InvalidId:
        raise RunNotFound(run_id) from None
    return run_id


def _digest(parts: Iterable[object]) -> str:
    return hashlib.sha256("\n".join(map(repr, parts)).encode()).hexdigest()[:20]


def _run_mark(c: Context, run_id: str) -> str:
    row = c.store.port.run(run_id)
    return row.commit_id.hex() if row is not None else "deleted"


def _runs_mark(c: Context) -> str:
    rows = [row for row in c.store.port.runs(RunQuery(limit=_WATCHED)) if c.user.can_see(row.workflow)]
    counts = sorted(c.store.counts().runs.items()) if c.user.sees_all else []
    return _digest([*((row.run, row.commit_id) for row in rows), *counts])


def _gates_mark(c: Context) -> str:
    rows = [(run, gate) for run, gate in c.store.port.gates("open", _WATCHED) if c.user.can_see(run.workflow)]
    count = c.store.counts().open_gates if c.user.sees_all else 0
    return _digest([*((run.run, gate.gate, gate.seal) for run, gate in rows), count])


def get_openapi(c: Context) -> Response:
    """Describe this API: OpenAPI 3.1."""
    from holdfast.web.api.openapi import document

    return Response(encode(document(c.root)), media_type="application/json")
