"""The picture of a declared workflow, as a Mermaid flowchart."""

from __future__ import annotations

from typing import Final

from holdfast.graphs.definition import (
    AnyStage,
    Ask,
    Call,
    Condition,
    Edge,
    Effect,
    End,
    ForEach,
    Graph,
    LoopUntil,
    SubWorkflow,
)
from holdfast.graphs.findings import refuse_errors
from holdfast.graphs.flow import Flow
from holdfast.graphs.structure import structure

_SHAPES: Final[dict[type, tuple[str, str]]] = {
    Ask: ("{{", "}}"), Effect: ("[[", "]]"), SubWorkflow: ("[/", "/]"), End: ("([", "])"), Call: ("[", "]"),
}  # fmt: skip
_SIGNS: Final = {"eq": "=", "neq": "≠", "gt": ">", "lt": "<", "gte": "≥", "lte": "≤", "exists": "is there",
                 "not_exists": "is not there", "contains": "contains"}  # fmt: skip


def mermaid(graph: Graph, current: str | None = None) -> str:
    """The flowchart; the current stage, if it is one of the graph's, is marked. InvalidGraph if it is not sound."""
    refuse_errors(graph.id, structure(graph))
    flow = Flow(graph)
    names = {stage.id: f"s{number}" for number, stage in enumerate(graph.stages)}
    lines = ["flowchart TD", f"    begin(( )) --> {names[flow.start]}"]
    for stage in graph.stages:
        left, right = _SHAPES.get(type(stage), ("(", ")"))
        lines.append(f'    {names[stage.id]}{left}"{_quoted(_title(stage))}"{right}')
    for edge in flow.edges:
        label = _quoted(_said(edge))
        arrow = f'-- "{label}" -->' if label else "-->"
        lines.append(f"    {names[edge.source]} {arrow} {names[edge.target]}")
    lines += [f"    {names[stage.id]} --> done(( ))" for stage in graph.stages[-1:] if flow.ends_here(stage)
              and not isinstance(stage, End)]  # fmt: skip
    if current in names:
        lines += ["    classDef current fill:#fde68a,stroke:#b45309,stroke-width:3px,color:#1c1917",
                  f"    class {names[current]} current"]  # fmt: skip
    return "\n".join(lines) + "\n"


def _title(stage: AnyStage) -> str:
    title = stage.name or stage.id
    what = {
        Call: getattr(stage, "function", ""), Effect: getattr(stage, "function", ""), ForEach: "for each",
        LoopUntil: "loop", SubWorkflow: getattr(stage, "workflow", "") or "sub-workflow", Ask: "asks",
    }.get(type(stage), "" if isinstance(stage, End) else str(type(stage).__struct_config__.tag))  # fmt: skip
    stop = "⏸ " if stage.breakpoint else ""
    return f"{stop}{title}<br/><small>{what}</small>" if what and what != title else f"{stop}{title}"


def _said(edge: Edge) -> str:
    if edge.label:
        return edge.label
    return "otherwise" if edge.default else " and ".join(_condition(condition) for condition in edge.conditions)


def _condition(condition: Condition) -> str:
    for inner, word in ((condition.all, " and "), (condition.any, " or ")):
        if inner is not None:
            return "(" + word.join(_condition(part) for part in inner) + ")"
    sign = _SIGNS[condition.operator]
    value = "" if condition.operator in ("exists", "not_exists") else f" {condition.value}"
    return f"{condition.key} {sign}{value}"


def _quoted(text: str) -> str:
    """Text that Mermaid takes for text. Line breaks of our own stay."""
    for sign, name in (("&", "&amp;"), ('"', "&quot;"), ("<", "&lt;"), (">", "&gt;"), ("#", "&#35;"), ("{", "&#123;"),
                       ("}", "&#125;"), ("\n", " ")):  # fmt: skip
        text = text.replace(sign, name)
    for tag in ("<br/>", "<small>", "</small>"):
        text = text.replace(tag.replace("<", "&lt;").replace(">", "&gt;"), tag)
    return text
