"""What `Run` and `AsyncRun` share, the unawaited calls of an `AsyncRun`, and `current_run`.

A call of an `AsyncRun` without `await` does nothing, and code that takes it for its result would continue with a wrong
value. So every use of such a call as a value raises MissingAwait, and an execution that drops one fails. Where Python
itself refuses the call with a TypeError, as `json.dumps` does, the run fails with MissingAwait all the same.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import datetime as dt
import functools
import sys
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Required, TypedDict, TypeVar

from holdfast.drivers import Plan
from holdfast.engine.approvals import Escalate
from holdfast.engine.children import ChildSpec, child
from holdfast.engine.execution import Execution
from holdfast.engine.retry import Retry
from holdfast.engine.scope import Scope
from holdfast.errors import InvalidInput, MissingAwait, UnknownWorkflow

if TYPE_CHECKING:
    from holdfast.runtime.async_run import AsyncRun
    from holdfast.runtime.interpreter import Interpreter
    from holdfast.runtime.run import Run

R = TypeVar("R")
DoubtPolicy = Literal["ask", "retry", "fail"]
Errors = type[BaseException] | tuple[type[BaseException], ...]
RetryLike = Retry | int | None
Call = Coroutine[Any, Any, R]
"""A call of an `AsyncRun`, to be awaited for its result."""
MakePlan = Callable[[Execution, Scope], Plan[R]]
_ACTS: Final = frozenset({"effect", "child", "send", "transaction"})
_UNRECORDED: Final = frozenset({"log", "version", "run_agent", "run_graph"})
"""Calls that need no record of their own, or make other calls."""
_TEXT_MAX: Final = 60
_DEPTH_MAX: Final = 8


class AskOptions(TypedDict, total=False):
    """The options of `run.ask`."""

    show: object
    who: str | Iterable[str] | None
    expires: float | dt.timedelta | None
    expired: object
    approvals: int
    not_by: str | Iterable[str] | None
    escalate: Escalate | None
    key: str | None


class GatherOptions(TypedDict, total=False):
    """The options of `run.gather` that raises the first error."""

    limit: int | None
    key: str | None
    return_exceptions: Literal[False]


class GatherAllOptions(TypedDict, total=False):
    """The options of `run.gather` that returns errors."""

    limit: int | None
    key: str | None
    return_exceptions: Required[Literal[True]]


class _StepOptions(TypedDict, total=False):
    name: str | None
    retry: RetryLike
    timeout: float | None


class MapOptions(_StepOptions, GatherOptions):
    """The options of `run.map` that raises the first error."""


class MapAllOptions(_StepOptions, GatherAllOptions):
    """The options of `run.map` that returns errors."""


class RunBase:
    """The facts of a run, and its state."""

    def __init__(self, interpreter: Interpreter, scope: Scope) -> None:
        self._interpreter = interpreter
        self.execution = interpreter.exe
        """What all calls of this execution share, for code that adds its own kinds of calls, such as graphs."""
        self.scope = scope
        """The scope of the next call."""

    def _check_waiting(self, *, acts: bool) -> None:
        """Raise if the call is made because the run waits: in a `finally` block, or after Suspended was swallowed.

        `acts`: the call affects other runs or the outside world. Other calls may be made beside a waiting keyed call.
        """
        self.execution.check_unwinding(sys.exc_info()[1])
        if acts and self.scope.parked is not None:
            raise self.scope.parked

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.execution.run_id

    @property
    def attempt(self) -> int:
        """The number of this execution of the run, from 1. Each resume increases it."""
        return self.execution.attempt

    @property
    def state(self) -> dict[str, Any]:
        """The run's own dict. It is saved by `checkpoint`, at the end of each loop turn, and when the run waits."""
        return self.execution.state

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        if not isinstance(state, dict):
            raise InvalidInput(f"run.state must be a dict, not {type(state).__name__}; put the value under a key of it")
        if state is not self.execution.state:
            content = dict(state)
            self.execution.state.clear()
            self.execution.state.update(content)

    def _plan_child(
        self, workflow: object, args: tuple[object, ...], kwargs: dict[str, object], key: str | None, **options: bool
    ) -> Plan[Any]:
        """The plan of `run.child`. The workflow is given by its name, as a `Workflow` or as its function."""
        own_name: str = getattr(workflow, "name", getattr(workflow, "__name__", ""))
        name = workflow if isinstance(workflow, str) else own_name
        spec = ChildSpec(workflow=workflow, name=name, args=args, kwargs=kwargs, key=key, **options)
        app = self._interpreter.app
        known = app.known(name)
        is_unknown = known is None and isinstance(workflow, str) and not spec.enqueue
        unknown = UnknownWorkflow(name, list(app.registry.workflows), may_enqueue=True) if is_unknown else None
        result = yield from child(self.execution, self.scope, spec, unknown)
        return result if spec.detached or known is None else known.typed_result(result)


