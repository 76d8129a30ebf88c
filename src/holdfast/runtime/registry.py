"""The registry of an app: workflows, functions, undos and upgrades, by name.

Nothing is imported by a stored name: a run finds only what was registered.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from types import CellType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, Protocol, overload

import msgspec

from holdfast.engine.arguments import Arguments, Typed
from holdfast.engine.commands import EntryData, UserFunction
from holdfast.engine.results import typed_result
from holdfast.engine.retry import ONCE, Retry, retry_of
from holdfast.errors import InvalidInput, RunError, UnknownWorkflow
from holdfast.ids import check_id
from holdfast.runtime.replay_input import CODEC

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar  # for defaults; type checkers include it

    from holdfast.graphs.definition import Graph
    from holdfast.runtime.async_run import AsyncRun
    from holdfast.runtime.run import Run
    from holdfast.runtime.start import Start

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

State = dict[str, Any]
Upgrade = Callable[[State], State]


class Workflow(Generic[P, R]):
    """A registered workflow, with the types of its input and its result. Calling it calls the function."""

    is_declared = False
    """Whether it is a declared workflow, a graph, and takes its input as one dict."""
    is_adopted = False
    """Whether its definition is known only from its runs."""

    def __init__(self, fn: UserFunction, name: str, version: int, retry: Retry) -> None:
        self.fn = fn
        self.name = name
        self.version = version
        self.retry = retry
        self.is_async = inspect.iscoroutinefunction(fn)
        self.upgrades: dict[int, Upgrade] = {}
        self._input = Arguments(fn, f"workflow {name!r}")
        self.__name__ = getattr(fn, "__name__", name)
        self.__doc__ = fn.__doc__
        self.__wrapped__ = fn

    def __call__(self, run: object, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self.fn(run, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<workflow {self.name!r} version {self.version}>"

    def check_input(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """Raise InvalidInput if the function does not accept these arguments."""
        self._input.check_call(args, kwargs)

    def differing_input(self, stored: EntryData, given: EntryData) -> list[tuple[str, object, object]] | None:
        """The arguments that differ between two `started` entries, with both values; None if that is unknown."""
        pairs = [(tuple(entry.get("args", ())), entry.get("kwargs", {})) for entry in (stored, given)]
        return self._input.differences(pairs[0], pairs[1], CODEC)

    def typed_input(self, args: Sequence[object], kwargs: dict[str, object]) -> Typed:
        """Convert stored input to the types of the function's annotations."""
        return self._input.to_typed(args, kwargs)

    def typed_result(self, result: object) -> R:
        """Convert a stored result to the type of the function's return annotation."""
        found: R = typed_result(self.fn, result, self.name)
        return found

    def prepare(self, start: Start) -> Start:
        """Check and complete the start of a run, so that a run that can only fail is not created."""
        self.check_input(start.args, start.kwargs)
        args, kwargs = self._input.check_new(start.args, start.kwargs, CODEC.round_trip)
        return msgspec.structs.replace(start, args=args, kwargs=kwargs)

    def check_run(self, run_id: str, definition: object) -> None:
        """Raise RunError or UnknownWorkflow if the run's definition does not belong to this workflow."""
        if definition is not None:
            raise RunError(
                f"run {run_id!r} is of a declared workflow {self.name!r}, and this process has code of that name; give "
                "one of them another name"
            )

    def upgrade_state(self, state: State, version: int) -> State:
        """Convert a state that an older version of the workflow saved to the current version."""
        if version > self.version:
            raise RunError(
                f"the state was saved by version {version} of workflow {self.name!r}; this process has version "
                f"{self.version} and cannot use it"
            )
        for number in range(version, self.version):
            if number not in self.upgrades:
                raise RunError(
                    f"workflow {self.name!r} has no upgrade of its state from version {number} to {number + 1}; "
                    f"register one with @app.upgrade({self.name!r}, {number})"
                )
            state = self.upgrades[number](state)
        return state


class WorkflowDecorator(Protocol):
    """The type of `app.workflow(name=…)`, which keeps the types of the function's input and result.

    mypy accepts a function with `**kwargs` only by the last two overloads, which do not check its input.
    """

    @overload
    def __call__(self, fn: Callable[Concatenate[AsyncRun, P], Awaitable[R]], /) -> Workflow[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Run, P], R], /) -> Workflow[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-cannot-match]
        self, fn: Callable[Concatenate[AsyncRun, ...], Awaitable[R]], /
    ) -> Workflow[..., R]: ...
    @overload
    def __call__(  # type: ignore[overload-cannot-match]
        self, fn: Callable[Concatenate[Run, ...], R], /
    ) -> Workflow[..., R]: ...


