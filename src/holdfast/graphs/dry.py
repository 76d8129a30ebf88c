"""A dry run: walk through a definition without doing anything. No function is called, nothing is stored.

What a function would give is not known, so it can be said beforehand (`results={"price": {"amount": 40}}`, and
`answers=` for gates). Where a condition depends on what is not known, the walk takes the first edge that may fit and
says that it assumed so; an edge that was assumed once is not assumed again if there is another.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from holdfast.errors import InvalidInput
from holdfast.graphs.conditions import UNKNOWN, all_hold
from holdfast.graphs.definition import (
    AnyStage,
    Ask,
    Call,
    Edge,
    Effect,
    End,
    ForEach,
    Graph,
    LoopUntil,
    Set,
    Sleep,
    SubWorkflow,
    Wait,
)
from holdfast.graphs.fields import form_of_fields
from holdfast.graphs.flow import edges_from, ends_here, stage_of
from holdfast.graphs.paths import MISSING, find, put
from holdfast.graphs.running import first_state, visible
from holdfast.graphs.templates import Lookup, Unresolved, as_text, expressions
from holdfast.model.views import View


class Visit(View, frozen=True, kw_only=True):
    """A stage the walk came to."""

    stage: str
    type: str
    does: str
    """What it would do, in words."""
    to: str | None = None
    assumed: bool = False
    """Whether the edge was taken although what its conditions ask for is not known."""
    instead: tuple[str, ...] = ()
    """Where it may go instead."""


class DryRun(View, frozen=True, kw_only=True):
    """What a dry run came to."""

    visits: tuple[Visit, ...]
    outcome: str
    """`ends`, `fails`, or `stops`, if the walk cannot be followed any further."""
    why: str = ""


def dry_run(
    graph: Graph, given: Mapping[str, Any], *, results: Mapping[str, Any] | None = None,
    answers: Mapping[str, Any] | None = None,
) -> DryRun:  # fmt: skip
    """Walk through the definition with this input."""
    unknown = sorted(({*(results or {}), *(answers or {})}) - {stage.id for stage in graph.stages})
    if unknown:
        raise InvalidInput(f"there is no stage {unknown[0]!r} to give a result or an answer for")
    if graph.input is not None:
        checked = form_of_fields(graph.input).check(dict(given))
        if checked.problems:
            raise InvalidInput("the input does not fit: " + "; ".join(map(str, checked.problems)))
        given = checked.value
    return _DryWalk(graph, dict(given), {**(results or {}), **(answers or {})}).to_the_end()


class _DryWalk:
    def __init__(self, graph: Graph, given: dict[str, Any], told: dict[str, Any]) -> None:
        self.graph = graph
        self.told = told
        self.state = first_state(graph, given, {}, {})
        self.visits: list[Visit] = []
        self.assumed: set[tuple[str, str]] = set()

    def lookup(self, path: str, /) -> Any:
        found = find({"state": visible(self.state), **self.state}, path)
        if found is not MISSING or path.split(".")[0] == "input":
            return found
        parts = path.split(".")
        for count in range(len(parts) - 1, 0, -1):  # inside what is not known nothing is known
            if find(self.state, ".".join(parts[:count])) is UNKNOWN:
                return UNKNOWN
        return MISSING

    def to_the_end(self) -> DryRun:
        limit = self.graph.max_iterations or 1000
        stage_id = self.state["graph"]["at"]
        for _ in range(limit + 1):
            stage = stage_of(self.graph, stage_id)
            assert stage is not None
            try:
                does = self._done(stage)
            except Unresolved as error:
                if stage.on_failure != "skip":
                    self.visits.append(_visit(stage, f"fails: {error}"))
                    return self._came_to("fails", str(error))
                does = f"fails and is skipped: {error}"
            if isinstance(stage, End) or ends_here(self.graph, stage):
                self.visits.append(_visit(stage, does))
                failed = isinstance(stage, End) and stage.failed is not None
                return self._came_to("fails" if failed else "ends", does if failed else "")
            edge, others = self._edge(stage)
            if edge is None:
                self.visits.append(_visit(stage, does))
                return self._came_to("fails", f"no edge from {stage.id!r} fits")
            assumed = all_hold(edge.conditions, self.lookup) is None or bool(others)
            visit = _visit(stage, does, to=edge.target, assumed=assumed, instead=tuple(others))
            self.visits.append(visit)
            if assumed and (stage.id, edge.target) in self.assumed and not others:
                return self._came_to("stops", f"it would come to {edge.target!r} again on an assumption")
            self.assumed.add((stage.id, edge.target))
            stage_id = edge.target
        return self._came_to("fails", f"it goes through more than {limit} stages")

    def _came_to(self, outcome: str, why: str = "") -> DryRun:
        return DryRun(visits=tuple(self.visits), outcome=outcome, why=why)

    def _edge(self, stage: AnyStage) -> tuple[Edge | None, list[str]]:
        """The edge to take, and where it may go instead."""
        may = []
        for edge in edges_from(self.graph, stage.id):
            holds = all_hold(edge.conditions, self.lookup)
            if holds is not False:
                may.append(edge)
            if holds:
                break
        fresh = [edge for edge in may if (stage.id, edge.target) not in self.assumed] or may
        if not fresh:
            return None, []
        return fresh[0], [edge.target for edge in may if edge is not fresh[0]]

    def _done(self, stage: AnyStage) -> str:
        """Do as if the stage was done. What it would do, in words."""
        value, does = self._value(stage)
        for key, part in value.items() if isinstance(stage, Set) else ():
            put(self.state, key, part)
        value = self.told.get(stage.id, UNKNOWN if not isinstance(stage, (Set, Sleep)) else None)
        facts = {"status": "succeeded", "succeeded": True, "answer": value, "iteration": 1}
        if isinstance(stage, (ForEach, LoopUntil, Wait)):
            facts |= dict.fromkeys(("count", "failed", "satisfied", "timed_out"), UNKNOWN)
        self.state["stage"] = {**self.state["stage"], stage.id: facts}
        key = getattr(stage, "output_key", "") or getattr(getattr(stage, "body", None), "output_key", "")
        if key:
            put(self.state, key, copy.deepcopy(value) if value is not UNKNOWN else UNKNOWN)
        return does

    def _value(self, stage: AnyStage) -> tuple[Any, str]:
        show = self._shown
        match stage:
            case Call():
                return None, f"calls {stage.function}({_arguments(show(stage.arguments))})"
            case Effect():
                undo = f", undone by {stage.compensation}" if stage.compensation else ""
                return None, f"performs {stage.function}({_arguments(show(stage.arguments))}){undo}"
            case Ask():
                form = form_of_fields(stage.fields)
                return None, f"asks {show(stage.prompt)!r} ({', '.join(field.name for field in form.fields)})"
            case Set():
                values = show(stage.values)
                return values, f"sets {_arguments(values)}"
            case ForEach():
                items = self.lookup(stage.items_from)
                count = "an unknown number of" if items is UNKNOWN or items is MISSING else len(items)
                return None, f"does {_kind(stage.body)} for each of {count} items of {stage.items_from}"
            case LoopUntil():
                most = f", at most {stage.max_iterations} times" if stage.max_iterations else ""
                return None, f"does {_kind(stage.body)} until its conditions hold{most}"
            case SubWorkflow():
                name = stage.workflow or (stage.graph.id if stage.graph else "")
                return None, f"runs workflow {name}({_arguments(show(stage.arguments))})"
            case Wait():
                return None, f"waits for event {show(stage.event)!r}"
            case Sleep():
                return (
                    None,
                    f"sleeps {show(stage.seconds)} s" if stage.until is None else f"sleeps until {show(stage.until)}",
                )
            case End():
                if stage.failed is not None:
                    return None, f"fails with {show(stage.failed)!r}"
                return (
                    None,
                    "ends with the state" if stage.result is None else f"ends with {as_text(show(stage.result))}",
                )

    def _shown(self, value: Any) -> Any:
        """A value with what is known filled in; what is not is named."""
        if isinstance(value, str):
            return _filled(value, self.lookup)
        if isinstance(value, dict):
            return {key: self._shown(part) for key, part in value.items()}
        return [self._shown(part) for part in value] if isinstance(value, (list, tuple)) else value


def _filled(text: str, lookup: Lookup) -> Any:
    from holdfast.graphs.templates import render

    def told(path: str, /) -> Any:
        found = lookup(path)
        return f"<{path}>" if found is UNKNOWN or _has_unknown(found) else found

    return render(text, told) if list(expressions(text)) else text


def _has_unknown(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_unknown(part) for part in value.values())
    return value is UNKNOWN or (isinstance(value, list) and any(_has_unknown(part) for part in value))


def _visit(stage: AnyStage, does: str, **more: Any) -> Visit:
    return Visit(stage=stage.id, type=_kind(stage), does=does, **more)


def _kind(stage: AnyStage) -> str:
    return str(type(stage).__struct_config__.tag)


def _arguments(values: dict[str, Any]) -> str:
    return ", ".join(
        f"{key}={as_text(value) if not isinstance(value, str) else repr(value)}" for key, value in values.items()
    )
