"""A dry run: walk through a definition without doing anything. No function is called, nothing is stored.

What a function would give is not known, so it can be said beforehand (`results={"price": {"amount": 40}}`, and
`answers=` for gates). Where a condition depends on what is not known, the walk takes the first edge that may fit and
says that it assumed so; an edge that was assumed once is not assumed again: if there is no other, the walk stops there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.errors import InvalidInput
from holdfast.graphs.conditions import UNKNOWN, all_hold, rendered
from holdfast.graphs.definition import AnyStage, Edge, End, ForEach, Graph, LoopUntil, Set, Sleep, Wait
from holdfast.graphs.depth import is_deeper
from holdfast.graphs.doing import items_of, kind_of, look, said, with_item
from holdfast.graphs.fields import form_of_fields
from holdfast.graphs.findings import refuse_errors
from holdfast.graphs.flow import Flow
from holdfast.graphs.paths import put
from holdfast.graphs.running import first_state, visible
from holdfast.graphs.structure import structure
from holdfast.graphs.templates import Lookup, is_alone, render
from holdfast.limits import DEPTH_MAX
from holdfast.model.views import View

VISITS_MAX: Final = 10_000
"""How often the walk comes to a stage it has been at before; a run without a bound may go round for ever."""

TIMES_MAX: Final = 1_000
"""How often the walk does the body of a loop, and for how many items that of a for_each."""


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
    refuse_errors(graph.id, structure(graph))
    told = {**(results or {}), **(answers or {})}
    unknown = sorted(set(told) - {stage.id for stage in graph.stages})
    if unknown:
        raise InvalidInput(f"there is no stage {unknown[0]!r} to give a result or an answer for")
    if is_deeper([given, told], DEPTH_MAX):
        raise InvalidInput(f"what is given is nested deeper than {DEPTH_MAX}")
    if graph.input is not None:
        checked = form_of_fields(graph.input).check(dict(given))
        if checked.problems:
            raise InvalidInput("the input does not fit: " + "; ".join(map(str, checked.problems)))
        given = checked.value
    return _DryWalk(graph, dict(given), told).to_the_end()


class _Over(Exception):
    """The walk is over before it came to an end."""

    def __init__(self, outcome: str, why: str) -> None:
        super().__init__(why)
        self.outcome = outcome


class _DryWalk:
    """A walk. It does as `holdfast.graphs.running` does, with a state in which parts are not known."""

    def __init__(self, graph: Graph, given: dict[str, Any], told: dict[str, Any]) -> None:
        self.flow = Flow(graph)
        self.told = told
        self.state = first_state(graph, given, {}, {})
        self.visits: list[Visit] = []
        self.assumed: set[tuple[str, str]] = set()

    def lookup(self, path: str, /) -> Any:
        state = {"state": visible(self.state)} if path.split(".")[0] == "state" else self.state
        return look(state, path)

    # --- from stage to stage -----------------------------------------------------------------------------------------

    def to_the_end(self) -> DryRun:
        stage_id: str | None = self.state["graph"]["at"]
        most = VISITS_MAX + len(self.flow.stages)
        while stage_id is not None:
            stage = self.flow.stages[stage_id]
            if len(self.visits) >= most:
                return self._came_to("stops", f"it has gone through {most} stages and is at no end")
            try:
                stage_id = self._visited(stage)
            except InvalidInput as error:
                self.visits.append(_visit(stage, f"fails: {error}"))
                return self._came_to("fails", str(error))
            except _Over as over:
                return self._came_to(over.outcome, str(over))
        last = self.flow.stages[self.visits[-1].stage]
        failed = isinstance(last, End) and last.failed is not None
        return self._came_to("fails" if failed else "ends", self.visits[-1].does if failed else "")

    def _came_to(self, outcome: str, why: str = "") -> DryRun:
        return DryRun(visits=tuple(self.visits), outcome=outcome, why=why)

    def _visited(self, stage: AnyStage) -> str | None:
        """Do as if the stage was done; the stage that comes next. InvalidInput if the run fails here."""
        if isinstance(stage, End):
            self.visits.append(_visit(stage, said(stage, self.lookup)))
            return None
        self._count()
        does = self._done_or_skipped(stage)
        if self.flow.ends_here(stage):
            self.visits.append(_visit(stage, does))
            return None
        try:
            edge, others, sure = self._edge(stage)
        except InvalidInput as error:
            self.visits.append(_visit(stage, f"{does}; then it fails: {error}"))
            raise _Over("fails", str(error)) from None
        assumed = not sure or bool(others)
        self.visits.append(_visit(stage, does, to=edge.target, assumed=assumed, instead=tuple(others)))
        if assumed:
            if (stage.id, edge.target) in self.assumed:
                raise _Over("stops", f"it would come to {edge.target!r} again on an assumption")
            self.assumed.add((stage.id, edge.target))
        return edge.target

    def _count(self) -> None:
        limit, book = self.flow.graph.max_iterations, self.state["graph"]
        if limit is not None and book["iterations"] >= limit:
            raise InvalidInput(f"the run has gone through {limit} stages, which is its max_iterations")
        book["iterations"] += 1

    def _edge(self, stage: AnyStage) -> tuple[Edge, list[str], bool]:
        """The edge to take, where it may go instead, and whether its conditions surely hold."""
        may: list[tuple[Edge, bool]] = []
        for edge in self.flow.edges_from(stage.id):
            try:
                holds = all_hold(edge.conditions, self.lookup)
            except InvalidInput:
                if may:  # an edge before it may be taken, and then this one is not looked at
                    break
                raise
            if holds is not False:
                may.append((edge, bool(holds)))
            if holds:
                break
        fresh = [one for one in may if (stage.id, one[0].target) not in self.assumed] or may
        if not fresh:
            raise InvalidInput(f"no edge from {stage.id!r} fits")
        taken, sure = fresh[0]
        return taken, [edge.target for edge, _ in may if edge is not taken], sure

    # --- one stage ---------------------------------------------------------------------------------------------------

    def _done_or_skipped(self, stage: AnyStage) -> str:
        try:
            return self._looped(stage) if isinstance(stage, LoopUntil) else self._done(stage)
        except InvalidInput as error:
            if stage.on_failure != "skip":
                raise
            brief = {"type": type(error).__name__, "message": str(error)}
            iteration = 1 if isinstance(stage, LoopUntil) else self._times(stage) + 1
            self._told(stage, {"status": "skipped", "succeeded": False, "iteration": iteration, "error": brief})
            return f"fails and is skipped: {error}"

    def _times(self, stage: AnyStage) -> int:
        return int(self.state["stage"].get(stage.id, {}).get("iteration", 0))

    def _done(self, stage: AnyStage) -> str:
        """Do as if the stage was done. What it would do, in words."""
        does = said(stage, self.lookup)
        self._step(stage, stage, self._times(stage) + 1)
        return does

    def _looped(self, stage: LoopUntil) -> str:
        """Do the body until its conditions hold, or may hold: then it is not known how often it is done."""
        does = said(stage, self.lookup)
        for iteration in range(1, TIMES_MAX + 1):
            said(stage.body, self.lookup)
            self._step(stage, stage.body, iteration)
            satisfied = all_hold(stage.until, self.lookup) if stage.until else False
            if satisfied is not False or iteration == stage.max_iterations:
                facts = self.state["stage"][stage.id]
                facts["satisfied"] = UNKNOWN if satisfied is None else satisfied
                facts["iteration"] = UNKNOWN if satisfied is None else iteration
                return does
        self.visits.append(_visit(stage, does))
        raise _Over("stops", f"the loop {stage.id!r} does not end in {TIMES_MAX} iterations")

    def _step(self, stage: AnyStage, step: AnyStage, iteration: int) -> None:
        """What is in the state after the stage, or after one iteration of its body."""
        value = self.told.get(stage.id, None if isinstance(step, (Set, Sleep)) else UNKNOWN)
        facts: dict[str, Any] = {}
        if isinstance(step, Wait):
            facts = {"timed_out": UNKNOWN if value is UNKNOWN else False}
        if isinstance(step, ForEach):
            items = items_of(step, self.lookup)
            facts = {"count": UNKNOWN if items is UNKNOWN else len(items), "failed": UNKNOWN}
            for number, item in enumerate(items[:TIMES_MAX] if items is not UNKNOWN else ()):
                self._item(step.body, with_item(self.lookup, item, number))
            value, facts = (value, facts) if items else ([], {"count": 0, "failed": 0})
        good = {"status": "succeeded", "succeeded": True, "iteration": iteration}
        writes = _rendered(step.values, self.lookup) if isinstance(step, Set) else {}
        self._told(stage, {**good, **facts, "answer": value})
        key = getattr(step, "output_key", "")
        for path, part in (*writes.items(), *(((key, value),) if key else ())):
            self._put(path, part)

    def _item(self, body: AnyStage, lookup: Lookup) -> None:
        try:
            said(body, lookup)
        except InvalidInput:
            if body.on_failure != "skip":
                raise

    def _told(self, stage: AnyStage, facts: dict[str, Any]) -> None:
        self.state["stage"][stage.id] = facts

    def _put(self, key: str, value: Any) -> None:
        outer = key.rpartition(".")[0]
        if not outer or self.lookup(outer) is not UNKNOWN:  # what is put into the unknown is not known either
            put(self.state, key, value)


def _rendered(value: Any, lookup: Lookup) -> Any:
    """A value as it would be put into the state, with UNKNOWN where that depends on what is not known."""
    if isinstance(value, dict):
        return {key: _rendered(part, lookup) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rendered(part, lookup) for part in value]
    return render(value, lookup) if isinstance(value, str) and is_alone(value) else rendered(value, lookup)


def _visit(stage: AnyStage, does: str, **more: Any) -> Visit:
    return Visit(stage=stage.id, type=kind_of(stage), does=does, **more)