class UnawaitedCall(Call[R]):
    """A call to be awaited, by `await`, a task or `asyncio.gather`. It begins, and gets its identity, only then."""

    __slots__ = ("__weakref__", "_coroutine", "_error", "_exe", "_function", "_plan", "_run")

    def __init__(
        self,
        run: AsyncRun,
        name: str,
        subject: object,
        plan: MakePlan[R] | None,
        values: Iterable[object] = (),
        *,
        function: Callable[[], Call[R]] | None = None,
        keyed: bool = False,
    ) -> None:
        """Errors name the call by `subject`; `values` are the arguments that must not be unawaited calls.

        `function` instead of a plan: a function of an adapter, as `run_agent`, that makes calls of the run.
        """
        frame = sys._getframe(2)  # the caller of the run's method
        self._error = functools.partial(_missing_await, name, subject, frame.f_code.co_filename, frame.f_lineno)
        self._exe = exe = run.execution
        self._run = run
        self._plan = plan
        self._function = function
        self._coroutine: Call[R] | None = None
        refusal = _refusal_inside(name, keyed=keyed)
        if refusal is not None:
            exe.record.fatal = exe.record.fatal or refusal
            raise refusal
        run._check_waiting(acts=name in _ACTS)
        given = _find_unawaited(list(values), 0) if exe.unawaited else None
        exe.unawaited[id(self)] = self._error
        if given is not None:
            raise given._error(f"it was passed to run.{name}")

    def _begin(self) -> Call[R]:
        if self._coroutine is None:
            self._exe.unawaited.pop(id(self), None)
            if self._function is not None:
                self._coroutine = self._function()
            else:
                assert self._plan is not None
                self._coroutine = self._run.drive(self._plan(self._exe, self._run.scope))
        return self._coroutine

    def __await__(self) -> Generator[Any, Any, R]:
        return self._begin().__await__()

    def send(self, value: object) -> object:
        return self._begin().send(value)

    def throw(self, *error: Any) -> object:
        return self._begin().throw(*error)

    def close(self) -> None:
        """Abandon the call on purpose; that is not a missing await."""
        self._begin().close()

    def __del__(self) -> None:
        missing = self._exe.unawaited.pop(id(self), None)
        if missing is not None and self._exe.missing_await is None:
            self._exe.missing_await = self._error()

    def __repr__(self) -> str:
        name, _, file, line = self._error.args
        state = "not awaited yet" if self._coroutine is None else "awaited"
        return f"<run.{name} at {file}:{line}, {state}>"

    def __bool__(self) -> NoReturn:
        raise self._error("the unawaited call was used as a condition")

    def __eq__(self, other: object) -> bool:
        return self is other or self._refuse_use()

    __hash__ = object.__hash__

    def _refuse_use(self, *_: object) -> NoReturn:
        raise self._error("the unawaited call was used as a value")

    def refuse_storage(self) -> None:
        """The encoder of values calls this; it knows the class only by this method."""
        if self._coroutine is None:
            raise self._error("the unawaited call was stored")

    def __getattr__(self, name: str) -> object:
        if name in ("__name__", "__qualname__"):
            return f"run.{self._error.args[0]}"
        if name.startswith(("cr_", "gi_", "__")):  # attributes that tasks and debuggers read of a coroutine
            return getattr(object.__getattribute__(self, "_coroutine"), name)
        raise self._error(f"the attribute {name!r} of the unawaited call was read")


