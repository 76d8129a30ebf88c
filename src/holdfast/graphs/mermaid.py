"""The Mermaid flowchart of a declared workflow."""

from __future__ import annotations

from typing import Final

from holdfast.graphs import definition
from holdfast.graphs.flow import Flow
from holdfast.graphs.structure import refuse_errors, structure

_SHAPES: Final[dict[type, tuple[str, str]]] = {
    definition.Ask: ("{{", "}}"),
    definition.Effect: ("[[", "]]"),
    definition.SubWorkflow: ("[/", "/]"),
    definition.End: ("([", "])"),
    definition.Call: ("[", "]"),
}
_SIGNS: Final = {
    "eq": "=",
    "neq": "≠",
    "gt": ">",
    "lt": "<",
    "gte": "≥",
    "lte": "≤",
    "exists": "is there",
    "not_exists": "is not there",
    "contains": "contains",
}


_ESCAPES: Final = str.maketrans(
    {"&": "&amp;", '"': "&quot;", "<": "&lt;", ">": "&gt;", "#": "&#35;", "{": "&#123;", "}": "&#125;", "\n": " "}
)


def mermaid(graph: definition.Graph, current: str | None = None) -> str:
    """Return the flowchart, with the current stage highlighted. Raises InvalidGraph for structural errors."""
    refuse_errors(graph.id, structure(graph))
    flow = Flow(graph)
    names = {stage.id: f"s{number}" for number, stage in enumerate(graph.stages)}
    lines = ["flowchart TD", f"    begin(( )) --> {names[flow.start]}"]
    for stage in graph.stages:
        left, right = _SHAPES.get(type(stage), ("(", ")"))
        lines.append(f'    {names[stage.id]}{left}"{_quoted(_title(stage))}"{right}')
    for edge in flow.edges:
        label = _quoted(label_of(edge))
        arrow = f'-- "{label}" -->' if label else "-->"
        lines.append(f"    {names[edge.source]} {arrow} {names[edge.target]}")
    lines += [
        f"    {names[stage.id]} --> done(( ))"
        for stage in graph.stages[-1:]
        if flow.ends_here(stage) and not isinstance(stage, definition.End)
    ]
    if current in names:
        lines += [
            "    classDef current fill:#fde68a,stroke:#b45309,stroke-width:3px,color:#1c1917",
            f"    class {names[current]} current",
        ]
    return "\n".join(lines) + "\n"


def _title(stage: definition.AnyStage) -> str:
    title = stage.name or stage.id
    what = {
        definition.Call: getattr(stage, "function", ""),
        definition.Effect: getattr(stage, "function", ""),
        definition.ForEach: "for each",
        definition.LoopUntil: "loop",
        definition.SubWorkflow: getattr(stage, "workflow", "") or "sub-workflow",
        definition.Ask: "asks",
    }.get(type(stage), "" if isinstance(stage, definition.End) else str(type(stage).__struct_config__.tag))
    stop = "⏸ " if stage.breakpoint else ""
    return f"{stop}{title}<br/><small>{what}</small>" if what and what != title else f"{stop}{title}"


def label_of(edge: definition.Edge) -> str:
    """Return the label of an edge: its own, or its conditions in words."""
    if edge.label:
        return edge.label
    return "otherwise" if edge.default else " and ".join(_condition(condition) for condition in edge.conditions)


def _condition(condition: definition.Condition) -> str:
    for inner, word in ((condition.all, " and "), (condition.any, " or ")):
        if inner is not None:
            return "(" + word.join(_condition(part) for part in inner) + ")"
    sign = _SIGNS[condition.operator]
    value = "" if condition.operator in ("exists", "not_exists") else f" {condition.value}"
    return f"{condition.key} {sign}{value}"


def _quoted(text: str) -> str:
    """Return text with the characters escaped that Mermaid interprets. The tags of `_title` are kept."""
    text = text.translate(_ESCAPES)
    for tag in ("<br/>", "<small>", "</small>"):
        text = text.replace(tag.replace("<", "&lt;").replace(">", "&gt;"), tag)
    return text
