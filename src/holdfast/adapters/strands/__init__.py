"""Strands Agents on Holdfast: a plugin that records an agent's calls, and a session repository.

Inside an `async def` workflow, `HoldfastPlugin` records the model calls of an agent as steps and its tool calls as
effects, and turns its interrupts into gates. Without a run it passes every call on. `HoldfastSessionRepository` keeps
the sessions of agents that run without a workflow.
"""

from __future__ import annotations

try:
    import strands.middleware as _  # noqa: F401 - the modules below need it; older versions lack it
except ImportError as error:
    if (error.name or "").partition(".")[0] != "strands":
        raise
    message = 'holdfast.adapters.strands needs strands-agents 1.62 or later; pip install "holdfast[strands]"'
    raise ImportError(message, name=error.name) from error

from holdfast.adapters.shared.calls import AgentStopped, ToolPolicy, idempotency_key
from holdfast.adapters.strands.session_repository import HoldfastSessionRepository
from holdfast.adapters.strands.strands_plugin import HoldfastPlugin

__all__ = ["AgentStopped", "HoldfastPlugin", "HoldfastSessionRepository", "ToolPolicy", "idempotency_key"]
