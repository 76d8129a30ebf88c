"""Graphs under claims, and graphs inside workflows: `saver.guard(graph)` and `run_graph(run, graph, …)`.

A guarded graph claims the thread around every call. `run_graph` executes a graph as part of a run: each interrupt is a
gate of the run, so it is answered and resumed like every other one, from any process, the command or the page.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.pregel import Pregel
from langgraph.types import Command, Interrupt, StateSnapshot

from holdfast.adapters.langgraph.thread import thread_ref
from holdfast.adapters.shared.call_keys import entries_of, is_over
from holdfast.adapters.shared.calls import next_key
from holdfast.errors import InvalidInput, RunClaimed
from holdfast.inspect.threads import DRIVEN_BY
from holdfast.runtime.async_run import AsyncRun
from holdfast.runtime.run_base import AskOptions, Call, RunBase, UnawaitedCall, in_recorded_call

if TYPE_CHECKING:
    from holdfast.adapters.langgraph.saver import HoldfastSaver

Describe = Callable[[Any], Mapping[str, Any]]
"""Returns the options of `run.ask` for the value of an interrupt: `prompt`, `fields`, `show`, `who` …"""
_PROMPT_CHARS_MAX: Final = 400
_OPTIONS: Final = ("prompt", "fields", *sorted(AskOptions.__annotations__.keys() - {"key"}))
_CLAIM_S: Final = 60.0
_RETRY_S: Final = 0.2


class GuardedGraph:
    """A graph whose calls claim their thread: `invoke`, `stream`, `update_state` and the async ones.

    A call that another process or task of this program makes for the same thread raises RunClaimed meanwhile. All other
    attributes are those of the graph.

    Example:
        graph = saver.guard(builder.compile(checkpointer=saver))
        graph.invoke(Command(resume=True), config)
    """

    def __init__(self, saver: HoldfastSaver, graph: Pregel[Any, Any, Any, Any], lease: float) -> None:
        if graph.checkpointer is not saver:
            raise InvalidInput("the graph has another checkpointer; compile it with checkpointer=saver")
        self._saver = saver
        self._graph = graph
        self._lease = lease

    @property
    def unguarded(self) -> Pregel[Any, Any, Any, Any]:
        """The graph itself, whose calls claim nothing."""
        return self._graph

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)

    def _claim(self, config: RunnableConfig | None) -> Any:
        return self._saver.claim(thread_ref(config or {}).thread_id, lease=self._lease)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Any:  # noqa: A002
        """`graph.invoke` under the claim of its thread."""
        with self._claim(config):
            return self._graph.invoke(input, config, **options)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Any:  # noqa: A002
        """`graph.ainvoke` under the claim of its thread."""
        async with self._claim(config):
            return await self._graph.ainvoke(input, config, **options)

    def stream(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Iterator[Any]:  # noqa: A002
        """`graph.stream` under the claim of its thread, which ends with the iterator."""
        with self._claim(config):
            yield from self._graph.stream(input, config, **options)

    async def astream(
        self,
        input: Any,  # noqa: A002 - LangGraph's name
        config: RunnableConfig | None = None,
        **options: Any,
    ) -> AsyncIterator[Any]:
        """`graph.astream` under the claim of its thread, which ends with the iterator."""
        async with self._claim(config):
            async for item in self._graph.astream(input, config, **options):
                yield item

    def update_state(self, config: RunnableConfig, values: Any, *args: Any, **options: Any) -> RunnableConfig:
        """`graph.update_state` under the claim of its thread."""
        with self._claim(config):
            return self._graph.update_state(config, values, *args, **options)

    async def aupdate_state(self, config: RunnableConfig, values: Any, *args: Any, **options: Any) -> RunnableConfig:
        """`graph.aupdate_state` under the claim of its thread."""
        async with self._claim(config):
            return await self._graph.aupdate_state(config, values, *args, **options)


def run_graph(
    run: AsyncRun,
    graph: Pregel[Any, Any, Any, Any] | GuardedGraph,
    input: object,  # noqa: A002 - LangGraph's name
    config: RunnableConfig | None = None,
    *,
    describe: Describe | None = None,
) -> Call[dict[str, Any]]:
    """Execute a graph inside a run until it ends, and return the values of its state.

    Each interrupt opens a gate, all of them at once, and the answers resume the graph. `describe(value)` returns the
    options of `run.ask` for the value of an interrupt, such as `{"prompt": …, "fields": {"approve": bool}}`; without it
    the interrupt's `response_schema` describes the answer, or else it is one text.

    The id of the thread is the run's with `/graph` and a number, unless `config` names a thread. The thread is claimed
    while the graph executes. After a crash the graph continues from its last checkpoint: finished nodes and answered
    interrupts are not repeated, and a node that was interrupted runs again. What must not be repeated is an effect of
    the run with a key: `await holdfast.current_run().effect(pay, order, key=f"pay {order}")` in an async node.

    Example:
        @app.workflow
        async def refund(run, amount: int):
            return (await run_graph(run, graph, {"amount": amount}))["paid"]
    """
    context: object = run
    if not isinstance(context, AsyncRun):
        needed = "an `async def` workflow" if isinstance(context, RunBase) else "the run of the workflow"
        raise InvalidInput(f"run_graph needs {needed} as its first argument, not {type(run).__name__}")
    found: object = graph.unguarded if isinstance(graph, GuardedGraph) else graph  # run_graph claims the thread itself
    if not isinstance(found, Pregel):
        raise InvalidInput(
            f"run_graph needs a compiled graph, not {type(graph).__name__}; call compile(checkpointer=saver)"
        )
    if found.checkpointer is None or isinstance(found.checkpointer, bool):
        raise InvalidInput("run_graph needs a graph with a checkpointer; compile it with checkpointer=saver")
    job = functools.partial(_run_graph, run, found, input, config, describe or _describe)
    return UnawaitedCall(run, "run_graph", found.name, None, function=job)


async def _run_graph(
    run: AsyncRun,
    graph: Pregel[Any, Any, Any, Any],
    given: object,
    config: RunnableConfig | None,
    describe: Describe,
) -> dict[str, Any]:
    call = next_key(run, "graph")
    driven = _DrivenGraph(run, graph, config, f"{run.run_id}/{run.scope.full_name(call)}")
    before = await run.step(driven.head, key=f"{call} head", name="graph head")
    command: Command[Any] | None = None
    for turn in itertools.count(1):
        advance = functools.partial(driven.advance, before, given, command)
        try:
            found = await run.step(advance, key=f"{call} turn {turn}", name="graph turn")
        finally:
            _count_as_reached(run, f"{call} head" if turn == 1 else f"{call} turn {turn - 1}", f"{call} turn {turn}")
        if not found["interrupts"]:
            return await driven.values(found["head"])
        answers = await _ask(run, f"{call} turn {turn}", found["interrupts"], describe)
        command = Command(resume=answers)
    raise AssertionError("the loop ends with a return")


def _count_as_reached(run: AsyncRun, after: str, turn: str) -> None:
    """Count the recorded calls of the nodes of a turn as reached: a node that has ended does not make them again.

    They stand between the entry of the call before the turn and that of the turn, if it is recorded. A call without an
    outcome is left out: it is in doubt until its node makes it again.
    """
    recorded = run.execution.record.scope(run.scope.path)
    begins = max((entry["position"] for entry in entries_of(run, after)), default=0)
    ends = max((entry["position"] for entry in entries_of(run, turn)), default=None)
    for entries in recorded.calls.values() if recorded is not None else ():
        is_inside = begins < entries[0]["position"] and (ends is None or entries[-1]["position"] < ends)
        if is_inside and entries[0]["kind"] in ("step", "attempt", "intent", "outcome") and is_over(entries):
            entries[0]["seen"] = True


class _DrivenGraph:
    """A graph and the thread that a run drives."""

    def __init__(
        self, run: AsyncRun, graph: Pregel[Any, Any, Any, Any], config: RunnableConfig | None, thread_id: str
    ) -> None:
        given: RunnableConfig = {**(config or {})}
        given["configurable"] = {"thread_id": thread_id, **given.get("configurable", {})}
        given["metadata"] = {**given.get("metadata", {}), DRIVEN_BY: run.run_id}
        self._graph = graph
        self._config = given

    async def head(self) -> str | None:
        """The id of the newest checkpoint."""
        return _id_of(await self._graph.aget_state(self._config))

    async def advance(self, before: str | None, given: object, command: Command[Any] | None) -> dict[str, Any]:
        """Execute the graph until it ends or interrupts; a repeated call continues where the first was killed.

        `before` is the newest checkpoint before the graph got its input. A `command` resumes the interrupts that it
        names, as far as they are still open.
        """
        async with self._claim():
            state = await self._graph.aget_state(self._config)
            open_ids = {interrupt.id for interrupt in state.interrupts}
            if _id_of(state) == before:
                await self._invoke(given)
            elif open_ids:
                answers = command.resume if command is not None and isinstance(command.resume, dict) else {}
                if left := {name: answer for name, answer in answers.items() if name in open_ids}:
                    await self._invoke(Command(resume=left))
            elif state.tasks:
                await self._invoke(None)
            state = await self._finish(await self._graph.aget_state(self._config))
        interrupts = {each.id: [_plain(each.value), _schema_of(each)] for each in state.interrupts}
        return {"head": _id_of(state), "interrupts": interrupts}

    async def _invoke(self, given: object) -> None:
        """Execute the graph. Each checkpoint is saved before the next nodes begin, so that no finished node is lost."""
        with in_recorded_call("graph turn", allows_keys=True):
            await self._graph.ainvoke(given, self._config, durability="sync")

    async def _finish(self, state: StateSnapshot) -> StateSnapshot:
        """Execute the graph until no task is left, or all tasks that are left wait for an answer.

        `state.next` does not name a task whose writes were saved before the process died, so it is not asked.
        """
        while state.tasks and not state.interrupts:
            before = _id_of(state)
            await self._invoke(None)
            state = await self._graph.aget_state(self._config)
            if _id_of(state) == before and not state.interrupts:
                names = ", ".join(task.name for task in state.tasks)
                raise InvalidInput(f"the graph does not continue with {names}; it may have been changed since it began")
        return state

    async def values(self, head: str) -> dict[str, Any]:
        """The values of the checkpoint at which the graph ended."""
        configurable = {**self._config["configurable"], "checkpoint_id": head}
        state = await self._graph.aget_state({"configurable": configurable})
        return dict(state.values)

    @contextlib.asynccontextmanager
    async def _claim(self) -> AsyncIterator[None]:
        """Claim the thread, if its saver can; a process that was frozen may have it until its lease expires."""
        claim = getattr(self._graph.checkpointer, "claim", None)
        if claim is None:
            yield
            return
        until = asyncio.get_running_loop().time() + _CLAIM_S
        while True:
            try:
                held = await claim(self._config["configurable"]["thread_id"]).__aenter__()
                break
            except RunClaimed:
                if asyncio.get_running_loop().time() > until:
                    raise
                await asyncio.sleep(_RETRY_S)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_exit(held.__aexit__)
            yield


async def _ask(run: AsyncRun, turn: str, interrupts: Mapping[str, Any], describe: Describe) -> dict[str, Any]:
    async def ask(name: str, value: object, schema: object) -> object:
        options = _check_options(describe(value))
        prompt, fields = options.pop("prompt"), options.pop("fields", schema or str)
        return await run.ask(prompt, fields, key=f"{turn} {name}", **options)

    # Each opens its gate before any of them stops the run.
    asked = [ask(name, *parts) for name, parts in interrupts.items()]
    found = await asyncio.gather(*asked, return_exceptions=True)
    for answer in found:
        if isinstance(answer, BaseException):
            raise answer
    return dict(zip(interrupts, found, strict=True))


def _check_options(options: object) -> dict[str, Any]:
    """The options that `describe` has returned."""
    if not isinstance(options, Mapping):
        raise InvalidInput(f"describe must return a dict of options of run.ask, not {type(options).__name__}")
    unknown = [str(name) for name in options if name not in _OPTIONS]
    if unknown or "prompt" not in options:
        problem = f"the unknown option {unknown[0]!r}" if unknown else "no 'prompt'"
        raise InvalidInput(f"describe returned {problem}; it may return {', '.join(_OPTIONS)}")
    return dict(options)


def _describe(value: object) -> dict[str, Any]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    prompt = text if len(text) <= _PROMPT_CHARS_MAX else f"{text[:_PROMPT_CHARS_MAX]}…"
    return {"prompt": prompt, "show": None if prompt == value else value}


def _plain(value: object) -> object:
    """The value of an interrupt as JSON data, which can be recorded."""
    return json.loads(json.dumps(value, ensure_ascii=False, default=str))


def _schema_of(interrupt: Interrupt) -> object:
    """The JSON Schema of the answer, if the interrupt has one."""
    schema = getattr(interrupt, "response_schema", None)  # since LangGraph 1.2.14
    return schema if isinstance(schema, dict) else None


def _id_of(state: StateSnapshot) -> str | None:
    return (state.config.get("configurable") or {}).get("checkpoint_id")
