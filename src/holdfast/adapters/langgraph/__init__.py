"""Holdfast as LangGraph's checkpointer: `HoldfastSaver`. Needs the extra `langgraph`."""

from __future__ import annotations

from holdfast.adapters.langgraph.graph_runs import GuardedGraph, run_graph
from holdfast.adapters.langgraph.migration import Migrated, migrate
from holdfast.adapters.langgraph.retention import Retained
from holdfast.adapters.langgraph.saver import HoldfastSaver
from holdfast.adapters.langgraph.serde import StrictSerializer, TypeRefused, ValueUnreadable
from holdfast.adapters.langgraph.thread import ThreadClaim

__all__ = [
    "GuardedGraph",
    "HoldfastSaver",
    "Migrated",
    "Retained",
    "StrictSerializer",
    "ThreadClaim",
    "TypeRefused",
    "ValueUnreadable",
    "migrate",
    "run_graph",
]
