"""The dry run: a walk through a definition without calls and without storage.

The result of a function is UNKNOWN, unless it is supplied (`results={"price": {"amount": 40}}`, and `answers=` for
gates). Where a condition depends on an unknown value, the walk takes the first edge that may fit and reports the
assumption. It assumes no edge twice: if there is no other, the walk stops.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from holdfast.errors import InvalidInput
from holdfast.graphs.definition import (
    AnyStage,
    Ask,
    Call,
    Edge,
    Effect,
    End,
    ForEach,
    Graph,
    JsonObject,
    LoopUntil,
    Set,
    Sleep,
    SubWorkflow,
    Wait,
)
from holdfast.graphs.expressions import (
    UNKNOWN,
    Lookup,
    all_hold,
    as_text,
    has_unknown,
    is_alone,
    render,
    render_or_unknown,
)
from holdfast.graphs.fields import form_of_fields
from holdfast.graphs.structure import is_deeper, refuse_errors, structure
from holdfast.graphs.walk import StageResult, Walker, first_state, items_of, with_item
from holdfast.limits import DEPTH_MAX
from holdfast.model.views import View

VISITS_MAX: Final = 10_000
"""How often the walk may return to stages; a run without max_iterations may cycle forever."""
TIMES_MAX: Final = 1_000
"""How many iterations of a loop, and how many items of a for_each, the walk performs."""


class Visit(View, frozen=True, kw_only=True):
    """A stage that the walk reached."""

    stage: str
    type: str
    does: str
    """A description of what a run would do."""
    to: str | None = None
    assumed: bool = False
    """Whether the edge was taken although its conditions depend on unknown values."""
    instead: tuple[str, ...] = ()
    """The stages that a run may go to instead."""


class DryRun(View, frozen=True, kw_only=True):
    """The result of a dry run."""

    visits: tuple[Visit, ...]
    outcome: str
    """`ends`, `fails`, or `stops` if the walk cannot continue."""
    why: str = ""


def dry_run(
    graph: Graph,
    given: Mapping[str, object],
    *,
    results: Mapping[str, object] | None = None,
    answers: Mapping[str, object] | None = None,
) -> DryRun:
    """Walk through the definition with this input."""
    refuse_errors(graph.id, structure(graph))
    supplied = {**(results or {}), **(answers or {})}
    unknown = sorted(set(supplied) - {stage.id for stage in graph.stages})
    if unknown:
        raise InvalidInput(f"a result or an answer is given for {unknown[0]!r}, but no stage has this id")
    if is_deeper([given, supplied], DEPTH_MAX):
        raise InvalidInput(f"the input, results and answers must not be nested deeper than {DEPTH_MAX} levels")
    if graph.input is not None:
        checked = form_of_fields(graph.input).check(dict(given))
        if checked.problems:
            raise InvalidInput("the input is not valid: " + "; ".join(map(str, checked.problems)))
        given = checked.value
    return _DryStages(graph, dict(given), supplied).walk()


class _Stop(Exception):
    """The walk stops before it reaches an end."""

    def __init__(self, outcome: str, why: str) -> None:
        super().__init__(why)
        self.outcome = outcome


class _DryStages:
    """A stage runner that describes each stage, and returns UNKNOWN where a run would have a result."""

    def __init__(self, graph: Graph, given: JsonObject, supplied: JsonObject) -> None:
        self.walker = Walker(graph, first_state(graph, given, {}, {}), self)
        self.supplied = supplied
        self.visits: list[Visit] = []
        self.assumed: set[tuple[str, str]] = set()
        self.description = ""
        """A description of the current stage."""
        self.is_leaving = False
        """Whether the current stage has ended and its edge is being chosen."""

    def walk(self) -> DryRun:
        """Walk from stage to stage until the walk ends, fails or stops."""
        visits_max = VISITS_MAX + len(self.walker.flow.stages)
        try:
            while not self.walker.advance():
                if len(self.visits) >= visits_max:
                    raise _Stop("stops", f"it has visited {visits_max} stages without reaching an end")
        except _Stop as stop:
            return DryRun(visits=tuple(self.visits), outcome=stop.outcome, why=str(stop))
        return DryRun(visits=tuple(self.visits), outcome="ends")

    def enter(self, stage: AnyStage) -> None:
        """Do nothing: a dry run ignores breakpoints."""

    def run_step(self, stage: AnyStage, step: AnyStage, lookup: Lookup) -> StageResult:
        """Return what the step would write to the state. Raises InvalidInput if it would fail in a run."""
        self.description = describe(stage, lookup)
        if self.walker.state["graph"].get("looping", 0) >= TIMES_MAX:
            self._visit(stage, self.description)
            raise _Stop("stops", f"the loop {stage.id!r} does not end in {TIMES_MAX} iterations")
        if step is not stage:
            describe(step, lookup)
        value = self.supplied.get(stage.id, None if isinstance(step, (Set, Sleep)) else UNKNOWN)
        match step:
            case Set():
                return StageResult(value, writes=_render_known(step.values, lookup))
            case Wait():
                return StageResult(value, {"timed_out": UNKNOWN if value is UNKNOWN else False})
            case ForEach():
                return _run_items(step, value, lookup)
            case _:
                return StageResult(value)

    def finish_loop(self, stage: LoopUntil, satisfied: bool | None) -> None:
        """Do nothing: a dry run records no entries."""

    def choose_edge(self, edges: list[Edge], lookup: Lookup) -> Edge | None:
        """Return the first edge that may fit and was not assumed before."""
        stage = self.walker.stage
        self.is_leaving = True
        possible = _possible_edges(edges, lookup)
        if not possible:
            return None
        fresh = [found for found in possible if (stage.id, found[0].target) not in self.assumed]
        edge, holds = (fresh or possible)[0]
        instead = tuple(other.target for other, _ in possible if other is not edge)
        assumed = bool(instead) or not holds
        self._visit(stage, self._description(stage), to=edge.target, assumed=assumed, instead=instead)
        if assumed:
            if not fresh:
                raise _Stop("stops", f"it would assume the edge to {edge.target!r} a second time")
            self.assumed.add((stage.id, edge.target))
        self.is_leaving = False
        return edge

    def end(self, stage: AnyStage, lookup: Lookup) -> None:
        """Describe the end."""
        if not isinstance(stage, End):
            self._visit(stage, self._description(stage))
            return
        try:
            description = describe(stage, lookup)
        except InvalidInput as error:
            self.fail(stage, {"message": str(error)}, error)
        self._visit(stage, description)
        if stage.failed is not None:
            raise _Stop("fails", description)

    def fail(self, stage: AnyStage, failure: JsonObject, error: Exception | None) -> NoReturn:
        """Stop the walk where the run would fail."""
        message = str(failure["message"])
        before = f"{self._description(stage)}; then it " if self.is_leaving else ""
        self._visit(stage, f"{before}fails: {message}")
        raise _Stop("fails", message) from error

    def _description(self, stage: AnyStage) -> str:
        facts = self.walker.state["stage"][stage.id]
        return f"fails and is skipped: {facts['error']['message']}" if "error" in facts else self.description

    def _visit(
        self, stage: AnyStage, does: str, to: str | None = None, *, assumed: bool = False, instead: tuple[str, ...] = ()
    ) -> None:
        visit = Visit(stage=stage.id, type=kind_of(stage), does=does, to=to, assumed=assumed, instead=instead)
        self.visits.append(visit)


def _possible_edges(edges: list[Edge], lookup: Lookup) -> list[tuple[Edge, bool]]:
    """Return the edges that may be taken, each with whether it certainly fits. The list ends with the first such."""
    possible: list[tuple[Edge, bool]] = []
    for edge in edges:
        try:
            holds = all_hold(edge.conditions, lookup)
        except InvalidInput:
            if possible:  # if an earlier edge is taken, this one is not evaluated
                break
            raise
        if holds is not False:
            possible.append((edge, holds is True))
        if holds:
            break
    return possible


def _run_items(step: ForEach, value: object, lookup: Lookup) -> StageResult:
    items = items_of(step, lookup)
    if items is UNKNOWN:
        return StageResult(value, {"count": UNKNOWN, "failed": UNKNOWN})
    for index, item in enumerate(items[:TIMES_MAX]):
        try:
            describe(step.body, with_item(lookup, item, index))
        except InvalidInput:
            if step.body.on_failure != "skip":
                raise
    if not items:
        return StageResult([], {"count": 0, "failed": 0})
    return StageResult(value, {"count": len(items), "failed": UNKNOWN})


def _render_known(value: object, lookup: Lookup) -> Any:
    """Return a value as it would be stored in the state, with UNKNOWN where it depends on unknown values."""
    if isinstance(value, dict):
        return {key: _render_known(part, lookup) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_render_known(part, lookup) for part in value]
    return render(value, lookup) if isinstance(value, str) and is_alone(value) else render_or_unknown(value, lookup)


def describe(stage: AnyStage, lookup: Lookup) -> str:
    """Return what the stage would do. Raises InvalidInput if a reference would make a run fail."""
    match stage:
        case Call():
            return f"calls {stage.function}({_arguments(_fill_known(stage.arguments, lookup))})"
        case Effect():
            _fill_known(stage.key, lookup)
            undo = f", undone by {stage.compensation}" if stage.compensation else ""
            return f"performs {stage.function}({_arguments(_fill_known(stage.arguments, lookup))}){undo}"
        case Ask():
            people = [stage.who, stage.not_by, [level.who for level in stage.escalate]]
            _fill_known([stage.show, *people, stage.expired], lookup)
            names = ", ".join(field.name for field in form_of_fields(stage.fields).fields)
            return f"asks {_fill_known(stage.prompt, lookup)!r} ({names})"
        case Set():
            return f"sets {_arguments(_fill_known(stage.values, lookup))}"
        case ForEach():
            items = items_of(stage, lookup)
            count = "an unknown number of" if items is UNKNOWN else len(items)
            return f"performs {kind_of(stage.body)} for each of {count} items of {stage.items_from}"
        case LoopUntil():
            most = f", at most {stage.max_iterations} times" if stage.max_iterations else ""
            return f"repeats {kind_of(stage.body)} until its conditions hold{most}"
        case SubWorkflow():
            name = stage.workflow or (stage.graph.id if stage.graph else "")
            return f"runs workflow {name}({_arguments(_fill_known(stage.arguments, lookup))})"
        case Wait():
            return f"waits for event {_fill_known(stage.event, lookup)!r}"
        case Sleep():
            if stage.until is None:
                return f"sleeps {_fill_known(stage.seconds, lookup)} s"
            return f"sleeps until {_fill_known(stage.until, lookup)}"
        case End():
            if stage.failed is not None:
                return f"fails with {_fill_known(stage.failed, lookup)!r}"
            result = "the state" if stage.result is None else _text(_fill_known(stage.result, lookup))
            return f"ends with {result}"


def _fill_known(value: object, lookup: Lookup) -> Any:
    """Return a value with its references resolved; unknown ones are shown as `<path>`."""

    def known_or_path(path: str, /) -> object:
        found = lookup(path)
        return f"<{path}>" if has_unknown(found) else found

    return render(value, known_or_path)


def kind_of(stage: AnyStage) -> str:
    """Return the type of a stage, as in a definition."""
    return str(type(stage).__struct_config__.tag)


def _arguments(values: JsonObject) -> str:
    return ", ".join(
        f"{key}={repr(value) if isinstance(value, str) else _text(value)}" for key, value in values.items()
    )


def _text(value: object) -> str:
    """Return a value as text for display; a value without a text form is shown by its type."""
    try:
        return as_text(value)
    except InvalidInput:
        return f"<{type(value).__name__}>"
