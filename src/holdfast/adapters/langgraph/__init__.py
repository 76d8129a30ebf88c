"""Holdfast as LangGraph's checkpointer: `HoldfastSaver`. Needs the extra `langgraph`."""

from __future__ import annotations

try:
    import langchain_core  # noqa: F401  # the modules below import them
    import langgraph.checkpoint.base
    import langgraph.graph  # noqa: F401
except ImportError as error:
    if (error.name or "").partition(".")[0] not in ("langgraph", "langchain_core"):
        raise
    text = f'holdfast.adapters.langgraph needs {error.name}; pip install "holdfast[langgraph]"'
    raise ImportError(text, name=error.name) from error

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
