"""The stage runner of a run, and the workflow function of declared workflows.

Each stage is a call of the run, made through the engine's plans. The walk is a durable loop: each turn performs one
stage, or one iteration of a loop, and ends with a checkpoint of the state whose `next_node` is the next stage. Finished
stages are never replayed, so a run of 100,000 stages resumes at once.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Final, NoReturn

from holdfast.engine import children, declared, effects, gates, parallel, steps
from holdfast.engine.declared import definition_of, pause_with
from holdfast.engine.effect_outcome import EffectSpec
from holdfast.engine.execution import RunContext
from holdfast.engine.failures import failure_of
from holdfast.engine.retry import Retry
from holdfast.engine.scope import check_key
from holdfast.errors import DefinitionChanged, GateExpired, InvalidInput, RunError, StageFailed, StepFailed
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
from holdfast.graphs.diff import changes
from holdfast.graphs.expressions import Lookup, render, render_text
from holdfast.graphs.fields import schema_of_fields
from holdfast.graphs.flow import choose_edge
from holdfast.graphs.load import from_stored, to_stored
from holdfast.graphs.structure import NameRegistry, UserFunction, moment_of, policy_of
from holdfast.graphs.walk import StageResult, Walker, first_state, items_of, visible_state, with_item

_LATE: Final = object()
"""Returned by a wait whose event did not arrive in time."""


def walk_run(run: RunContext, graph: Graph, known: NameRegistry, name: str) -> object:
    """Walk through the stages of a graph from the stage in the run's state. Return the run's result."""
    exe = run.execution
    walker = Walker(graph, exe.state, RunStages(run, known, name))
    for _ in run.loop():
        if walker.at not in walker.flow.stages:
            message = f"run {exe.run_id!r} is at stage {walker.at!r}, which is not in its definition"
            raise pause_with(exe, RunError(message))
        exe.next_node = walker.at
        if walker.advance():
            return walker.result
        exe.next_node = walker.at
    raise AssertionError("the loop of a run has no end of its own")


class RunStages:
    """Performs the stages of one graph, which is registered as `name`."""

    def __init__(self, run: RunContext, known: NameRegistry, name: str) -> None:
        self.run = run
        self.exe = run.execution
        self.known = known
        self.name = name

    # --- the walk ----------------------------------------------------------------------------------------------------

    def enter(self, stage: AnyStage) -> None:
        """Pause before a stage with a breakpoint."""
        if stage.breakpoint:
            reason = stage.breakpoint if isinstance(stage.breakpoint, str) else f"before {stage.id!r}"
            self.run.drive(declared.breakpoint_here(self.exe, self.run.scope, reason))

    def run_step(self, stage: AnyStage, step: AnyStage, lookup: Lookup) -> StageResult:
        """Perform a stage, or the body of a loop."""
        return self._do(self.run, step, stage.id, lookup)

    def finish_loop(self, stage: LoopUntil, satisfied: bool | None) -> None:
        """Let the entry of this turn name a loop that ended although its conditions do not hold."""
        self.exe.unsatisfied = stage.id if stage.until and not satisfied else ""

    def choose_edge(self, edges: list[Edge], lookup: Lookup) -> Edge | None:
        """Return the first edge whose conditions hold."""
        return choose_edge(edges, lookup)

    def end(self, stage: AnyStage, lookup: Lookup) -> object:
        """Return the result that an end stage defines, or else the state."""
        if not isinstance(stage, End):
            return visible_state(self.exe.state)
        try:
            if stage.failed is not None:
                raise StageFailed(stage.id, {"type": "Ended", "message": render_text(stage.failed, lookup)})
            return visible_state(self.exe.state) if stage.result is None else render(stage.result, lookup)
        except InvalidInput as error:
            raise StageFailed(stage.id, failure_of(error)) from error

    def fail(self, stage: AnyStage, failure: JsonObject, error: Exception | None) -> NoReturn:
        """Fail the run. If on_failure is `compensate`, undo its effects first."""
        then = ""
        if stage.on_failure == "compensate":
            report = self.run.drive(declared.compensate(self.exe, self.run.scope, self.known.undos))
            self.exe.state["compensation"] = report
            then = _describe_compensation(report)
        raise StageFailed(stage.id, failure, then) from error

    # --- one stage ---------------------------------------------------------------------------------------------------

    def _do(self, run: RunContext, step: AnyStage, name: str, lookup: Lookup) -> StageResult:
        """Perform a stage, or the body of one; `name` is the stage's id. A branch of a for_each has its own `run`."""
        match step:
            case Call():
                return StageResult(self._call(run, step, name, lookup))
            case Effect():
                return StageResult(self._effect(run, step, name, lookup))
            case Ask():
                return StageResult(self._ask(run, step, name, lookup))
            case Set():
                return StageResult(writes={key: render(value, lookup) for key, value in step.values.items()})
            case ForEach():
                return self._for_each(run, step, name, lookup)
            case SubWorkflow():
                return StageResult(self._child(run, step, name, lookup))
            case Wait():
                return self._wait(run, step, lookup)
            case Sleep():
                self._sleep(run, step, lookup)
                return StageResult()
        raise AssertionError(f"a stage of type {type(step).__name__} is not performed here")

    # --- functions ---------------------------------------------------------------------------------------------------

    def _pause(self, what: str, hint: str) -> RunError:
        """Pause the run: this process lacks a registration that another process may have."""
        message = f"run {self.exe.run_id!r} needs {what}, which is not registered in this process; {hint}"
        return pause_with(self.exe, RunError(f"{message}, or resume the run in a process that has it"))

    def _function(self, name: str) -> UserFunction:
        found = self.known.functions.get(name)
        if found is None:
            raise self._pause(f"function {name!r}", "put @app.function above it")
        return found

    def _spec(self, step: Call | Effect, name: str, lookup: Lookup, key: str | None) -> steps.StepSpec:
        fn = self._function(step.function)
        retry = policy_of(step.retry) or (Retry() if step.on_failure == "retry" else None)
        return steps.step_spec(
            fn, kwargs=render(step.arguments, lookup), name=name, key=key, retry=retry, timeout=step.timeout_s
        )

    def _call(self, run: RunContext, step: Call, name: str, lookup: Lookup) -> object:
        spec = self._spec(step, name, lookup, None)
        spec.joins = run is self.run  # the end of the turn is its commit
        return self.exe.codec.round_trip(run.drive(steps.step(self.exe, run.scope, spec)))

    def _effect(self, run: RunContext, step: Effect, name: str, lookup: Lookup) -> object:
        key = None if step.key is None else _as_key(render_text(step.key, lookup))
        spec = self._spec(step, name, lookup, key)
        check = None if step.check is None else self._function(step.check)
        if step.compensation is not None and step.compensation not in self.known.undos:
            raise self._pause(f"undo function {step.compensation!r}", "put @app.undo above it")
        options = EffectSpec(undo=step.compensation, in_doubt=step.in_doubt, check=check, tool=step.function)
        return self.exe.codec.round_trip(run.drive(effects.effect(self.exe, run.scope, spec, options)))

    # --- answers, events, time ---------------------------------------------------------------------------------------

    def _ask(self, run: RunContext, step: Ask, name: str, lookup: Lookup) -> object:
        spec = gates.AskSpec(
            prompt=render_text(step.prompt, lookup),
            fields=schema_of_fields(step.fields),
            show=render(step.show, lookup),
            who=render(list(step.who), lookup) or None,
            expires=step.expires_s,
            expired=render(step.expired, lookup),
            name=name,
        )
        escalate = [(level.after_s, render(list(level.who), lookup)) for level in step.escalate]
        spec.set_rules(step.approvals, render(list(step.not_by), lookup), escalate)
        return run.drive(gates.ask(self.exe, run.scope, spec))

    def _wait(self, run: RunContext, step: Wait, lookup: Lookup) -> StageResult:
        event = render_text(step.event, lookup)
        found = run.drive(gates.wait_for(self.exe, run.scope, event, step.timeout_s, _LATE, None))
        late = found is _LATE
        return StageResult(render(step.default, lookup) if late else found, {"timed_out": late})

    def _sleep(self, run: RunContext, step: Sleep, lookup: Lookup) -> None:
        if step.until is not None:
            moment = moment_of(render(step.until, lookup))
            plan = gates.sleep(self.exe, run.scope, None, gates.moment_us(moment), None)
        else:
            seconds = render(step.seconds, lookup)
            plan = gates.sleep(self.exe, run.scope, gates.seconds_us("seconds", seconds), None, None)
        run.drive(plan)

    # --- children and branches ---------------------------------------------------------------------------------------

    def _child(self, run: RunContext, step: SubWorkflow, name: str, lookup: Lookup) -> object:
        given = render(step.arguments, lookup)
        if step.graph is not None:
            workflow = f"{self.name}/{name}"
            self.known.declare(workflow, None)
            spec = children.ChildSpec(workflow=workflow, name=workflow, args=(given,), definition=to_stored(step.graph))
            return run.drive(children.child(self.exe, run.scope, spec))
        known = self.known.workflows.get(step.workflow)
        if known is None:
            raise self._pause(f"workflow {step.workflow!r}", "register it")
        args, kwargs = ((given,), {}) if known.is_declared else ((), given)
        spec = children.ChildSpec(workflow=step.workflow, name=step.workflow, args=args, kwargs=kwargs)
        return run.drive(children.child(self.exe, run.scope, spec))

    def _for_each(self, run: RunContext, step: ForEach, name: str, lookup: Lookup) -> StageResult:
        branches = [
            partial(self._item, step=step.body, name=name, lookup=with_item(lookup, item, index))
            for index, item in enumerate(items_of(step, lookup))
        ]
        how = parallel.ParallelSpec(step.max_concurrent)
        found = run.drive(parallel.gather(self.exe, run.scope, branches, how))
        errors = [{"index": index, **one.facts["error"]} for index, one in enumerate(found) if "error" in one.facts]
        facts = {"count": len(found), "failed": len(errors)} | ({"errors": errors} if errors else {})
        return StageResult([one.value for one in found], facts)

    def _item(self, run: RunContext, *, step: AnyStage, name: str, lookup: Lookup) -> StageResult:
        try:
            return self._do(run, step, name, lookup)
        except (StepFailed, GateExpired, InvalidInput) as error:
            if step.on_failure != "skip":
                raise
            failure = error.failure if isinstance(error, StepFailed) else failure_of(error)
            return StageResult(None, {"error": {key: failure[key] for key in ("type", "message")}})


