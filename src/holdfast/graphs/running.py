"""Running a declared workflow: one workflow function for all of them, on the engine that all workflows have.

The run is a durable loop (`run.loop`): each turn does one stage, and the end of each turn is a checkpoint of the state,
whose `next_node` is the stage that comes next. So finished stages are never replayed, and a run that has gone through
100,000 stages resumes at once. What the loop needs to know of itself is in the state as well, under `graph`:

    {"at": the stage to do, "iterations": how many stages were begun}
"""

from __future__ import annotations

import copy
from typing import Any, Final, NoReturn

from holdfast.engine import breakpoints, compensating
from holdfast.engine.definitions import definition_of, refused
from holdfast.engine.failures import failure_of
from holdfast.errors import (
    Conflict,
    DefinitionChanged,
    GateExpired,
    InvalidInput,
    NotFound,
    RunError,
    StageFailed,
    StepFailed,
)
from holdfast.graphs.changes import changes
from holdfast.graphs.conditions import all_hold
from holdfast.graphs.definition import AnyStage, End, Graph, LoopUntil
from holdfast.graphs.findings import Known
from holdfast.graphs.flow import Flow, start_of
from holdfast.graphs.paths import find, put
from holdfast.graphs.stages import Done, Stager
from holdfast.graphs.templates import Lookup, render, render_text

VERSION: Final = 1
FAILURES: Final = (StepFailed, GateExpired, InvalidInput, Conflict, NotFound)
"""What makes a stage fail. Everything else stops the run as it stops any workflow."""


def stored(graph: Graph) -> dict[str, Any]:
    """A definition as it travels with a run."""
    return {"v": VERSION, "graph": graph.as_data()}


def read_stored(data: Any, run_id: str) -> Graph:
    """The definition that travels with a run."""
    if not isinstance(data, dict) or data.get("v") != VERSION:
        raise RunError(f"run {run_id!r} has a definition this version cannot read")
    return Graph.from_data(data["graph"])


class Runner:
    """The workflow function of declared workflows. `graph`: what this process has registered under the name."""

    def __init__(self, known: Known, name: str, graph: Graph | None) -> None:
        self.known = known
        self.graph = graph
        self.__name__ = self.__qualname__ = name
        self.__doc__ = graph.description if graph is not None else None

    def __call__(
        self,
        run: Any,
        input: dict[str, Any] | None = None,  # noqa: A002 - the word its users know
        *,
        variables: dict[str, Any] | None = None,
        resume: dict[str, Any] | None = None,
    ) -> Any:
        graph = self._settled(run)
        run.state.clear()
        run.state.update(first_state(graph, input or {}, variables or {}, _origin(resume) if resume else {}))
        return walk(run, graph, self.known, self.__name__)

    def _settled(self, run: Any) -> Graph:
        """The run's own definition, which must not be another than the one this process has."""
        exe = run._exe
        registered = None if self.graph is None else stored(self.graph)
        given = definition_of(exe, run._scope, registered)
        try:
            graph = read_stored(given, exe.run_id)
        except (RunError, InvalidInput) as error:
            raise refused(exe, error if isinstance(error, RunError) else RunError(str(error))) from error
        if registered is not None and given != registered:
            found = changes(given["graph"], registered["graph"])
            if found:
                raise refused(exe, DefinitionChanged(exe.run_id, self.__name__, found))
        return graph


def first_state(
    graph: Graph, given: dict[str, Any], variables: dict[str, Any], origin: dict[str, Any]
) -> dict[str, Any]:
    """The state a run begins with. `origin`: where one that began elsewhere stands."""
    state = {**copy.deepcopy(graph.variables), **variables, **origin.get("state", {}), "input": given}
    if graph.goal is not None:
        state["goal"] = graph.goal
    state["stage"] = origin.get("stage", {})
    state["graph"] = {"at": origin.get("at", start_of(graph)), "iterations": origin.get("iterations", 0)}
    return state


