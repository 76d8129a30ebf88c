"""Agents of the OpenAI Agents SDK inside a run: `run_agent` is a recorded `Runner.run`, `HoldfastSession` a session.

Model calls are steps, tool calls are effects, approvals are gates. The state of the agent is saved in `run.state`, in a
durable loop, whenever an approval is asked for and every few turns, so a resume repeats only the turns since then.
"""

from __future__ import annotations

try:
    import agents  # noqa: F401  # the modules below import it
except ImportError as error:
    if (error.name or "").partition(".")[0] != "agents":
        raise
    text = 'holdfast.adapters.openai_agents needs openai-agents; pip install "holdfast[openai-agents]"'
    raise ImportError(text, name=error.name) from error

from holdfast.adapters.openai_agents.agent_session import HoldfastSession
from holdfast.adapters.openai_agents.runner import run_agent
from holdfast.adapters.shared.calls import AgentStopped, ToolPolicy, idempotency_key

__all__ = ["AgentStopped", "HoldfastSession", "ToolPolicy", "idempotency_key", "run_agent"]
