"""The walk through a graph: the next stage, loop iterations, and the state.

A walker has a stage runner, which performs the stages: `stage_runner` in a run, `dry_run` without any effect. The walk
itself performs no I/O.

The state is one dict: the graph's variables, `input`, `goal`, the results stored under each `output_key`, under
`stage.<id>` the outcome of each stage, and under `graph` the progress of the walk:

    {"at": the current stage, "iterations": how many stages were begun, "looping": finished iterations of a loop}

In a dry run parts of the state are UNKNOWN.
"""

from __future__ import annotations

import copy
from typing import Any, Final, NoReturn, Protocol

import msgspec

from holdfast.engine.failures import failure_of
from holdfast.errors import Conflict, GateExpired, InvalidInput, NotFound, StepFailed
from holdfast.graphs.definition import AnyStage, Edge, End, ForEach, Graph, JsonObject, LoopUntil
from holdfast.graphs.expressions import MISSING, UNKNOWN, Lookup, Unresolved, all_hold, find, put
from holdfast.graphs.flow import Flow, output_key_of, start_of


def first_state(graph: Graph, given: JsonObject, variables: JsonObject, origin: JsonObject) -> JsonObject:
    """Return the state in which a run begins. `origin` is the progress of a run that another system started."""
    state = {**copy.deepcopy(graph.variables), **variables, **origin.get("state", {}), "input": given}
    if graph.goal is not None:
        state["goal"] = graph.goal
    state["stage"] = origin.get("stage", {})
    state["graph"] = {"at": origin.get("at", start_of(graph)), "iterations": origin.get("iterations", 0)}
    return state


def visible_state(state: JsonObject) -> JsonObject:
    """Return the state without the progress of the walk."""
    return {key: value for key, value in state.items() if key != "graph"}


def lookup_in(state: JsonObject) -> Lookup:
    """Return a lookup of paths in a state. It returns copies, so that only the walk changes the state."""

    def lookup(path: str, /) -> object:
        whole = {"state": visible_state(state)} if path.split(".")[0] == "state" else state
        return copy.deepcopy(_find(whole, path))

    return lookup


def with_item(outer: Lookup, item: object, index: int) -> Lookup:
    """Return a lookup that also resolves the item of a for_each."""
    own = {"item": item, "index": index}

    def lookup(path: str, /) -> object:
        return _find(own, path) if path.split(".")[0] in own else outer(path)

    return lookup


def items_of(stage: ForEach, lookup: Lookup) -> Any:
    """Return the items of a for_each; in a dry run they may be UNKNOWN. Raises InvalidInput if there is no list."""
    items = lookup(stage.items_from)
    if items is MISSING:
        raise Unresolved(stage.items_from, stage.items_from)
    if items is not UNKNOWN and not isinstance(items, (list, tuple)):
        raise InvalidInput(f"for_each needs a list, but {stage.items_from!r} is {type(items).__name__}")
    return items


def put_known(state: JsonObject, path: str, value: object) -> None:
    """Store a value at a path. A path inside an UNKNOWN value is ignored; the value remains unknown."""
    outer = path.rpartition(".")[0]
    if not outer or _find(state, outer) is not UNKNOWN:
        put(state, path, value)


def _find(state: JsonObject, path: str) -> object:
    """Return the value at a path: MISSING if there is none, UNKNOWN if it is inside an unknown value."""
    found = find(state, path)
    while found is MISSING and "." in path:
        path = path.rpartition(".")[0]
        if find(state, path) is UNKNOWN:
            return UNKNOWN
    return found


FAILURES: Final = (StepFailed, GateExpired, InvalidInput, Conflict, NotFound)
"""Exceptions that make a stage fail. All others stop the run, as in any workflow."""


class StageResult(msgspec.Struct):
    """The value that a stage returned, facts about it, and other values that it writes to the state."""

    value: Any = None
    facts: JsonObject = {}
    writes: JsonObject = {}


class StageRunner(Protocol):
    """Performs the stages of one walk. A step is a stage, or the body of a loop."""

    def enter(self, stage: AnyStage) -> None:
        """Called when the walk reaches a stage, and not again for later iterations of a loop."""

    def run_step(self, stage: AnyStage, step: AnyStage, lookup: Lookup) -> StageResult:
        """Perform a step of a stage. An exception in FAILURES makes the stage fail."""

    def finish_loop(self, stage: LoopUntil, satisfied: bool | None) -> None:
        """Called when a loop ends; `satisfied` is whether its conditions hold."""

    def choose_edge(self, edges: list[Edge], lookup: Lookup) -> Edge | None:
        """Return the edge by which the walk leaves the current stage; None if none fits."""

    def end(self, stage: AnyStage, lookup: Lookup) -> object:
        """Return the result of the walk, which ends at this stage."""

    def fail(self, stage: AnyStage, failure: JsonObject, error: Exception | None) -> NoReturn:
        """Make the walk fail at this stage."""