def _origin(resume: dict[str, Any]) -> dict[str, Any]:
    """Where a run that was imported stands: `at` a stage, after `step` stages, with the `scope` they left."""
    scope = dict(resume["scope"])
    scope.pop("input", None)
    outputs = scope.pop("node_outputs", None) or {}
    done = {"status": "succeeded", "succeeded": True, "iteration": 1}
    stage = {name: {**done, "answer": output} for name, output in outputs.items()}
    return {"state": scope, "stage": stage, "iterations": resume["step"], "at": resume["at"]}


def visible(state: dict[str, Any]) -> dict[str, Any]:
    """The state without what the run needs to know of itself."""
    return {key: value for key, value in state.items() if key != "graph"}


def looked_up(state: dict[str, Any]) -> Lookup:
    """How paths are looked up in a state. What is found is a copy: nobody changes the state but the run."""

    def lookup(path: str, /) -> Any:
        if path == "state" or path.startswith("state."):
            whole = {"state": visible(state)}
            return copy.deepcopy(find(whole, path))
        return copy.deepcopy(find(state, path))

    return lookup


def walk(run: Any, graph: Graph, known: Known, name: str) -> Any:
    """Go through the stages of a graph from where `run.state` says; the run's result."""
    return _Walk(run, graph, known, name).to_the_end()


