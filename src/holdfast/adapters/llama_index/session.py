"""The execution of a LlamaIndex workflow by recorded ticks.

A tick is recorded, with what it changed in the state store, before LlamaIndex acts on it. The recorded ticks restore
the workflow in another process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final

from workflows import Workflow
from workflows.context.serializers import BaseSerializer
from workflows.context.state_store import InMemoryStateStore, apply_state_patch
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, WorkflowIdleEvent
from workflows.handler import WorkflowHandler
from workflows.plugins.basic import BasicRuntime
from workflows.runtime.control_loop import rebuild_state_from_ticks
from workflows.runtime.runtime_decorators import BaseInternalRunAdapterDecorator, BaseRuntimeDecorator
from workflows.runtime.types.internal_state import BrokerState
from workflows.runtime.types.plugin import ExternalRunAdapter, InternalRunAdapter, Runtime, V2RuntimeCompatibilityShim
from workflows.runtime.types.results import AddWaiter, DeleteWaiter, StepWorkerResult, StepWorkerStateContextVar
from workflows.runtime.types.ticks import (
    TickAddEvent,
    TickIdleCheck,
    TickStepResult,
    TickWaiterTimeout,
    TickWakeup,
    WorkflowTick,
    WorkflowTickAdapter,
)

from holdfast.adapters.llama_index.questions import Ask
from holdfast.adapters.llama_index.ticks import is_final_failure, state_patch, with_requirements
from holdfast.errors import InvalidInput
from holdfast.runtime.async_run import AsyncRun

Record = dict[str, Any]
_STOP_S: Final = 5.0
current_session: ContextVar[Session | None] = ContextVar("holdfast_llama_index", default=None)


class Session:
    """One execution of a LlamaIndex workflow: the ticks that are recorded, and the workflow that makes more."""

    def __init__(
        self, run: AsyncRun, key: str, workflow: Workflow, start_event: StartEvent | None, start: dict[str, Any]
    ) -> None:
        self.run = run
        self.key = key
        self.workflow = workflow
        self.run_id = ""
        self.adapter: ExternalRunAdapter | None = None
        self.asks: list[Ask] = []
        self.stop: StopEvent | None = None
        self.is_idle = False
        self.published: dict[str | None, list[InputRequiredEvent]] = {}
        """What running steps wrote to the stream, by invocation."""
        self.sends: dict[str | None, list[WorkflowTick]] = {}
        """What running steps sent, by invocation."""
        self._start = {"start_event": start_event, **start}
        self.is_recorded = False
        token = current_session.set(self)
        self._serializer = workflow.runtime.get_serializer(workflow)  # a HoldfastRuntime notes the session
        current_session.reset(token)
        if not self.is_recorded:
            name = type(workflow).__name__
            raise InvalidInput(f"run_workflow needs a workflow with a HoldfastRuntime; create it as {name}(runtime=…)")
        self._ticks: list[WorkflowTick] = []
        self._waiters: dict[str, Ask | None] = {}
        self._state: dict[str, Any] | None = None
        self._sent: list[Event] = []
        self._posted = self._delivered = 0
        self._handler: WorkflowHandler | None = None
        self._ended: asyncio.Task[StopEvent] | None = None
        self._news: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._held: list[WorkflowTick] = []
        self._seen = 0
        self._release: asyncio.Future[None] | None = None

    # --- what is recorded --------------------------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Take over a record, new or old, and let LlamaIndex act on its ticks."""
        self.is_idle = "idle" in record
        for text in record.get("ticks", ()):
            with self._serializer.validation_context():
                tick = WorkflowTickAdapter.validate_python(self._serializer.deserialize(text))
            self._apply_tick(with_requirements(tick, record.get("requirements", {})))
        for text in record.get("published", ()):
            self.asks.append(Ask(self.workflow, self._serializer.deserialize(text)))
        if "state" in record:
            self._state = apply_state_patch(self._state or {}, record["state"])
        if self._release is not None:
            self._release.set_result(None)
            self._release = None

    def _apply_tick(self, tick: WorkflowTick) -> None:
        self._ticks.append(tick)
        if isinstance(tick, TickAddEvent) and tick.emission is None and tick.step_id is None:
            self._delivered += not isinstance(tick.event, StartEvent)
        for result in tick.result if isinstance(tick, TickStepResult) else ():
            if isinstance(result, StepWorkerResult) and isinstance(result.result, StopEvent):
                self.stop = result.result
            elif isinstance(result, StepWorkerResult) and isinstance(result.result, InputRequiredEvent):
                self.asks.append(Ask(self.workflow, result.result))
            elif isinstance(result, AddWaiter) and result.waiter_id not in self._waiters:
                asks = isinstance(result.waiter_event, InputRequiredEvent)
                ask = Ask(self.workflow, result.waiter_event, result)
                is_human = asks or issubclass(result.event_type, HumanResponseEvent)
                self._waiters[result.waiter_id] = ask if is_human else None
                self.asks += [ask] if is_human else []
            elif isinstance(result, DeleteWaiter):
                self._waiters.pop(result.waiter_id, None)

    def open_asks(self) -> dict[int, Ask]:
        """The questions without an answer. Refuses what cannot go on, or what one answer would decide for several."""
        found = {at: ask for at, ask in enumerate(self.asks) if at >= len(self._sent)}
        if not found:
            raise InvalidInput(
                f"{type(self.workflow).__name__} waits for an event that no step sends and no person answers; "
                "inside a run, only InputRequiredEvent and HumanResponseEvent wait for something outside"
            )
        waits = [ask for ask in found.values() if ask.is_waiter]
        for ask in waits:
            if any(other is not ask and other.takes_answer_of(ask) for other in waits):
                raise InvalidInput(
                    f"{ask.describe()} and another step wait for the same event, so one answer would be taken for "
                    "both; pass requirements= to ctx.wait_for_event, such as an id, that differ"
                )
        return found

    # --- the workflow, once it executes ------------------------------------------------------------------------------

    async def next(self) -> Record:
        """Wait for what is to be recorded next. An error of the workflow is recorded as the failure of this call."""
        if self._handler is None:
            await self._begin()
        while True:
            kind, news = await self._news.get()
            if kind == "tick":
                record, self._release = news
                return record  # type: ignore[no-any-return]
            if kind == "ended":
                self._ended = None
                raise news.exception() or InvalidInput(f"{type(self.workflow).__name__} ended without a StopEvent")
            if news == self._seen and self._delivered == self._posted:  # else it has continued since
                return {"idle": True}

    async def _begin(self) -> None:
        token = current_session.set(self)
        try:
            self._handler = self.workflow.run(**self._start)
        finally:
            current_session.reset(token)
        assert self.adapter is not None
        self._ended = asyncio.ensure_future(self._handler.stop_event_result())
        self._ended.add_done_callback(lambda ended: self._news.put_nowait(("ended", ended)))
        self._posted = self._delivered
        self._post()
        if self._ticks:  # a restored workflow does not report by itself that it is idle
            await self.adapter.send_event(TickIdleCheck())

    def restore(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options of `Runtime.run_workflow` for what the recorded ticks have left.

        A context of LlamaIndex is not used: it loses what waiting steps require of an event, and executes a step twice
        that was working on its answer.
        """
        if not self._ticks:
            return options
        broker = rebuild_state_from_ticks(BrokerState.from_workflow(self.workflow), self._ticks)
        start = None if broker.is_running else options["start_event"]
        return {**options, "init_state": broker, "start_event": start, "serialized_state": self._state}

    async def on_tick(self, tick: WorkflowTick, store: object) -> None:
        """Record a tick, with those before it that start nothing, and wait until it is durable.

        A failure that ends the workflow is not recorded as a tick: after `app.retry` the step is executed again.
        """
        self._seen += 1
        self._held.append(tick)
        acts = isinstance(tick, (TickAddEvent, TickStepResult, TickWakeup, TickWaiterTimeout))
        if not acts or (isinstance(tick, TickStepResult) and any(map(is_final_failure, tick.result))):
            return
        ticks, self._held = self._held, []
        record: Record = {"ticks": [self._serializer.serialize(tick) for tick in ticks]}
        waiters = [each for tick in ticks if isinstance(tick, TickStepResult) for each in tick.result]
        required = {each.waiter_id: each.requirements for each in waiters if isinstance(each, AddWaiter)}
        if any(required.values()):
            record["requirements"] = required
        if isinstance(tick, TickStepResult) and tick.invocation_id in self.published:
            record["published"] = [self._serializer.serialize(ev) for ev in self.published.pop(tick.invocation_id)]
        if isinstance(store, InMemoryStateStore):
            patch = state_patch(self._state or {}, store.checkpoint().to_dict())
            if patch:
                record["state"] = patch
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._news.put_nowait(("tick", (record, durable)))
        await durable

    def on_idle(self) -> None:
        self._news.put_nowait(("idle", self._seen))

    def send(self, answers: Mapping[int, Any]) -> None:
        """Send the answers to questions; if the workflow does not execute yet, when it begins."""
        self._sent += [self.asks[at].event(answer) for at, answer in answers.items()]
        if self._handler is not None:
            self._post()

    def _post(self) -> None:
        assert self._handler is not None
        for event in self._sent[self._posted :]:
            self._handler.ctx.send_event(event)
        self._posted = len(self._sent)

    async def finish(self) -> None:
        """Let a workflow that executes end."""
        if self._ended is not None:
            await self._ended

    async def close(self) -> None:
        """Stop the workflow if it still executes. Effects in progress end, and are recorded."""
        ended, self._ended = self._ended, None
        if ended is None:
            return
        adapter: object = self.adapter
        if isinstance(adapter, V2RuntimeCompatibilityShim):
            adapter.abort()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([ended], timeout=_STOP_S)
        if ended.done() and not ended.cancelled():
            ended.exception()


class HoldfastRuntime(BaseRuntimeDecorator):
    """The runtime of workflows that `run_workflow` executes. Without it, such a workflow runs as on any runtime.

    Example:
        workflow = PayOrders(timeout=None, runtime=HoldfastRuntime())
    """

    def __init__(self, decorated: Runtime | None = None) -> None:
        super().__init__(decorated or BasicRuntime())

    def run_workflow(
        self, run_id: str, workflow: Workflow, init_state: BrokerState, *args: Any, **options: Any
    ) -> ExternalRunAdapter:
        """Begin a run of the workflow, where the session of `run_workflow` has left it."""
        session = current_session.get()
        if session is None or session.run_id or session.workflow is not workflow or args:
            return super().run_workflow(run_id, workflow, init_state, *args, **options)
        session.run_id = run_id
        session.adapter = super().run_workflow(
            run_id, workflow, **session.restore({"init_state": init_state, **options})
        )
        return session.adapter

    def get_serializer(self, workflow: Workflow) -> BaseSerializer:
        """The serializer of the workflow. The session learns that its ticks will be recorded."""
        session = current_session.get()
        if session is not None and session.workflow is workflow:
            session.is_recorded = True
        return super().get_serializer(workflow)

    def get_internal_adapter(self, workflow: Workflow) -> InternalRunAdapter:
        """The adapter of the current run, which records ticks if a session executes it."""
        adapter, session = super().get_internal_adapter(workflow), current_session.get()
        if session is None or session.run_id != adapter.run_id:
            return adapter
        return _RecordingAdapter(adapter, session)


class _RecordingAdapter(BaseInternalRunAdapterDecorator):
    """Passes ticks to the session before LlamaIndex acts on them."""

    def __init__(self, decorated: InternalRunAdapter, session: Session) -> None:
        super().__init__(decorated)
        self._session = session

    async def on_tick(self, tick: WorkflowTick) -> None:
        await super().on_tick(tick)
        await self._session.on_tick(tick, self.get_state_store())
        if isinstance(tick, TickStepResult):
            for sent in self._session.sends.pop(tick.invocation_id, ()):
                await super().send_event(sent)

    async def send_event(self, tick: WorkflowTick) -> None:
        """Deliver an event that a step sends when the result of this step is recorded.

        Otherwise a tool would be called for a response of the model that is not recorded; if the process died then, the
        model would be asked again, and might call the tool again under another id.
        """
        step = StepWorkerStateContextVar.get(None)
        if step is None or step.state.invocation_id is None:
            await super().send_event(tick)
        else:
            self._session.sends.setdefault(step.state.invocation_id, []).append(tick)

    async def write_to_event_stream(self, event: Event) -> None:
        if isinstance(event, WorkflowIdleEvent):
            self._session.on_idle()
        step = StepWorkerStateContextVar.get(None)
        if step is not None and isinstance(event, InputRequiredEvent):
            self._session.published.setdefault(step.state.invocation_id, []).append(event)
        await super().write_to_event_stream(event)
