"""Google ADK inside a workflow: model calls are steps, tool calls are effects, confirmations are gates.

`HoldfastPlugin` belongs first in the plugins of a Runner or App. It replaces the model of an agent and the tools of a
request by ones that record, so the callbacks of agents and of other plugins run as before. Without a run it does
nothing. `HoldfastSessionService` keeps sessions in a store, with and without a run.
"""

from __future__ import annotations

try:
    import google.adk  # noqa: F401 - the modules below need it
except ImportError as error:
    if (error.name or "").partition(".")[0] != "google":
        raise
    raise ImportError('holdfast.adapters.adk needs google-adk; pip install "holdfast[adk]"', name=error.name) from error

from holdfast.adapters.adk.adk_plugin import HoldfastPlugin
from holdfast.adapters.adk.session_service import HoldfastSessionService
from holdfast.adapters.shared.calls import AgentStopped, ToolPolicy, idempotency_key

__all__ = ["AgentStopped", "HoldfastPlugin", "HoldfastSessionService", "ToolPolicy", "idempotency_key"]
