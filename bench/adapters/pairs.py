"""What is compared: storages of a framework, and ours for the same work."""

from __future__ import annotations

from typing import Final, NamedTuple

NO_STORAGE: Final = ""


class Pair(NamedTuple):
    """A storage of a framework, or none, and ours."""

    adapter: str
    theirs: str
    ours: str

    def ways(self) -> list[str]:
        return [way for way in (self.theirs, self.ours) if way]


class Framework(NamedTuple):
    """The name, the distribution, and the reason if it has no storage to measure."""

    title: str
    package: str
    missing: str = ""


FRAMEWORKS: Final = {
    "adk": Framework("Google ADK", "google-adk"),
    "ag2": Framework("AG2", "ag2", "none: keeps histories in memory or Redis, and waits for approvals in the process"),
    "agent_framework": Framework("Agent Framework", "agent-framework-core"),
    "burr": Framework("Burr", "apache-burr"),
    "crewai": Framework("CrewAI", "crewai"),
    "llama_index": Framework("LlamaIndex", "llama-index-workflows"),
    "openai_agents": Framework("OpenAI Agents", "openai-agents"),
    "pydantic_ai_steps": Framework("Pydantic AI", "pydantic-ai-slim"),
    "strands": Framework("Strands", "strands-agents"),
}
"""By the name of the environment in .venv-adapters."""

GROWTH: Final = (
    Pair("adk", "SqliteSessionService", "HoldfastSessionService"),
    Pair("ag2", NO_STORAGE, "make_durable"),
    Pair("agent_framework", "FileCheckpointStorage", "HoldfastCheckpointStorage"),
    Pair("burr", "SQLitePersister", "HoldfastPersister"),
    Pair("crewai", "SQLiteFlowPersistence", "HoldfastFlowPersistence"),
    Pair("llama_index", "to_dict, a file per step", "run_workflow"),
    Pair("llama_index", "to_dict, one file replaced", "run_workflow"),
    Pair("openai_agents", "SQLiteSession", "HoldfastSession"),
    Pair("pydantic_ai_steps", "SqliteStepStore", "HoldfastStepStore"),
    Pair("pydantic_ai_steps", "SqliteStepStore", "HoldfastDurability"),
    Pair("pydantic_ai_steps", "FileStepStore", "HoldfastDurability"),
    Pair("strands", "FileSessionManager", "HoldfastSessionRepository"),
)
DOUBLE: Final = (
    Pair("adk", "SqliteSessionService", "HoldfastPlugin"),
    Pair("ag2", NO_STORAGE, "make_durable"),
    Pair("agent_framework", "FileCheckpointStorage", "HoldfastCheckpointStorage"),
    Pair("burr", "SQLitePersister", "HoldfastPersister"),
    Pair("crewai", "SQLiteFlowPersistence", "HoldfastFlowPersistence"),
    Pair("llama_index", "to_dict, one file replaced", "run_workflow"),
    Pair("openai_agents", "RunState", "run_agent"),
    Pair("pydantic_ai_steps", "SqliteStepStore", "HoldfastDurability"),
    Pair("strands", "FileSessionManager", "HoldfastPlugin"),
)
RESUME: Final = (
    Pair("openai_agents", "RunState", "run_agent"),
    Pair("pydantic_ai_steps", "SqliteStepStore", "HoldfastDurability"),
)
RESUME_S_MAX: Final = {"run_agent": 1.0}
"""The targets."""
