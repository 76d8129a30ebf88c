"""The functions of flow.yaml. The model and the tools are stand-ins without network access; replace them."""

from __future__ import annotations

from typing import Any

import holdfast

SOURCES = {
    "search": "three papers on {query}",
    "read": "the second paper says that {query} depends on light",
    "calculate": "{query}: 42 per square metre",
    "check": "two sources agree on {query}",
}
COSTS = {"search": 1, "read": 1, "calculate": 1, "check": 2}


def make(url: str) -> holdfast.App:
    """Create the app for a store."""
    app = holdfast.App(url)
    for function in (think, use_tool, remember, write):
        app.function(function)
    return app


def think(question: str, notes: list[str]) -> dict[str, Any]:
    """Decide what to do next. In place of a model, every tool is used once, in order."""
    tools = list(SOURCES)
    if len(notes) == len(tools):
        return {"satisfied": True, "tool": None, "query": None}
    return {"satisfied": False, "tool": tools[len(notes)], "query": question}


def use_tool(tool: str, query: str) -> dict[str, Any]:
    """Call a tool."""
    return {"text": SOURCES[tool].format(query=query), "cost": COSTS[tool]}


def remember(notes: list[str], found: dict[str, Any], spent: int) -> dict[str, Any]:
    """Add the finding to the notes."""
    return {"notes": [*notes, found["text"]], "spent": spent + found["cost"]}


def write(question: str, notes: list[str]) -> str:
    """Write the report."""
    return "\n".join([f"On {question}:", *(f"- {note}" for note in notes)])
