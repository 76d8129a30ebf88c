"""LlamaIndex workflows inside a Holdfast run: steps are recorded, InputRequiredEvents are gates, tools are effects.

LlamaIndex drives a workflow by *ticks*: an event arrived, a step returned. `run_workflow` records every tick before
LlamaIndex acts on it. A resume rebuilds the workflow from the ticks, so finished steps are not executed again; a step
that was interrupted is.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any

try:
    from workflows import Workflow
    from workflows.events import StartEvent, StopEvent

    from holdfast.adapters.llama_index.questions import Ask, Gates
    from holdfast.adapters.llama_index.session import HoldfastRuntime, Session, current_session
except ImportError as error:
    if (error.name or "").partition(".")[0] != "workflows":
        raise
    message = 'holdfast.adapters.llama_index needs llama-index-workflows; pip install "holdfast[llama-index]"'
    raise ImportError(message, name=error.name) from error

from holdfast.adapters.shared.calls import Given, ToolCall, ToolPolicy, current, idempotency_key, next_key, perform
from holdfast.errors import InvalidInput
from holdfast.runtime.async_run import AsyncRun

__all__ = ["HoldfastRuntime", "idempotency_key", "perform_tool", "run_workflow"]


async def run_workflow(
    run: AsyncRun,
    workflow: Workflow,
    *,
    gates: Gates | None = None,
    start_event: StartEvent | None = None,
    **start: Any,
) -> Any:
    """Execute a LlamaIndex workflow as a part of a run, and return its result.

    The workflow must have a `HoldfastRuntime`. `start` and `start_event` are as for `workflow.run`. An
    InputRequiredEvent opens a gate, whose answer is sent to the workflow as its HumanResponseEvent. `gates` has options
    for the gates of a class of events: those of `run.ask`, and `prompt`, `fields` and `response`, the class to
    send. When no step can continue, all gates are opened at once, and the workflow continues when all are answered.

    A workflow that fails raises StepFailed. `app.retry` repeats the LlamaIndex step that failed.

    Example:
        @app.workflow
        async def pay_orders(run, orders):
            return await run_workflow(run, PayOrders(runtime=HoldfastRuntime()), orders=orders)
    """
    if not isinstance(run, AsyncRun) or not isinstance(workflow, Workflow):
        raise InvalidInput(
            "run_workflow needs the run of an `async def` workflow and an instance of a LlamaIndex workflow, "
            f"not {type(run).__name__} and {type(workflow).__name__}"
        )
    session = Session(run, next_key(run, "workflow"), workflow, start_event, start)
    name, number = type(workflow).__name__, 0
    try:
        while session.stop is None:
            number += 1
            session.apply(await run.step(session.next, key=f"{session.key} {number}", name=name))
            if session.is_idle:
                session.send(await _ask_all(run, session.open_asks(), session.key, gates or {}))
        await session.finish()
    finally:
        await session.close()
        _pass_over(run, f"tool {session.key} ")
    return session.stop.result if type(session.stop) is StopEvent else session.stop


def _pass_over(run: AsyncRun, prefix: str) -> None:
    """Tell the engine that recorded tool calls were not forgotten: their steps have returned, and are not repeated."""
    found = run.execution.record.scopes.get(run.scope.path)
    for call, entries in found.calls.items() if found is not None else ():
        if call.startswith(prefix):
            entries[0]["seen"] = True


async def _ask_all(run: AsyncRun, asks: Mapping[int, Ask], key: str, gates: Gates) -> dict[int, Any]:
    """Ask all questions at once, and wait until every one is answered."""
    calls = [ask.ask(run, f"{key} ask {at}", gates) for at, ask in asks.items()]
    # Each opens its gate before one of them stops the run.
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return dict(zip(asks, answers, strict=True))


async def perform_tool(
    call_id: str,
    tool: Callable[..., Any],
    arguments: Mapping[str, Any],
    *,
    name: str | None = None,
    policy: ToolPolicy | Mapping[str, Any] | None = None,
) -> Any:
    """Call a tool from a step of a workflow, once, and return its result. Outside a run it is only called.

    `call_id` is the id of the call in the model's response, which an earlier step has returned in its event. `policy`
    has the options of `run.effect`, such as `in_doubt` and `check`; see `ToolPolicy`.

    Example:
        result = await perform_tool(event.call_id, pay, {"order": event.order}, policy={"in_doubt": "retry"})
    """

    async def body() -> Any:
        if inspect.iscoroutinefunction(tool):
            return await tool(**arguments)
        return await asyncio.to_thread(tool, **arguments)

    name = name or str(getattr(tool, "__name__", type(tool).__name__))
    chosen = ToolPolicy.of(policy, name)
    run = current("holdfast.adapters.llama_index")
    if run is None:
        return await body()
    session = current_session.get()
    if session is None:
        raise InvalidInput(
            "perform_tool is for the steps of a workflow that run_workflow executes; use run.effect here"
        )
    result = await perform(session.run, ToolCall(f"{session.key} {call_id}", name, arguments, chosen), body)
    return result.value if isinstance(result, Given) else result
