"""Holdfast as LangGraph's checkpointer: `HoldfastSaver`. Needs the extra `langgraph`."""

from __future__ import annotations

from holdfast.adapters.langgraph.claims import ThreadClaim
from holdfast.adapters.langgraph.errors import TypeRefused, ValueUnreadable
from holdfast.adapters.langgraph.retention import Retained
from holdfast.adapters.langgraph.saver import HoldfastSaver
from holdfast.adapters.langgraph.serde import StrictSerializer

__all__ = ["HoldfastSaver", "Retained", "StrictSerializer", "ThreadClaim", "TypeRefused", "ValueUnreadable"]