class Walker:
    """Advances from stage to stage. Its progress is in the state, so a walk can continue from a saved state."""

    def __init__(self, graph: Graph, state: JsonObject, runner: StageRunner) -> None:
        self.flow = Flow(graph)
        self.state = state
        self.runner = runner
        self.result: Any = None

    @property
    def at(self) -> str:
        """The id of the current stage."""
        return str(self.state["graph"]["at"])

    @property
    def stage(self) -> AnyStage:
        """The current stage."""
        return self.flow.stages[self.at]

    def advance(self) -> bool:
        """Perform the current stage, or one iteration of it. Return whether the walk has ended, with a result."""
        stage, progress = self.stage, self.state["graph"]
        if not isinstance(stage, End):
            if not (isinstance(stage, LoopUntil) and progress.get("looping")):
                self._enter(stage, progress)
            if not self._run(stage, progress):
                return False
            if not self.flow.ends_here(stage):
                progress["at"] = self._next(stage)
                return False
        self.result = self.runner.end(stage, lookup_in(self.state))
        return True

    def _enter(self, stage: AnyStage, progress: JsonObject) -> None:
        limit = self.flow.graph.max_iterations
        if limit is not None and progress["iterations"] >= limit:
            message = f"the run has performed {limit} stages, its max_iterations"
            self.runner.fail(stage, {"type": "TooManyIterations", "message": message}, None)
        progress["iterations"] += 1
        self.runner.enter(stage)

    def _run(self, stage: AnyStage, progress: JsonObject) -> bool:
        """Perform the stage, or one iteration of it. Return whether the stage has ended."""
        if isinstance(stage, LoopUntil):
            step, last = stage.body, progress.get("looping", 0)
        else:
            step, last = stage, self.state["stage"].get(stage.id, {}).get("iteration", 0)
        iteration = int(last) + 1
        try:
            result = self.runner.run_step(stage, step, lookup_in(self.state))
            fresh = self._state_after(stage, step, result, iteration)
            over = not isinstance(stage, LoopUntil) or self._is_over(stage, fresh, iteration)
        except FAILURES as error:
            progress.pop("looping", None)
            self._record_failure(stage, error, iteration)
            return True
        self.state.clear()  # a put may have removed older keys
        self.state.update(fresh)
        progress.pop("looping", None)
        if not over:
            progress["looping"] = iteration
        return over

    def _state_after(self, stage: AnyStage, step: AnyStage, result: StageResult, iteration: int) -> JsonObject:
        """Return the state after a step as a new dict. If a value cannot be stored, the old state is unchanged."""
        fresh = dict(self.state)
        facts = {"status": "succeeded", "succeeded": True, "iteration": iteration, **result.facts}
        fresh["stage"] = {**fresh["stage"], stage.id: {**facts, "answer": result.value}}
        for path, value in result.writes.items():
            put_known(fresh, path, value)
        if key := output_key_of(step):
            put_known(fresh, key, result.value)
        return fresh

    def _is_over(self, stage: LoopUntil, fresh: JsonObject, iteration: int) -> bool:
        """Whether a loop has ended. If it is unknown whether its conditions hold, it ends with an unknown count."""
        satisfied = all_hold(stage.until, lookup_in(fresh)) if stage.until else False
        if satisfied is False and (stage.max_iterations is None or iteration < stage.max_iterations):
            return False
        self.runner.finish_loop(stage, satisfied)
        facts = {"satisfied": satisfied} if satisfied is not None else {"satisfied": UNKNOWN, "iteration": UNKNOWN}
        fresh["stage"] = {**fresh["stage"], stage.id: {**fresh["stage"][stage.id], **facts}}
        return True

    def _record_failure(self, stage: AnyStage, error: Exception, iteration: int) -> None:
        """Record the failure of a stage in the state. Unless its on_failure is `skip`, the walk fails."""
        failure = error.failure if isinstance(error, StepFailed) else failure_of(error)
        status = "skipped" if stage.on_failure == "skip" else "failed"
        cause = {"type": failure["type"], "message": failure["message"]}
        facts = {"status": status, "succeeded": False, "iteration": iteration, "error": cause}
        self.state["stage"] = {**self.state["stage"], stage.id: facts}
        if status == "failed":
            self.runner.fail(stage, failure, error)

    def _next(self, stage: AnyStage) -> str:
        """Return the next stage. If no edge fits, the walk fails, even if on_failure is `skip`."""
        edges = self.flow.edges_from(stage.id)
        try:
            edge = self.runner.choose_edge(edges, lookup_in(self.state))
        except InvalidInput as error:
            self.runner.fail(stage, failure_of(error), error)
        if edge is None:
            message = f"none of its {len(edges)} edges fits the state; give one of them `default: true`"
            self.runner.fail(stage, {"type": "NoEdge", "message": message}, None)
        return edge.target
