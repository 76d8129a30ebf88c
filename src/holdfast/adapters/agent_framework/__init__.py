"""Microsoft Agent Framework on Holdfast: middlewares that record an agent's calls, and a checkpoint storage.

Inside an `async def` workflow, `durable_middleware` records the model calls of an agent as steps and its tool calls as
effects, and turns the approvals of `@tool(approval_mode="always_require")` into gates. Without a run the middlewares
pass every call on. `HoldfastCheckpointStorage` keeps the checkpoints of the framework's own workflows.
"""

from __future__ import annotations

try:
    import agent_framework as _  # noqa: F401 - the modules below need it
except ImportError as error:
    if (error.name or "").partition(".")[0] != "agent_framework":
        raise
    raise ImportError(
        'holdfast.adapters.agent_framework needs agent-framework-core; pip install "holdfast[agent-framework]"',
        name=error.name,
    ) from error

from holdfast.adapters.agent_framework.checkpoint_storage import HoldfastCheckpointStorage
from holdfast.adapters.agent_framework.middleware import durable_middleware
from holdfast.adapters.shared.calls import AgentStopped, ToolPolicy, idempotency_key

__all__ = ["AgentStopped", "HoldfastCheckpointStorage", "ToolPolicy", "durable_middleware", "idempotency_key"]
