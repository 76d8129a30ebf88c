"""The JSON Schema of definitions, for editors: completion, help and checks while one writes."""

from __future__ import annotations

import copy
from typing import Any, Final

import msgspec

from holdfast.graphs.definition import Graph

_STAGES: Final = ("Call", "Effect", "Ask", "LoopUntil", "ForEach", "SubWorkflow", "Wait", "Sleep", "Set", "End")


def json_schema() -> dict[str, Any]:
    """The schema, draft 2020-12."""
    (_,), parts = msgspec.json.schema_components([Graph], ref_template="#/$defs/{name}")
    parts = copy.deepcopy(parts)
    parts["End"]["properties"].pop("breakpoint")
    for name in _STAGES:
        body = copy.deepcopy(parts[name])
        for field in ("id", "breakpoint"):
            body["properties"].pop(field, None)
        parts[f"{name}Body"] = body
        parts[name]["required"] = ["id", *parts[name]["required"]]
    for name in ("LoopUntil", "ForEach"):
        for variant in (name, f"{name}Body"):
            parts[variant]["properties"]["body"] = _one_of([f"{stage}Body" for stage in _STAGES if stage != "End"])
    parts["Graph"]["properties"]["stages"]["items"] = _one_of(list(_STAGES))
    graph = parts["Graph"]
    for part in parts.values():
        part["description"] = _first(part.get("description", ""))
    found: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode(
            {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                **graph,
                "title": "Holdfast declared workflow",
                "$defs": parts,
            }
        )
    )
    return found


def _one_of(names: list[str]) -> dict[str, Any]:
    return {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in names]}


def _first(text: str) -> str:
    """What a docstring says before its example."""
    return " ".join(text.partition("Example:")[0].split())
