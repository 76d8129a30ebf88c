"""The table of the API's operations: routes, roles, what they accept and return, and their examples."""

from __future__ import annotations

from typing import Final

from holdfast.web.api import gate_reads, requests, run_changes, run_reads, schemas, site_reads
from holdfast.web.api.operation import Operation
from holdfast.web.api.timeline_schemas import Timeline
from holdfast.web.routes import Page

_RUN: Final = "/runs/{run_id}"
_GATE: Final = "/runs/{run_id}/gates/{gate}"

OPERATIONS: Final = (
    Operation(
        "GET",
        "/runs",
        run_reads.list_runs,
        schemas.RunPage,
        requests.RunsQuery,
        example={"status": ["waiting", "paused"], "workflow": "refund", "metadata": ["team=a"], "limit": 20},
    ),
    Operation(
        "POST",
        "/runs",
        run_changes.start_run,
        schemas.Accepted,
        body=requests.StartBody,
        role="operator",
        created=True,
        errors=(404,),
        example={"workflow": "refund", "input": {"order": "A-17"}, "run_id": "order-17", "metadata": {"team": "a"}},
    ),
    Operation("GET", _RUN, run_reads.get_run, schemas.RunDetail, requests.RunQuery),
    Operation(
        "GET",
        f"{_RUN}/journal",
        run_reads.get_journal,
        schemas.Journal,
        requests.JournalQuery,
        example={"after": 0, "limit": 100},
    ),
    Operation("GET", f"{_RUN}/timeline", run_reads.get_timeline, Timeline, requests.TimelineQuery),
    Operation(
        "GET", f"{_RUN}/checkpoints", run_reads.list_checkpoints, schemas.CheckpointPage, requests.CheckpointsQuery
    ),
    Operation(
        "GET",
        f"{_RUN}/checkpoints/{{checkpoint_id}}",
        run_reads.get_checkpoint,
        schemas.CheckpointState,
        requests.CheckpointQuery,
    ),
    Operation(
        "GET",
        f"{_RUN}/diff",
        run_reads.get_diff,
        schemas.Diff,
        requests.DiffQuery,
        example={"a": "1.0a1b2c3d4e", "b": "2.5f6a7b8c9d"},
    ),
    Operation("GET", f"{_RUN}/effects", run_reads.get_effects, schemas.Ledger, requests.RunQuery),
    Operation("GET", f"{_RUN}/family", run_reads.get_family, schemas.Family, requests.RunQuery),
    Operation(
        "GET",
        "/gates",
        gate_reads.list_gates,
        schemas.GatePage,
        requests.GatesQuery,
        example={"mine": True, "workflow": "refund"},
    ),
    Operation("GET", _GATE, gate_reads.get_gate, schemas.Gate, requests.RunQuery),
    Operation(
        "POST",
        f"{_GATE}/answer",
        run_changes.answer_gate,
        schemas.Accepted,
        requests.RunQuery,
        requests.AnswerBody,
        "approver",
        example={"answer": {"approve": True}},
    ),
    Operation(
        "POST",
        f"{_RUN}/answer",
        run_changes.answer_run,
        schemas.Accepted,
        requests.RunQuery,
        requests.RunAnswerBody,
        "approver",
        example={"answer": {"approve": True}, "gate": "approve"},
    ),
    Operation(
        "POST",
        f"{_GATE}/reassign",
        run_changes.reassign_gate,
        schemas.Gate,
        requests.RunQuery,
        requests.ReassignBody,
        "approver",
        example={"who": ["ben", "group:finance"], "reason": "on holiday"},
    ),
    Operation(
        "POST",
        f"{_RUN}/reassign",
        run_changes.reassign_run,
        schemas.Gate,
        requests.RunQuery,
        requests.RunReassignBody,
        "approver",
        example={"who": ["ben"], "gate": "approve", "reason": "on holiday"},
    ),
    *(
        Operation(
            "POST",
            f"{_RUN}/{call.__name__.removesuffix('_run')}",
            call,
            schemas.Accepted,
            requests.RunQuery,
            requests.Nothing,
            "operator",
            example={},
        )
        for call in (run_changes.pause_run, run_changes.resume_run, run_changes.cancel_run, run_changes.retry_run)
    ),
    Operation(
        "POST",
        f"{_RUN}/send",
        run_changes.send_event,
        schemas.Accepted,
        requests.RunQuery,
        requests.SendBody,
        "operator",
        example={"event": "shipped", "value": {"parcel": 3}, "key": "parcel-3"},
    ),
    Operation(
        "GET",
        f"{_RUN}/rollback-plan",
        run_changes.get_rollback_plan,
        schemas.Plan,
        requests.PlanQuery,
        errors=(409,),
        example={"to": "pay#1"},
    ),
    Operation(
        "POST",
        f"{_RUN}/rollback",
        run_changes.roll_back_run,
        schemas.Accepted,
        requests.RunQuery,
        requests.RollbackBody,
        "operator",
        example={"to": "pay#1", "force": False},
    ),
    Operation(
        "POST",
        f"{_RUN}/fork",
        run_changes.fork_run,
        schemas.Accepted,
        requests.RunQuery,
        requests.ForkBody,
        "operator",
        created=True,
        example={"at": "pay#1", "run_id": "order-17b", "effects": "reuse", "update": {"order.amount": 30}},
    ),
    Operation("GET", "/counts", site_reads.get_counts, schemas.Counts),
    Operation("GET", "/workflows", site_reads.list_workflows, schemas.Workflows),
    Operation("GET", "/me", site_reads.get_me, schemas.Me),
    Operation(
        "GET",
        "/events",
        site_reads.watch_events,
        None,
        requests.EventsQuery,
        errors=(404,),
        media="text/event-stream",
        example={"view": "run", "run": "order-17"},
    ),
    Operation("GET", "/openapi.json", site_reads.get_openapi, None),
)

PAGES: Final[list[Page]] = [operation.page() for operation in OPERATIONS]