class _Walk:
    """One execution of a run, from stage to stage."""

    def __init__(self, run: Any, graph: Graph, known: Known, name: str) -> None:
        self.run = run
        self.exe = run._exe
        self.graph = graph
        self.known = known
        self.flow = Flow(graph)
        self.stager = Stager(known, name)

    def to_the_end(self) -> Any:
        for _ in self.run.loop():
            state = self.exe.state
            book = state["graph"]
            stage = self._stage(book["at"])
            self.exe.next_node = stage.id
            if isinstance(stage, End):
                return self._ended(stage)
            if self._begins(stage, book):
                self._begin(stage, book)
            if self._does(stage):
                if self.flow.ends_here(stage):
                    return visible(state)
                book["at"] = self._next(stage)
            self.exe.next_node = book["at"]
        raise AssertionError("the loop of a run has no end of its own")

    def _stage(self, stage_id: str) -> AnyStage:
        stage = self.flow.stage(stage_id)
        if stage is None:
            raise refused(self.exe, RunError(
                f"run {self.exe.run_id!r} stands at stage {stage_id!r}, which its definition does not have"
            ))  # fmt: skip
        return stage

    def _begins(self, stage: AnyStage, book: dict[str, Any]) -> bool:
        """Whether the run comes to the stage now, and is not in the middle of its iterations."""
        return not (isinstance(stage, LoopUntil) and book.get("looping"))

    def _begin(self, stage: AnyStage, book: dict[str, Any]) -> None:
        limit = self.graph.max_iterations
        if limit is not None and book["iterations"] >= limit:
            message = f"the run has gone through {limit} stages, which is its max_iterations"
            self._fail(stage, {"type": "TooManyIterations", "message": message}, None)
        book["iterations"] += 1
        if stage.breakpoint:
            reason = stage.breakpoint if isinstance(stage.breakpoint, str) else f"before {stage.id!r}"
            self.run._do(breakpoints.breakpoint_here(self.exe, self.run._scope, reason))

    # --- one stage ---------------------------------------------------------------------------------------------------

    def _does(self, stage: AnyStage) -> bool:
        """Do the stage, or one iteration of it. Whether it is over."""
        state = self.exe.state
        book = state["graph"]
        iteration = book.get("looping", 0) + 1 if isinstance(stage, LoopUntil) else self._times(stage) + 1
        step = stage.body if isinstance(stage, LoopUntil) else stage
        try:
            done = self.stager.do(self.run, step, stage.id, looked_up(state))
            fresh = self._told(stage, step, done, iteration)
            over = not isinstance(stage, LoopUntil) or self._is_over(stage, fresh, iteration)
        except FAILURES as error:
            book.pop("looping", None)
            self._failed(stage, error, iteration)
            return True
        state.clear()  # what was put may have taken the place of older keys
        state.update(fresh)
        if over:
            book.pop("looping", None)
        else:
            book["looping"] = iteration
        return over

    def _times(self, stage: AnyStage) -> int:
        return int(self.exe.state["stage"].get(stage.id, {}).get("iteration", 0))

    def _is_over(self, stage: LoopUntil, fresh: dict[str, Any], iteration: int) -> bool:
        """Whether a loop has come to its end; then it is told whether its conditions hold."""
        satisfied = bool(stage.until) and bool(all_hold(stage.until, looked_up(fresh)))
        if not satisfied and (stage.max_iterations is None or iteration < stage.max_iterations):
            return False
        self.exe.unsatisfied = stage.id if stage.until and not satisfied else ""
        facts = {**fresh["stage"][stage.id], "satisfied": satisfied}
        fresh["stage"] = {**fresh["stage"], stage.id: facts}
        return True

    def _told(self, stage: AnyStage, step: AnyStage, done: Done, iteration: int) -> dict[str, Any]:
        """The state after a stage. What was there is not changed: if something cannot be put, nothing is."""
        fresh = dict(self.exe.state)
        facts = {"status": "succeeded", "succeeded": True, "iteration": iteration, **done.facts}
        fresh["stage"] = {**fresh["stage"], stage.id: {**facts, "answer": done.value}}
        for key, value in done.writes.items():
            put(fresh, key, value)
        key = getattr(step, "output_key", "") or getattr(stage, "output_key", "")
        if key:
            put(fresh, key, done.value)
        return fresh

    def _failed(self, stage: AnyStage, error: Exception, iteration: int) -> None:
        """The stage failed: what its policy says."""
        failure = error.failure if isinstance(error, StepFailed) else failure_of(error)
        brief = {name: failure[name] for name in ("type", "message")}
        state = self.exe.state
        facts = {"status": "failed", "succeeded": False, "iteration": iteration, "error": brief}
        state["stage"] = {**state["stage"], stage.id: facts}
        if stage.on_failure == "skip":
            facts["status"] = "skipped"
            return
        self._fail(stage, failure, error)

    def _fail(self, stage: AnyStage, failure: dict[str, Any], error: Exception | None) -> NoReturn:
        """The run fails here; what it did is undone first, if the stage says so."""
        then = ""
        if stage.on_failure == "compensate":
            plan = compensating.compensate(self.exe, self.run._scope, self.known.undos)
            report = self.exe.state["compensation"] = self.run._do(plan)
            then = _compensated(report)
        raise StageFailed(stage.id, failure, then) from error

    def _next(self, stage: AnyStage) -> str:
        """The stage that comes next. If none can be found the run fails: there is nothing to skip to."""
        try:
            edge = self.flow.chosen(stage.id, looked_up(self.exe.state))
        except InvalidInput as error:
            self._fail(stage, failure_of(error), error)
        if edge is None:
            count = len(self.flow.edges_from(stage.id))
            message = f"none of its {count} edges fits the state; give one of them `default: true`"
            self._fail(stage, {"type": "NoEdge", "message": message}, None)
        return edge.target

    def _ended(self, stage: End) -> Any:
        lookup = looked_up(self.exe.state)
        try:
            if stage.failed is not None:
                raise StageFailed(stage.id, {"type": "Ended", "message": render_text(stage.failed, lookup)})
            return visible(self.exe.state) if stage.result is None else render(stage.result, lookup)
        except InvalidInput as error:
            raise StageFailed(stage.id, failure_of(error)) from error


def _compensated(report: dict[str, list[str]]) -> str:
    undone, failed, left, doubt = (len(report[name]) for name in ("undone", "failed", "left", "in_doubt"))
    said = "1 effect was undone" if undone == 1 else f"{undone} effects were undone"
    said += f", {failed} could not be" if failed else ""
    said += f", {left} {'has' if left == 1 else 'have'} no compensation" if left else ""
    return said + (f", {doubt} {'is' if doubt == 1 else 'are'} in doubt" if doubt else "")
