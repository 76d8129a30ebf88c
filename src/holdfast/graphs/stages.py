"""What each type of stage does, through the run. The engine's plans are used directly, so that a function's own
arguments can have any name.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from holdfast.engine import asking, children, effects, parallel, steps, waiting
from holdfast.engine.definitions import refused
from holdfast.engine.failures import failure_of
from holdfast.engine.retry import Retry
from holdfast.engine.scope import check_key
from holdfast.errors import GateExpired, InvalidInput, RunError, StepFailed
from holdfast.graphs.definition import (
    AnyStage,
    Ask,
    Call,
    Effect,
    ForEach,
    Set,
    Sleep,
    SubWorkflow,
    Wait,
)
from holdfast.graphs.fields import schema_of_fields
from holdfast.graphs.findings import Known
from holdfast.graphs.paths import MISSING, find
from holdfast.graphs.structure import policy_of
from holdfast.graphs.templates import Lookup, Unresolved, render, render_text

_LATE: Final = object()
"""What a wait gives when its event did not come in time."""


class Done(msgspec.Struct):
    """What came of a stage: its answer, what else is told of it, and what it puts into the state besides."""

    value: Any = None
    facts: dict[str, Any] = {}
    writes: dict[str, Any] = {}


class Stager:
    """Does the stages of one graph, which is known by `name`."""

    def __init__(self, known: Known, name: str) -> None:
        self.known = known
        self.name = name

    def do(self, run: Any, step: AnyStage, name: str, lookup: Lookup) -> Done:
        """Do a stage, or the body of one; `name` is the stage's."""
        match step:
            case Call():
                return Done(self._call(run, step, name, lookup))
            case Effect():
                return Done(self._effect(run, step, name, lookup))
            case Ask():
                return Done(self._ask(run, step, name, lookup))
            case Set():
                return Done(writes={key: render(value, lookup) for key, value in step.values.items()})
            case ForEach():
                return self._for_each(run, step, name, lookup)
            case SubWorkflow():
                return Done(self._child(run, step, name, lookup))
            case Wait():
                return self._wait(run, step, lookup)
            case Sleep():
                self._sleep(run, step, lookup)
                return Done()
        raise AssertionError(f"a stage of type {type(step).__name__} is not done here")

    # --- functions ---------------------------------------------------------------------------------------------------

    def _function(self, run: Any, name: str) -> Callable[..., Any]:
        """A registered function. One this process does not know stops the run here, and fails it nowhere."""
        found = self.known.functions.get(name)
        if found is None:
            raise refused(run._exe, RunError(
                f"run {run.run_id!r} comes to function {name!r}, which is not registered in this process; put "
                "@app.function above it, or leave the run to a process that knows it"
            ))  # fmt: skip
        return found

    def _spec(self, run: Any, step: Call | Effect, name: str, lookup: Lookup, key: str | None) -> steps.Spec:
        fn = self._function(run, step.function)
        retry = policy_of(step.retry) or (Retry() if step.on_failure == "retry" else None)
        return steps.spec_of(fn, (), render(step.arguments, lookup), name, key, retry, step.timeout_s)

    def _call(self, run: Any, step: Call, name: str, lookup: Lookup) -> Any:
        spec = self._spec(run, step, name, lookup, None)
        return run._exe.codec.settled(run._do(steps.step(run._exe, run._scope, spec)))

    def _effect(self, run: Any, step: Effect, name: str, lookup: Lookup) -> Any:
        exe = run._exe
        key = None if step.key is None else _as_key(render_text(step.key, lookup))
        spec = self._spec(run, step, name, lookup, key)
        check = None if step.check is None else self._function(run, step.check)
        if step.compensation is not None and step.compensation not in self.known.undos:
            raise refused(exe, RunError(
                f"run {run.run_id!r} comes to an effect whose undo, {step.compensation!r}, is not registered in this "
                "process; put @app.undo above it, or leave the run to a process that knows it"
            ))  # fmt: skip
        world = effects.world_of(exe, step.compensation, step.in_doubt, check, None, step.function)
        return exe.codec.settled(run._do(effects.effect(exe, run._scope, spec, world)))

    # --- people, events, time ----------------------------------------------------------------------------------------

    def _ask(self, run: Any, step: Ask, name: str, lookup: Lookup) -> Any:
        prompt = render_text(step.prompt, lookup)
        plan = asking.ask(
            run._exe, run._scope, prompt, schema_of_fields(step.fields), show=render(step.show, lookup),
            who=render(list(step.who), lookup) or None, expires=step.expires_s, expired=render(step.expired, lookup),
            key=None, name=name,
        )  # fmt: skip
        return run._do(plan)

    def _wait(self, run: Any, step: Wait, lookup: Lookup) -> Done:
        event = render_text(step.event, lookup)
        found = run._do(waiting.wait_for(run._exe, run._scope, event, step.timeout_s, _LATE, None))
        late = found is _LATE
        return Done(render(step.default, lookup) if late else found, {"timed_out": late})

    def _sleep(self, run: Any, step: Sleep, lookup: Lookup) -> None:
        if step.until is not None:
            plan = waiting.sleep(run._exe, run._scope, None, waiting.moment_us(_moment(step.until, lookup)), None)
        else:
            seconds = render(step.seconds, lookup)
            plan = waiting.sleep(run._exe, run._scope, waiting.seconds_us("seconds", seconds), None, None)
        run._do(plan)

    # --- more than one -----------------------------------------------------------------------------------------------

    def _child(self, run: Any, step: SubWorkflow, name: str, lookup: Lookup) -> Any:
        given = render(step.arguments, lookup)
        exe, scope = run._exe, run._scope
        if step.graph is not None:
            workflow = f"{self.name}/{name}"
            self.known.declare(workflow, None)
            definition = {"v": 1, "graph": step.graph.as_data()}
            return run._do(children.child(exe, scope, workflow, workflow, (given,), {}, None, False, definition))
        known = self.known.workflows.get(step.workflow)
        if known is None:
            raise refused(exe, RunError(
                f"run {run.run_id!r} comes to workflow {step.workflow!r}, which is not registered in this process"
            ))  # fmt: skip
        args, kwargs = ((given,), {}) if known.is_declared else ((), given)
        return run._do(children.child(exe, scope, step.workflow, step.workflow, args, kwargs, None, False))

    def _for_each(self, run: Any, step: ForEach, name: str, lookup: Lookup) -> Done:
        items = lookup(step.items_from)
        if items is MISSING:
            raise Unresolved(step.items_from, step.items_from)
        if not isinstance(items, (list, tuple)):
            raise InvalidInput(f"for_each needs a list; at {step.items_from!r} is {type(items).__name__}")
        branches = [
            partial(self._item, step=step.body, name=name, lookup=_with_item(lookup, item, number))
            for number, item in enumerate(items)
        ]
        found = run._do(parallel.gather(run._exe, run._scope, branches, step.max_concurrent, None))
        errors = [{"index": number, **one.facts["error"]} for number, one in enumerate(found) if "error" in one.facts]
        facts = {"count": len(found), "failed": len(errors)} | ({"errors": errors} if errors else {})
        return Done([one.value for one in found], facts)

    def _item(self, run: Any, *, step: AnyStage, name: str, lookup: Lookup) -> Done:
        try:
            return self.do(run, step, name, lookup)
        except (StepFailed, GateExpired, InvalidInput) as error:
            if step.on_failure != "skip":
                raise
            failure = error.failure if isinstance(error, StepFailed) else failure_of(error)
            return Done(None, {"error": {key: failure[key] for key in ("type", "message")}})


def _as_key(text: str) -> str:
    """An effect's key. One that could be taken for a name made by the engine is told apart by a digest of it."""
    try:
        return check_key("key", text)
    except InvalidInput:
        if "[" not in text and not text[-1:].isdigit():  # empty, too long or with control characters
            raise
    digest = hashlib.blake2s(text.encode(), digest_size=8).hexdigest()
    return f"{text.replace('[', '(').replace(']', ')')} {digest}"


def _with_item(outer: Lookup, item: Any, index: int) -> Lookup:
    """A lookup that knows the item, too."""
    own = {"item": item, "index": index}

    def lookup(path: str, /) -> Any:
        return find(own, path) if path.split(".")[0] in own else outer(path)

    return lookup


def _moment(text: str, lookup: Lookup) -> dt.datetime:
    given = render(text, lookup)
    try:
        moment = given if isinstance(given, dt.datetime) else dt.datetime.fromisoformat(str(given))
    except ValueError:
        raise InvalidInput(f"until must be a moment as 2026-11-16T09:00:00+01:00, not {given!r}") from None
    if moment.tzinfo is None:
        raise InvalidInput(f"until needs a time zone: {given!r} has none")
    return moment
