"""`run_agent`: an agent's run in the durable loop of a Holdfast run."""

from __future__ import annotations

import copy
import functools
import weakref
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import agents
from agents.run import DEFAULT_MAX_TURNS

from holdfast.adapters.openai_agents.agent_session import HoldfastSession
from holdfast.adapters.openai_agents.place import ADAPTER, Place, Segment, abandon_calls, current_place, inside
from holdfast.adapters.openai_agents.recorded_models import bind_agents, bind_config
from holdfast.adapters.openai_agents.recorded_tools import parse_arguments
from holdfast.adapters.shared.calls import DEFAULT, ToolCall, ToolPolicy, ask_approvals, current, next_key
from holdfast.engine.execution import Execution
from holdfast.errors import InvalidInput
from holdfast.runtime.async_run import AsyncRun
from holdfast.runtime.run_base import Call, RunBase, UnawaitedCall

_STATE: Final = "openai_agents"
"""The key in `run.state`."""

_looping: weakref.WeakSet[Execution] = weakref.WeakSet()


def run_agent(
    run: AsyncRun | None,
    agent: agents.Agent[Any],
    input: str | list[Any],  # noqa: A002  # as Runner.run names it
    *,
    session: HoldfastSession | None = None,
    context: Any = None,
    max_turns: int | None = DEFAULT_MAX_TURNS,
    policies: Mapping[str, ToolPolicy | Mapping[str, Any]] | None = None,
    run_config: agents.RunConfig | dict[str, Any] | None = None,
    checkpoint_turns: int = 10,
    **options: Any,
) -> Call[agents.RunResult]:
    """Run an agent as `Runner.run` does, with its calls recorded in the run, and return the same result.

    Tools with `needs_approval` open gates, all of a turn at once. `policies` has the options of tools by name, see
    `ToolPolicy`. `options` are the other keywords of `Runner.run`. After `checkpoint_turns` turns the state of the
    agent is saved. With None as the run, this is `Runner.run`.

    Example:
        @app.workflow
        async def support(run, question):
            result = await run_agent(run, agent, question, policies={"refund": {"in_doubt": "ask"}})
            return result.final_output
    """
    options |= {"session": session, "context": context, "run_config": run_config}
    if run is None:
        return agents.Runner.run(agent, input, max_turns=max_turns, **options)
    if not isinstance(run, AsyncRun):
        needed = "needs an `async def` workflow" if isinstance(run, RunBase) else "needs the run of the workflow"
        raise InvalidInput(f"run_agent {needed} as its first argument, not {type(run).__name__}")
    if not isinstance(agent, agents.Agent):
        raise InvalidInput(f"run_agent needs an agents.Agent, not {type(agent).__name__}")
    job = functools.partial(_run_agent, run, agent, input, policies, checkpoint_turns, max_turns, options)
    return UnawaitedCall(run, "run_agent", agent.name, None, function=job)


async def _run_agent(
    run: AsyncRun,
    agent: agents.Agent[Any],
    given: str | list[Any],
    policies: Mapping[str, ToolPolicy | Mapping[str, Any]] | None,
    checkpoint_turns: int,
    max_turns: int | None,
    options: dict[str, Any],
) -> agents.RunResult:
    session, run_config = options["session"], options["run_config"]
    if current(ADAPTER) is not run:
        raise InvalidInput(
            f"run_agent must be called with the run of the calling workflow or branch, not with {run.run_id!r} here; "
            "a tool that calls it needs the policy {'record': 'none'}"
        )
    if session is not None and not isinstance(session, HoldfastSession):
        raise InvalidInput(f"session must be a HoldfastSession, not {type(session).__name__}; other sessions add twice")
    if checkpoint_turns < 1:
        raise InvalidInput(f"checkpoint_turns must be at least 1, not {checkpoint_turns}")
    outer = current_place()
    known = dict(outer.policies) if outer else {}
    known |= {name: ToolPolicy.of(policy, name) for name, policy in (policies or {}).items()}
    is_loop = outer is None and run.scope.main
    if is_loop and run.execution in _looping:
        raise InvalidInput(f"run {run.run_id!r} already runs an agent here; run several with run.gather")
    config = run_config if isinstance(run_config, agents.RunConfig) else agents.RunConfig(**(run_config or {}))
    bind_config(config)
    bind_agents(agent)
    job = _Job(run, agent, given, {**options, "max_turns": max_turns, "run_config": config}, known, _name(run, outer))
    try:
        if not is_loop:
            return await job.run_through()
        _looping.add(run.execution)
        return await job.run_loop(checkpoint_turns)
    finally:
        if is_loop:
            _looping.discard(run.execution)
        if run_config is None:
            await config.model_provider.aclose()