def _describe_compensation(report: dict[str, list[str]]) -> str:
    undone, failed, left, doubt = (len(report[name]) for name in ("undone", "failed", "left", "in_doubt"))
    text = "1 effect was undone" if undone == 1 else f"{undone} effects were undone"
    text += f", {failed} could not be" if failed else ""
    text += f", {left} {'has' if left == 1 else 'have'} no compensation" if left else ""
    return text + (f", {doubt} {'is' if doubt == 1 else 'are'} in doubt" if doubt else "")


def _as_key(text: str) -> str:
    """Return an effect's key. One that could collide with names of the engine gets a digest instead of brackets."""
    try:
        return check_key("key", text)
    except InvalidInput:
        if "[" not in text and not text[-1:].isdigit():  # empty, too long or with control characters
            raise
    digest = hashlib.blake2s(text.encode(), digest_size=8).hexdigest()
    return f"{text.replace('[', '(').replace(']', ')')} {digest}"


class GraphWorkflow:
    """The function that the runs of one declared workflow execute.

    `graph` is the one that this process has registered under the name; None if each run has its own.
    """

    def __init__(self, known: NameRegistry, name: str, graph: Graph | None) -> None:
        self.known = known
        self.graph = graph
        self.__name__ = self.__qualname__ = name
        self.__doc__ = graph.description if graph is not None else None

    def __call__(
        self,
        run: RunContext,
        input: JsonObject | None = None,  # noqa: A002 - the public name
        *,
        variables: JsonObject | None = None,
        resume: JsonObject | None = None,
    ) -> object:
        """Walk through the run's definition. `resume` is the progress of an imported run."""
        graph = self._definition(run)
        state = run.execution.state
        state.clear()
        state.update(first_state(graph, input or {}, variables or {}, _origin(resume) if resume else {}))
        return walk_run(run, graph, self.known, self.__name__)

    def _definition(self, run: RunContext) -> Graph:
        """Return the run's own definition, which must not differ from the one this process has registered."""
        exe = run.execution
        registered = None if self.graph is None else to_stored(self.graph)
        given = definition_of(exe, run.scope, registered)
        try:
            graph = from_stored(given, exe.run_id)
        except (RunError, InvalidInput) as error:
            raise pause_with(exe, error if isinstance(error, RunError) else RunError(str(error))) from error
        if registered is not None and given != registered:
            found = changes(given["graph"], registered["graph"])
            if found:
                raise pause_with(exe, DefinitionChanged(exe.run_id, self.__name__, found))
        return graph


def _origin(resume: JsonObject) -> JsonObject:
    """Return the progress of an imported run: the stage `at`, after `step` stages, with their `scope`."""
    scope = dict(resume["scope"])
    scope.pop("input", None)
    outputs = scope.pop("node_outputs", None) or {}
    done = {"status": "succeeded", "succeeded": True, "iteration": 1}
    stage = {name: {**done, "answer": output} for name, output in outputs.items()}
    return {"state": scope, "stage": stage, "iterations": resume["step"], "at": resume["at"]}
