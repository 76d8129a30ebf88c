"""Operations that read gates."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from holdfast.errors import InvalidId, NotFound
from holdfast.ids import check_id, find_gates
from holdfast.model.views import GateInfo
from holdfast.web.api import requests, schemas
from holdfast.web.api.convert import Converter
from holdfast.web.api.operation import run_of
from holdfast.web.gate_list import refusal_of
from holdfast.web.site import Context

_READS_MAX: Final = 20
"""How many pages are read to fill one with gates that fit a filter."""


def list_gates(c: Context, query: requests.GatesQuery) -> schemas.GatePage:
    """List gates, longest open first.

    Gates of workflows that the user may not see are left out, so a page may have fewer gates than `limit`.
    """
    found: list[GateInfo] = []
    after: str | None = query.after or None
    for _ in range(_READS_MAX):
        page = c.app.gates(state=query.state, limit=query.limit, after=after)
        fitting = [gate for gate in page if _fits(c, query, gate)]
        taken = fitting[: query.limit - len(found)]
        found += taken
        if len(taken) < len(fitting):
            after = taken[-1].cursor
            break
        after = page[-1].cursor if len(page) == query.limit else None
        if after is None or len(found) == query.limit:
            break
    convert = Converter(c)
    return schemas.GatePage(gates=[convert.gate(gate) for gate in found], next=after)


def _fits(c: Context, query: requests.GatesQuery, gate: GateInfo) -> bool:
    if not c.user.can_see(gate.workflow) or query.workflow not in ("", gate.workflow):
        return False
    return not query.mine or not refusal_of(c.user, gate, c.store.access.core.clock.now_us())


def get_gate(c: Context) -> schemas.Gate:
    """Read a gate of a run, by its full name or the name people see."""
    return Converter(c).gate(find_gate(c, run_of(c), gate_of(c)))


def gate_of(c: Context) -> str:
    """The gate of the path. A name that is not valid names no gate."""
    name = unquote(str(c.request.path_params["gate"]))
    try:
        return check_id("gate", name)
    except InvalidId:
        raise NotFound(f"there is no gate {name!r}") from None


def find_gate(c: Context, run_id: str, name: str) -> GateInfo:
    """The gate of a run that a name means; NotFound if there is none."""
    found = find_gates(c.app.gates(run_id, state=None), name)
    if not found:
        raise NotFound(f"run {run_id!r} has no gate {name!r}")
    if len(found) > 1:
        listed = ", ".join(repr(gate.gate) for gate in found)
        raise NotFound(f"{name!r} names {len(found)} open gates of run {run_id!r}; give one of: {listed}")
    return found[0]