def _name(run: AsyncRun, outer: Place | None) -> str:
    """The name of an agent's run, unique in the Holdfast run and the same on every resume."""
    if outer is not None:
        return f"{next_key(run, f'{outer.path}agent')}:"
    path = run.scope.path.replace("[", "(").replace("]", ")").replace("/", ":")  # keys cannot have brackets
    return f"{path} {next_key(run, 'agent')}:".lstrip()


@dataclass
class _Job:
    """One call of `run_agent`."""

    run: AsyncRun
    agent: agents.Agent[Any]
    input: str | list[Any]
    options: dict[str, Any]
    policies: Mapping[str, ToolPolicy]
    name: str

    async def run_loop(self, checkpoint_turns: int) -> agents.RunResult:
        """Run the agent in the durable loop. Each turn of the loop ends with a checkpoint."""
        state: agents.RunState[Any] | None = None
        kept = self.run.state
        try:
            async for _ in self.run.loop():
                saved = kept.get(_STATE) or {}
                segment = Segment(checkpoint_turns)
                with inside(Place(segment, self.policies, self.name)):
                    if saved:
                        segment.saved = saved["state"]
                        state = state or await self._restore(saved["state"])
                        await self._decide(state, saved["own"])
                    result = await self._advance(state)
                    if not result.interruptions:
                        break
                    state = result.to_state()
                    own = [_identify(item) for item in result.interruptions if _is_own(segment, item)]
                    kept[_STATE] = {"state": _to_json(state), "own": [*saved.get("own", []), *own]}
        except Exception:
            kept.pop(_STATE, None)
            abandon_calls(self.run, self.name)
            raise
        own = kept.pop(_STATE, {}).get("own", [])
        result.new_items[:] = [item for item in result.new_items if not _is_among(own, item)]
        return result

    async def run_through(self) -> agents.RunResult:
        """Run the agent without checkpoints: in a branch, or in a tool of another agent."""
        state: agents.RunState[Any] | None = None
        segment = Segment(None)
        try:
            with inside(Place(segment, self.policies, self.name)):
                while True:
                    result = await self._advance(state)
                    if not result.interruptions:
                        return result
                    state = result.to_state()
                    await self._decide(state, [])
        except Exception:
            abandon_calls(self.run, self.name)
            raise

    async def _advance(self, state: agents.RunState[Any] | None) -> agents.RunResult:
        start = self.input if state is None else state
        return await agents.Runner.run(self.agent, start, **self.options)

    async def _restore(self, saved: dict[str, Any]) -> agents.RunState[Any]:
        context = agents.RunContextWrapper(self.options["context"])
        plain = copy.deepcopy(saved)  # the SDK refuses the tracked dicts of `run.state`, and changes what it is given
        return await agents.RunState.from_json(self.agent, plain, context_override=context)

    async def _decide(self, state: agents.RunState[Any], own: list[list[str]]) -> None:
        """Approve the calls that the adapter itself has stopped. If there are none, ask for approvals."""
        items = state.get_interruptions()
        stopped = [item for item in items if _is_among(own, item)]
        for item in stopped:
            state.approve(item)
        if stopped:  # they do not wait for a person; the SDK stops again at the other calls
            return
        calls, seen = [], Counter[str]()
        for item in items:
            name, call_id = item.tool_name or "", f"{self.name}{item.call_id}"
            seen[call_id] += 1  # two agents that are tools may have calls with the same id
            unique = call_id if seen[call_id] == 1 else f"{call_id} ({seen[call_id]})"
            calls.append(ToolCall(unique, name, parse_arguments(item.arguments), self.policies.get(name, DEFAULT)))
        decisions = await ask_approvals(self.run, calls)
        for item, decision in zip(items, decisions, strict=True):
            if decision.approved:
                state.approve(item)
            else:
                state.reject(item, rejection_message=decision.note or None)


def _identify(item: agents.ToolApprovalItem) -> list[str]:
    return [item.agent.name, item.tool_name or "", item.call_id or ""]


def _is_among(own: list[list[str]], item: agents.RunItem) -> bool:
    return isinstance(item, agents.ToolApprovalItem) and _identify(item) in own


def _is_own(segment: Segment, item: agents.ToolApprovalItem) -> bool:
    """Whether the adapter asked for this approval, in order to pause, and not the tool."""
    return segment.plain.get((id(item.agent), item.tool_name or ""), False)


def _to_json(state: agents.RunState[Any]) -> dict[str, Any]:
    """The state without the caller's context, which the workflow passes again."""
    saved = state.to_json(context_serializer=lambda _: {})
    _drop_context(saved)
    return saved


def _drop_context(saved: dict[str, Any]) -> None:
    """Remove the context, also from the states of agents that are tools."""
    if saved["context"]["context"] is not None:
        saved["context"]["context"] = {}
    for call in (saved.get("last_processed_response") or {}).get("functions", []):
        if call.get("agent_run_state"):
            _drop_context(call["agent_run_state"])
