"""What an app knows by name: workflows, functions, undos, upgrades of state. Nothing is imported by a stored name."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from types import CellType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Protocol, overload

import msgspec

from holdfast.engine.arguments import Arguments
from holdfast.engine.results import typed_result
from holdfast.engine.retry import ONCE, Retry, retry_of
from holdfast.errors import InvalidInput, RunError, UnknownWorkflow
from holdfast.ids import check_id
from holdfast.runtime.codec import CODEC

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar  # type checkers bring it

    from holdfast.graphs.definition import Graph
    from holdfast.runtime.async_run import AsyncRun
    from holdfast.runtime.run import Run
    from holdfast.runtime.starting import Start

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]


class Workflow(Generic[P, R]):
    """A registered workflow, with the types of its input and its result. Calling it calls the function."""

    def __init__(self, fn: Callable[..., Any], name: str, version: int, retry: Retry) -> None:
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

    is_declared = False
    """Whether it is a declared workflow, a graph, and takes its input as one dict."""
    is_adopted = False
    """Whether it is known only by what its runs carry."""

    def __call__(self, run: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self.fn(run, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<workflow {self.name!r} version {self.version}>"

    def check_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Whether the function can be called so; a run that can only fail is not begun."""
        self._input.check_call(args, kwargs)

    def differing_input(self, stored: dict[str, Any], given: dict[str, Any]) -> list[tuple[str, Any, Any]] | None:
        """The arguments that differ between two `started` entries, with both values; None if that is unknown."""
        pairs = [(tuple(entry.get("args", ())), entry.get("kwargs", {})) for entry in (stored, given)]
        return self._input.differing(pairs[0], pairs[1], CODEC.settled)

    def typed_input(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Stored input as the function's annotations name its types."""
        return self._input.typed(args, kwargs)

    def typed_result(self, result: Any) -> R:
        """A stored result as the function's return annotation names its type."""
        found: R = typed_result(self.fn, result, self.name)
        return found

    def prepared(self, start: Start) -> Start:
        """A run to be, checked, with what the workflow adds to it; a run that can only fail is not begun."""
        self.check_input(start.args, start.kwargs)
        args, kwargs = self._input.checked(start.args, start.kwargs, CODEC.settled)
        return msgspec.structs.replace(start, args=args, kwargs=kwargs)

    def check_run(self, run_id: str, definition: Any) -> None:
        """Whether a run, by what it carries, is one of this workflow's; RunError or UnknownWorkflow if it is not."""
        if definition is not None:
            raise RunError(
                f"run {run_id!r} is of a declared workflow {self.name!r}, and this process has code of that name; give "
                "one of them another name"
            )

    def upgraded(self, state: dict[str, Any], version: int) -> dict[str, Any]:
        """A state saved under an older version of the workflow, as this version expects it."""
        if version > self.version:
            raise RunError(
                f"the state was saved by version {version} of workflow {self.name!r}; this process has version "
                f"{self.version} and cannot go on with it"
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
    """What `app.workflow(name=…)` returns: it keeps the types of the function's input and result.

    mypy takes a function with `**kwargs` only by the last two, where its input is not checked.
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
    """What is known by name."""

    def __init__(self) -> None:
        self.workflows: dict[str, Workflow] = {}
        self.undos: dict[str, Callable[..., Any]] = {}
        self.functions: dict[str, Callable[..., Any]] = {}

    def add_workflow(self, fn: Any, name: str | None, version: int, retry: Any) -> Workflow:
        """Register a workflow under its name."""
        if not callable(fn):
            raise InvalidInput(f"a workflow is a function whose first argument is the run; {fn!r} cannot be called")
        name = check_id("workflow", name if name is not None else getattr(fn, "__name__", ""))
        if type(version) is not int or version < 1:
            raise InvalidInput(f"version must be a number from 1 on, not {version!r}")
        known = self.workflows.get(name)
        if known is not None and not _same(known.fn, fn):
            raise InvalidInput(f"this app already has a workflow {name!r}; give one of them another name=")
        workflow = Workflow(fn, name, version, retry_of(retry, ONCE))
        if known is not None:
            workflow.upgrades |= known.upgrades
        self.workflows[name] = workflow
        return workflow

    def add_undo(self, fn: Any, name: str | None) -> None:
        """Register an undo function under its name."""
        _add(self.undos, "undo", fn, name)

    def add_function(self, fn: Any, name: str | None) -> None:
        """Register a function that declared workflows may call, under its name."""
        _add(self.functions, "function", fn, name)

    def declare(self, name: str, graph: Graph | None) -> Workflow:
        """Know a declared workflow, and those inside it, by name. None: each run goes by its own definition."""
        from holdfast.runtime.declared import DeclaredWorkflow  # graphs are loaded by those who use them

        known = self.workflows.get(name)
        if known is not None and not known.is_declared:
            raise InvalidInput(f"this app already has a workflow {name!r}; give the graph another id")
        if known is None or graph is not None:
            declared = self.workflows[name] = known = DeclaredWorkflow(self, check_id("id", name), graph)
            for inner_name, inner in declared.inner():
                self.declare(inner_name, inner)
        return known

    def declared(self) -> list[str]:
        """The names of the workflows this process has a definition or code for."""
        return [name for name, one in self.workflows.items() if not one.is_adopted]

    def find(self, workflow: Any) -> Workflow:
        """The workflow meant by its name, its function, or itself."""
        if isinstance(workflow, Workflow):
            current = self.workflows.get(workflow.name)
            if current is not None and (current is workflow or _same(current.fn, workflow.fn)):
                return current
        if isinstance(workflow, str):
            if workflow in self.workflows:
                return self.workflows[workflow]
            raise UnknownWorkflow(workflow, list(self.workflows))
        for known in self.workflows.values():
            if known.fn is workflow:
                return known
        raise InvalidInput(f"{workflow!r} is not a workflow of this app; put @app.workflow above it")


def _add(known: dict[str, Callable[..., Any]], what: str, fn: Any, name: str | None) -> None:
    if not callable(fn):
        raise InvalidInput(f"an {what} is a function, not {fn!r}" if what == "undo" else f"{fn!r} is no function")
    name = check_id(what, name if name is not None else getattr(fn, "__name__", ""))
    if name in known and not _same(known[name], fn):
        article = "an" if what == "undo" else "a"
        raise InvalidInput(f"this app already has {article} {what} {name!r}; give one of them another name=")
    known[name] = fn


def _same(known: Any, fn: Any) -> bool:
    """Whether a function is the one that was registered, or its new definition in a notebook or a reloaded module.

    Module and qualified name decide. Not the same are two lambdas of one file, and functions of the same code that
    work on other values: closures of one factory, methods of two objects, functions behind the same decorator.
    """
    return _is_redefined(known, fn, 0)


def _is_redefined(known: Any, fn: Any, depth: int) -> bool:
    if known is fn:
        return True
    if [getattr(known, name, known) for name in _ORIGIN] != [getattr(fn, name, fn) for name in _ORIGIN]:
        return False
    old, new = getattr(known, "__code__", None), getattr(fn, "__code__", None)
    if old is not None and old is new:
        values, others = _values(known), _values(fn)
        return len(values) == len(others) and all(
            _is_equal(value, other, depth) for value, other in zip(values, others, strict=True)
        )
    if old is None or new is None or fn.__name__ != "<lambda>":
        return True
    return (old.co_filename, old.co_firstlineno) == (new.co_filename, new.co_firstlineno) or (
        old.co_filename != new.co_filename
    )


def _values(fn: Any) -> list[Any]:
    """What a function works on beside its arguments: its object, its defaults, what it encloses."""
    cells = [cell.cell_contents for cell in getattr(fn, "__closure__", None) or () if cell != CellType()]
    return [getattr(fn, "__self__", None), *(getattr(fn, "__defaults__", None) or ()), *cells]


def _is_equal(value: Any, other: Any, depth: int) -> bool:
    if value is other:
        return True
    if type(value) is not type(other):
        return False
    if callable(value):
        return depth < _DEPTH_MAX and _is_redefined(value, other, depth + 1)
    return isinstance(value, str | bytes | int | float) and value == other


_ORIGIN = ("__module__", "__qualname__")
_DEPTH_MAX = 8
"""So many functions inside one another are compared; a function may enclose itself."""