_BINARY: Final = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or"
_OTHERS: Final = "lt le gt ge getitem setitem delitem iter len contains int float index neg pos abs invert round"
for _use in (*_BINARY.split(), *[f"r{operation}" for operation in _BINARY.split()], *_OTHERS.split()):
    setattr(UnawaitedCall, f"__{_use}__", UnawaitedCall._refuse_use)


def _find_unawaited(value: object, depth: int) -> UnawaitedCall[object] | None:
    """Find a call that is not awaited yet inside an argument."""
    if type(value) is UnawaitedCall:
        return value if value._coroutine is None else None
    if depth > _DEPTH_MAX:
        return None
    parts: Iterable[object] = ()
    if isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return next((found for part in parts if (found := _find_unawaited(part, depth + 1)) is not None), None)


def _missing_await(
    name: str, subject: object, file: str, line: int, problem: str = "the call was not executed"
) -> MissingAwait:
    text = repr(subject) if isinstance(subject, str) else getattr(subject, "__name__", "…")
    text = text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"
    label = name if name.startswith("run_") else f"run.{name}"  # run_agent is a function of an adapter
    return MissingAwait(f"{label}({text})", f"{file}:{line}", problem)


_recorded_call: contextvars.ContextVar[tuple[str, bool]] = contextvars.ContextVar("holdfast_recorded_call")
"""The name of the recorded call of an adapter that the calling code belongs to, and whether keys are allowed in it."""


@contextlib.contextmanager
def in_recorded_call(name: str, *, allows_keys: bool = False) -> Iterator[None]:
    """Refuse calls with a record or an answer: a resume would not repeat them, and the run would be Diverged.

    `allows_keys`: steps and effects with a key are allowed, because the adapter counts them as reached.
    """
    token = _recorded_call.set((name, allows_keys))
    try:
        yield
    finally:
        _recorded_call.reset(token)


def _refusal_inside(name: str, *, keyed: bool) -> InvalidInput | None:
    """Why the calling code may not make this call of the run, if it is inside a recorded call of an adapter."""
    outer, allows_keys = _recorded_call.get(("", False))
    if not outer or name in _UNRECORDED or (allows_keys and keyed):
        return None
    reason, way_out = "so its record or answer would be lost", 'give that tool the policy record="none"'
    if allows_keys:
        reason, way_out = "only run.step and run.effect with key= can be found again there", "ask with interrupt()"
    return InvalidInput(
        f"run.{name} was called inside the recorded call of {outer!r}, which no resume repeats, {reason}; {way_out}"
    )


_current: contextvars.ContextVar[Run | AsyncRun | None] = contextvars.ContextVar("holdfast_run", default=None)


def current_run() -> Run | AsyncRun | None:
    """The run that the calling code belongs to: in a workflow, branch, step or effect. None anywhere else.

    Libraries between the workflow and a step can use it instead of passing the run as an argument.

    Example:
        run = holdfast.current_run()
        order = run.run_id if run is not None else "no run"
    """
    return _current.get()


def current_interpreter() -> Interpreter | None:
    """The interpreter of the run that `current_run` returns."""
    run = _current.get()
    return run._interpreter if run is not None else None


@contextlib.contextmanager
def as_current(run: Run | AsyncRun) -> Iterator[None]:
    """Make `current_run` return `run`."""
    token = _current.set(run)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # a task that ends with its loop is closed in another context
            _current.reset(token)