class Registry:
    """The workflows, undo functions and functions of an app, by name."""

    def __init__(self) -> None:
        self.workflows: dict[str, Workflow] = {}
        self.undos: dict[str, UserFunction] = {}
        self.functions: dict[str, UserFunction] = {}

    def add_workflow(self, fn: object, name: str | None, version: int, retry: object) -> Workflow:
        """Register a workflow under its name."""
        if not callable(fn) or isinstance(fn, type) or inspect.isgeneratorfunction(fn) or not _takes_argument(fn):
            raise InvalidInput(f"a workflow is a function whose first argument is the run, not {fn!r}")
        name = check_id("workflow", name if name is not None else getattr(fn, "__name__", ""))
        if type(version) is not int or version < 1:
            raise InvalidInput(f"version must be a number from 1 on, not {version!r}")
        known = self.workflows.get(name)
        if known is not None and not _is_redefined(known.fn, fn):
            raise InvalidInput(f"this app already has a workflow {name!r}; give one of them another name=")
        workflow = Workflow(fn, name, version, retry_of(retry, ONCE))
        if known is not None:
            workflow.upgrades |= known.upgrades
        self.workflows[name] = workflow
        return workflow

    def add_undo(self, fn: object, name: str | None) -> None:
        """Register an undo function under its name."""
        _add(self.undos, "undo", fn, name)

    def add_function(self, fn: object, name: str | None) -> None:
        """Register a function that declared workflows may call, under its name."""
        _add(self.functions, "function", fn, name)

    def declare(self, name: str, graph: Graph | None) -> Workflow:
        """Register a declared workflow and those inside it. Without a graph each run uses its own definition."""
        from holdfast.runtime.graph_workflows import DeclaredWorkflow  # loads graphs

        known = self.workflows.get(name)
        if known is not None and not known.is_declared:
            raise InvalidInput(f"this app already has a workflow {name!r}; give the graph another id")
        if known is None or graph is not None:
            declared = self.workflows[name] = known = DeclaredWorkflow(self, check_id("id", name), graph)
            for inner_name, inner in declared.inner():
                self.declare(inner_name, inner)
        return known

    def own_names(self) -> list[str]:
        """The names of the workflows for which this process has a definition or code."""
        return [name for name, one in self.workflows.items() if not one.is_adopted]

    def find(self, workflow: object, *, may_enqueue: bool = False) -> Workflow:
        """Find a workflow by its name, by its function, or by itself. `may_enqueue`: see UnknownWorkflow."""
        if isinstance(workflow, Workflow):
            current = self.workflows.get(workflow.name)
            if current is not None and (current is workflow or _is_redefined(current.fn, workflow.fn)):
                return current
        if isinstance(workflow, str):
            if workflow in self.workflows:
                return self.workflows[workflow]
            raise UnknownWorkflow(workflow, list(self.workflows), may_enqueue=may_enqueue)
        for known in self.workflows.values():
            if known.fn is workflow:
                return known
        raise InvalidInput(f"{workflow!r} is not a workflow of this app; put @app.workflow above it")


def _takes_argument(fn: UserFunction) -> bool:
    try:
        inspect.signature(fn).bind_partial(None)
    except (TypeError, ValueError) as error:
        return isinstance(error, ValueError)  # a builtin may have no signature
    return True


def _add(known: dict[str, UserFunction], what: str, fn: object, name: str | None) -> None:
    article = "an" if what == "undo" else "a"
    if not callable(fn):
        raise InvalidInput(f"{fn!r} is not a function; {article} {what} must be one")
    name = check_id(what, name if name is not None else getattr(fn, "__name__", ""))
    if name in known and not _is_redefined(known[name], fn):
        raise InvalidInput(f"this app already has {article} {what} {name!r}; give one of them another name=")
    known[name] = fn


_ORIGIN: Final = ("__module__", "__qualname__")
_DEPTH_MAX: Final = 8
"""The limit of functions compared inside one another; a function may enclose itself."""


def _is_redefined(known: object, fn: object, depth: int = 0) -> bool:
    """Whether a function is the registered one, or its new definition in a notebook or a reloaded module.

    Module and qualified name decide. Two lambdas of one file differ, and so do functions of the same code with other
    values: closures of one factory, methods of two objects, functions behind the same decorator.
    """
    if known is fn:
        return True
    if [getattr(known, name, known) for name in _ORIGIN] != [getattr(fn, name, fn) for name in _ORIGIN]:
        return False
    old, new = getattr(known, "__code__", None), getattr(fn, "__code__", None)
    if old is not None and old is new:
        values, others = _bound_values(known), _bound_values(fn)
        return len(values) == len(others) and all(
            _is_equal(value, other, depth) for value, other in zip(values, others, strict=True)
        )
    if old is None or new is None or getattr(fn, "__name__", "") != "<lambda>":
        return True
    return bool(old.co_filename != new.co_filename or old.co_firstlineno == new.co_firstlineno)


def _bound_values(fn: object) -> list[object]:
    """The values a function uses beside its arguments: its object, its defaults and its closure."""
    cells = [cell.cell_contents for cell in getattr(fn, "__closure__", None) or () if cell != CellType()]
    return [getattr(fn, "__self__", None), *(getattr(fn, "__defaults__", None) or ()), *cells]


def _is_equal(value: object, other: object, depth: int) -> bool:
    if value is other:
        return True
    if type(value) is not type(other):
        return False
    if callable(value):
        return depth < _DEPTH_MAX and _is_redefined(value, other, depth + 1)
    return isinstance(value, str | bytes | int | float) and value == other
