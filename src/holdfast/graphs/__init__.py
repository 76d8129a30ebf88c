"""Declared workflows: a graph of stages as data, in Python, YAML or JSON.

The engine that executes other workflows executes them as well.

Example:
    from holdfast.graphs import Ask, Call, Edge, End, Graph

    Graph(
        id="greet",
        stages=[Ask(id="who", prompt="Whom?", fields={"name": "str"}, output_key="who"), End(id="end")],
        edges=[Edge(source="who", target="end")],
    )
"""

from __future__ import annotations

from holdfast.graphs.definition import (
    Ask,
    Call,
    Condition,
    Edge,
    Effect,
    End,
    ForEach,
    Graph,
    Level,
    LoopUntil,
    RetryPolicy,
    Set,
    Sleep,
    Stage,
    SubWorkflow,
    Wait,
)
from holdfast.graphs.structure import Finding

__all__ = [
    "Ask",
    "Call",
    "Condition",
    "Edge",
    "Effect",
    "End",
    "Finding",
    "ForEach",
    "Graph",
    "Level",
    "LoopUntil",
    "RetryPolicy",
    "Set",
    "Sleep",
    "Stage",
    "SubWorkflow",
    "Wait",
]
