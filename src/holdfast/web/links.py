"""Addresses of pages that several modules link to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.inspect.threads import INTERRUPT
from holdfast.web import gate_view

if TYPE_CHECKING:
    from holdfast.model.views import GateInfo
    from holdfast.web.site import Context


def gate_url(c: Context, gate: GateInfo) -> str:
    """The page of a gate; empty for an interrupt of LangGraph, which only its graph can answer."""
    return "" if gate.purpose == INTERRUPT else gate_view.gate_url(c, gate.run_id, gate.gate)
