"""A CAR workflow as a graph of ours, so that one that waits can go on here. Pure.

What CAR does itself is kept: approvals, loops, for-each, workflows inside workflows, conditions. What its agents and
tools do is for functions of the user's: a step of the type `pattern` is a call of the function `car.pattern`, one of
`proposal` of `car.proposal`, and so on, with the step as it stands in the file and the state. A stage with a
compensation, which is then told with the step, is an effect whose undo is `car.compensate`; and a stage that fails has
those before it undone.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.formats.moving.gates import schema_of_fields
from holdfast.graphs.definition import Graph

END: Final = "car.end"
COMPENSATE: Final = "car.compensate"
_ITEM: Final = ("{{item}}", "{{ item }}"), ("{{index}}", "{{ index }}")


def graph_of(workflow: dict[str, Any]) -> Graph:
    """The graph; InvalidGraph says what of it cannot be one."""
    saga = any(stage.get("compensation") for stage in workflow["stages"])
    stages = [_stage(stage, saga=saga) for stage in workflow["stages"]]
    edges = [_edge(edge) for edge in workflow["edges"]]
    edges += [{"from": stage["id"], "to": END, "default": True} for stage in stages]
    start = workflow["start"] if any(stage["id"] == workflow["start"] for stage in stages) else END
    return Graph.from_data(
        {
            "id": workflow["id"], "name": workflow.get("name", ""), "start": start,
            "goal": workflow.get("goal"), "stages": [*stages, {"id": END, "type": "end"}], "edges": edges,
            "max_iterations": workflow.get("max_iterations", 100),
        }
    )  # fmt: skip


def _edge(edge: dict[str, Any]) -> dict[str, Any]:
    conditions = [_condition(condition) for condition in edge.get("conditions") or ()]
    return {"from": edge["from"], "to": edge["to"], "conditions": conditions, "label": edge.get("label") or ""}


def _condition(given: dict[str, Any]) -> dict[str, Any]:
    found = {name: given[name] for name in ("key", "operator", "description") if given.get(name)}
    return {**found, "key": _renamed(given["key"]), "value": plain(given.get("value"))}


def _renamed(key: str) -> str:
    """CAR's names for what a for_each gives, in ours."""
    head, _, rest = key.partition(".")
    name, _, what = rest.rpartition(".")
    if head != "foreach":
        return key
    if what == "count":
        return f"stage.{name}.count"
    stage, _, number = name.rpartition(".")
    return f"stage.{stage}.answer.{number}" if what == "answer" and number.isdigit() else key


def _stage(stage: dict[str, Any], *, saga: bool) -> dict[str, Any]:
    step = _step(stage["step"], inside=False)
    if stage.get("compensation") and step["type"] == "call":
        step |= {"type": "effect", "compensation": COMPENSATE}
        step["with"]["step"]["compensation"] = plain(stage["compensation"])
    if stage.get("timeout_ms") and step["type"] in ("call", "effect"):
        step["timeout_s"] = stage["timeout_ms"] / 1000
    more = {"on_failure": "compensate"} if saga else {}
    return {**step, "id": stage["id"], "name": stage.get("name", ""), **more}


def _step(step: dict[str, Any], *, inside: bool) -> dict[str, Any]:
    match step["type"]:
        case "approval":
            return {"type": "ask", "prompt": _text(step["prompt"], inside=inside), "output_key": step["output_key"],
                    "fields": schema_of_fields(step.get("fields") or [])}  # fmt: skip
        case "loop_until":
            until = [_condition(condition) for condition in step.get("until") or ()]
            return {"type": "loop_until", "body": _step(step["body"], inside=inside), "until": until,
                    "max_iterations": step["max_iterations"]}  # fmt: skip
        case "for_each":
            more = {"max_concurrent": step["max_concurrent"]} if step.get("max_concurrent") else {}
            return {
                "type": "for_each",
                "items_from": step["items_from"],
                "body": _step(step["body"], inside=True),
                **more,
            }
        case "sub_workflow" if isinstance(step.get("workflow"), dict):
            return {
                "type": "sub_workflow",
                "graph": graph_of(step["workflow"]).as_data(),
                "with": {"state": "{{ state }}"},
            }
    return {"type": "call", "function": f"car.{step['type']}", "with": {"step": plain(step, inside=inside),
            "state": "{{ state }}"}}  # fmt: skip


def plain(value: Any, *, inside: bool = False) -> Any:
    """A value whose texts name nothing, except, inside a for_each, the item and its number, as in CAR."""
    if isinstance(value, str):
        return _text(value, inside=inside)
    if isinstance(value, dict):
        return {_text(key, inside=inside): plain(part, inside=inside) for key, part in value.items()}
    return [plain(part, inside=inside) for part in value] if isinstance(value, list) else value


def _text(text: str, *, inside: bool) -> str:
    marks = {name: f"\0{number}\0" for number, (name, _) in enumerate(_ITEM)} if inside else {}
    for name, mark in marks.items():
        text = text.replace(name, mark)
    text = text.replace("{{", "\\{{")
    for number, (_, ours) in enumerate(_ITEM):
        text = text.replace(f"\0{number}\0", ours)
    return text
