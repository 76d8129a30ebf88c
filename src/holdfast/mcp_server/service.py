"""What the tools do: the operations of the JSON API, for the user of a tool call, with bounded results."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from mcp.server.mcpserver.exceptions import ToolError
from starlette.requests import Request

from holdfast.errors import AlreadyAnswered, GateClosed, HoldfastError, StorageError
from holdfast.inspect.status import pending_cancel
from holdfast.inspect.threads import INTERRUPT
from holdfast.inspect.timeline_page import read_newest, read_window
from holdfast.mcp_server.caller import VIA, Caller
from holdfast.mcp_server.truncation import shorten, shorten_items
from holdfast.model.views import GateInfo
from holdfast.runtime.app import App
from holdfast.web.api import gate_reads, requests, run_reads, schemas
from holdfast.web.api.convert import Converter
from holdfast.web.api.failure import ApiError, error_text
from holdfast.web.api.timeline_schemas import Timeline
from holdfast.web.gate_list import refusal_of
from holdfast.web.live import Live
from holdfast.web.render import renderer
from holdfast.web.run_actions import with_warning
from holdfast.web.run_start import start as start_workflow
from holdfast.web.sessions import Access
from holdfast.web.site import Context, Site
from holdfast.web.users import Users


@contextlib.contextmanager
def tool_errors() -> Iterator[None]:
    """Report what a caller can do something about; other errors reach it as a failure without their text."""
    try:
        yield
    except ApiError as error:
        raise ToolError(error.message) from error
    except StorageError:
        raise
    except HoldfastError as error:
        raise ToolError(error_text(error)) from error


class Service:
    """The runs of an app, as a caller may see and change them."""

    def __init__(self, app: App, users: Users | None, *, mask: tuple[str, ...] = (), page: str = "") -> None:
        self.users = users
        self._page = page.rstrip("/")
        access = Access(secrets.token_bytes(32))  # there are no sessions; the transport verifies tokens
        self._site = Site(app, access, renderer(), Live(), mask=mask, owns_app=False)

    def _context(self, caller: Caller, run_id: str = "") -> Context:
        """What an operation of the JSON API gets: a request about a run, of the user of this call."""
        path = {"run_id": quote(run_id, safe="")}
        scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b"", "path_params": path}
        return Context(self._site, Request(scope), caller.user)

    def where_to_answer(self, run_id: str, gate: str = "") -> str:
        """Where a person answers a gate instead."""
        command = "or with `holdfast answer`"
        if not self._page:
            return f"answer it on the page of `holdfast web`, {command}"
        if run_id in (".", "..", "~") or gate in (".", "..", "~"):
            return f"answer it on the page {self._page}, {command}"
        path = f"/runs/{quote(run_id, safe='')}" + (f"/gates/{quote(gate, safe='')}" if gate else "")
        return f"answer it on the page: {self._page}{path}, {command}"

    # --- reads -------------------------------------------------------------------------------------------------------

    def list_gates(self, caller: Caller, query: requests.GatesQuery) -> dict[str, Any]:
        """A page of gates."""
        page = gate_reads.list_gates(self._context(caller), query)
        _mark_refused(caller, page.gates)
        items = shorten_items(page.gates)
        after = page.gates[len(items.shown) - 1].cursor if items.left_out else page.next
        return {"gates": items.shown, "next": after}

    def list_runs(self, caller: Caller, query: requests.RunsQuery) -> dict[str, Any]:
        """A page of runs."""
        page = run_reads.list_runs(self._context(caller), query)
        items = shorten_items(page.runs)
        after = page.runs[len(items.shown) - 1].cursor if items.left_out else page.next
        return {"runs": items.shown, "next": after}

    def show_run(self, caller: Caller, run_id: str) -> dict[str, Any]:
        """A run, its status, what it waits for, and how it ended."""
        found = run_reads.get_run(self._context(caller, run_id))
        _mark_refused(caller, found.gates)
        parts: Mapping[str, Any] = msgspec.structs.asdict(found)
        return {name: shorten(value) for name, value in parts.items()}

    def timeline(self, caller: Caller, run_id: str, first: int | None, limit: int) -> dict[str, Any]:
        """The rows of a part of the journal."""
        c = self._context(caller, run_id)
        run_id = c.run_id()
        if first is None:
            page = read_newest(c.store, run_id, limit=limit)
        else:
            page = read_window(c.store, run_id, first=first, limit=limit)
        seen: Timeline = Converter(c).timeline(page.timeline)
        items = shorten_items(seen.rows)
        left = seen.rows[len(items.shown) :]
        after = next((row.first for row in left if row.first > page.first), None)
        if after is None and page.later:
            after = page.last + 1
        return {
            "run": shorten(seen.run),
            "rows": items.shown,
            "first": page.first,
            "last": page.last,
            "entries_before": page.earlier,
            "next": after,
        }

    def diff(self, caller: Caller, run_id: str, a: str, b: str, after: int) -> dict[str, Any]:
        """The changes between two checkpoints; by default the newest and the one before."""
        c = self._context(caller, run_id)
        if not b:
            a, b = self._newest_two(c, a)
        elif not a:
            raise ToolError("give a, too: the id of the checkpoint to compare with")
        found = run_reads.get_diff(c, requests.DiffQuery(a=a, b=b))
        items = shorten_items(found.changes[after:])
        return {
            "a": a,
            "b": b,
            "changes": items.shown,
            "next": after + len(items.shown) if items.left_out else None,
        }

    def _newest_two(self, c: Context, a: str) -> tuple[str, str]:
        found = run_reads.list_checkpoints(c, requests.CheckpointsQuery(limit=2)).checkpoints
        if not found or (not a and len(found) < 2):
            raise ToolError(f"run {c.run_id()!r} has {len(found)} checkpoints, so there is nothing to compare")
        return a or found[1].checkpoint_id, found[0].checkpoint_id

    # --- changes -----------------------------------------------------------------------------------------------------

    def start(self, caller: Caller, workflow: str, values: dict[str, Any], run_id: str | None) -> dict[str, Any]:
        """Start a run, which a worker executes."""
        _require(caller, "operator", "starting runs")
        c = self._context(caller)
        started = start_workflow(c, workflow, values, run_id=run_id, metadata={})
        message = "started" if started.is_new else "the run exists already, with the same input"
        return {
            "run_id": started.run_id,
            "is_new": started.is_new,
            "message": with_warning(c, workflow, message),
        }

    def find_open_gate(self, caller: Caller, run_id: str, gate: str) -> GateInfo:
        """The open gate that is meant, masked, if this caller may answer it."""
        _require(caller, "approver", "answering gates")
        c = self._context(caller, run_id)
        run_id = c.run_id()
        info = self._only_gate(c, run_id) if not gate else gate_reads.find_gate(c, run_id, gate)
        if info.state == "answered":
            at = info.answered_at.isoformat() if info.answered_at is not None else "an unknown time"
            raise AlreadyAnswered(run_id, info.gate, info.answered_by or "", at)
        if info.state != "open":
            raise GateClosed(run_id, info.gate, info.state, "it takes no answer any more")
        place = f"gate {info.name!r} of run {run_id!r}"
        if info.purpose == INTERRUPT:
            raise ToolError(f"{place} is an interrupt of a LangGraph thread, which is answered through its graph")
        cancel = pending_cancel(c.store, run_id)
        if cancel is not None:
            raise ToolError(f"{cancel.by!r} has requested to cancel run {run_id!r}, which reads no answer after that")
        refused = caller.refusal_of(info) or refusal_of(caller.user, info, c.store.access.core.clock.now_us())
        if refused:
            raise ToolError(
                f"{place} is not answered by this client: {refused}; {self.where_to_answer(run_id, info.gate)}"
            )
        return Converter(c).masker.gate(info)

    def _only_gate(self, c: Context, run_id: str) -> GateInfo:
        """The open gate of a run; the newest one that was open if there is none, so that an error can describe it."""
        found = c.app.gates(run_id)
        if len(found) > 1:
            raise ToolError(f"run {run_id!r} has {len(found)} open gates: {', '.join(one.gate for one in found)}")
        found = found or c.app.gates(run_id, state=None)
        if not found:
            raise ToolError(f"run {run_id!r} has no gate")
        return max(found, key=lambda one: one.answered_at or one.opened_at)

    def answer(self, caller: Caller, asked: GateInfo, value: object) -> dict[str, Any]:
        """Record the answer of a person to the question of a gate as it was shown."""
        _require(caller, "approver", "answering gates")
        c = self._context(caller, asked.run_id)
        by = caller.by_for(asked)
        c.app.answer(
            c.run_id(),
            value,
            by=by,
            groups=caller.user.groups,
            gate=asked.gate,
            question=asked.question,
            via=VIA,
            enqueue=True,
        )
        return {"answered": True, "by": by, "message": with_warning(c, asked.workflow, "the answer is recorded")}


def _mark_refused(caller: Caller, gates: Iterable[schemas.Gate]) -> None:
    """Mark the gates that are not answered for this caller."""
    for gate in gates:
        if refused := caller.refusal_of(gate):
            gate.may_answer, gate.may_not = False, refused


def _require(caller: Caller, role: str, what: str) -> None:
    if not caller.user.has_role(role):
        raise ToolError(f"{what} needs the role {role}, and {caller.user.name!r} is {caller.user.role}")
