"""Tool calls that must not be performed, repeated or reported: what all adapters share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.adapters.shared.calls import (
    OnlyAsked,
    ToolCall,
    ToolPolicy,
    ask_approvals,
    idempotency_key,
    perform,
    record_call,
)
from holdfast.engine.effect_outcome import plain_result
from holdfast.errors import Diverged


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[holdfast.App]:
    with holdfast.App("memory:" if request.param == "memory" else f"sqlite:{tmp_path}/runs.db") as found:
        yield found


async def _pays(calls: list[Any], what: object = "paid") -> object:
    calls.append((what, idempotency_key()))
    return what


def test_a_call_whose_gate_the_code_no_longer_opens_is_not_performed(app: holdfast.App) -> None:
    calls: list[Any] = []
    asks = [True]

    @app.workflow
    async def pays(run: holdfast.AsyncRun) -> object:
        call = ToolCall("1", "pay", {"amount": 4})
        if asks[0] and not (await ask_approvals(run, [call]))[0].approved:
            return "refused"
        return await perform(run, call, lambda: _pays(calls))

    app.start(pays, run_id="r")
    asks[0] = False  # deployed without the approval
    with pytest.raises(Diverged, match=r"'approve 1'.* before it calls 'pay', so it was not called"):
        app.answer("r", {"approve": False})
    assert calls == []
    assert app.handle("r").status() == "paused"
    asks[0] = True
    assert app.resume("r").result() == "refused"
    assert calls == []


@pytest.mark.parametrize(
    ("gate", "asked_as"),
    [("agent:9", "agent:9"), ("agent c/1 approval 2", "agent c/1"), ("agent:9 [", "agent:9"), ("agent:10", "agent:1")],
)
def test_the_gate_of_a_call_may_have_another_id(app: holdfast.App, gate: str, asked_as: str) -> None:
    calls: list[Any] = []
    asks = [True]

    @app.workflow
    async def pays(run: holdfast.AsyncRun) -> object:
        if asks[0]:
            await ask_approvals(run, [ToolCall(gate, "pay", {})])
        return await perform(run, ToolCall("agent:9", "pay", {}, asked_as=asked_as), lambda: _pays(calls))

    app.start(pays, run_id="r")
    asks[0] = False
    with pytest.raises(Diverged) as error:
        app.answer("r", {"approve": False})
    assert calls == []
    # The engine misses the gate of another call.
    assert ("before it calls 'pay', so it was not called" in str(error.value)) == (asked_as != "agent:1")


async def _model() -> str:
    return "the model's response"


@pytest.mark.parametrize("change", ["no gate", "no call", "no gate and no call"])
@pytest.mark.parametrize(("name", "after"), [("agent 1:c1", "agent 1:"), ("agent 1 c/1", "agent 1")])
def test_a_model_is_not_called_before_its_last_response_is_dealt_with(
    app: holdfast.App, change: str, name: str, after: str
) -> None:
    calls: list[Any] = []
    changed = [""]

    @app.workflow
    async def pays(run: holdfast.AsyncRun) -> None:
        call = ToolCall(name, "pay", {})
        async for _ in run.loop():
            if "gate" not in changed[0]:
                await ask_approvals(run, [call])
            if "call" not in changed[0]:
                await perform(run, call, lambda: _pays(calls))
            await ask_approvals(run, [ToolCall("agent 10:c1", "pay", {})])
            await record_call(run, "model", lambda: _pays(calls, "model"), name="model", after=[after])
            break

    app.start(pays, run_id="r")
    app.answer("r", {"approve": True})
    assert [what for what, _ in calls] == ["paid"]
    changed[0] = change
    with pytest.raises(Diverged, match="before it calls 'model', so it was not called"):
        app.answer("r", {"approve": True})
    assert [what for what, _ in calls] == ["paid"]
    changed[0] = ""
    app.resume("r").result()
    assert [what for what, _ in calls] == ["paid", "model"]


@pytest.mark.parametrize("record", ["effect", "step"])
def test_a_call_is_not_made_after_the_model_has_read_that_it_was_not(app: holdfast.App, record: Any) -> None:
    calls: list[Any] = []
    changed = [False]

    @app.workflow
    async def pays(run: holdfast.AsyncRun) -> object:
        if changed[0]:
            call = ToolCall("c1", "pay", {}, ToolPolicy(record=record), followed_by="model 2")
            await perform(run, call, lambda: _pays(calls))
        await record_call(run, "model 2", _model, name="model", after=["c1"])
        return await run.ask("Go on?", bool)

    app.start(pays, run_id="r")
    changed[0] = True
    with pytest.raises(Diverged, match=r"step 'model 2'.*before it calls 'pay', so it was not called"):
        app.answer("r", True)
    assert calls == []
    changed[0] = False
    assert app.resume("r").result() is True


@pytest.mark.parametrize(("policy", "is_told"), [(ToolPolicy(), False), (ToolPolicy(not_done=KeyError), True)])
def test_an_error_without_proof_is_not_for_the_model(app: holdfast.App, policy: ToolPolicy, is_told: bool) -> None:
    async def pays_and_fails() -> object:
        raise KeyError("receipt")

    @app.workflow
    async def agent(run: holdfast.AsyncRun) -> str:
        try:
            await perform(run, ToolCall("1", "pay", {}, policy), pays_and_fails)
        except Exception as error:
            await run.ask("Go on?", bool)
            return f"the model reads {type(error).__name__}"
        return ""

    handle = app.start(agent, run_id="r")
    if is_told:
        assert app.answer("r", True).result() == "the model reads EffectFailed"
    else:
        with pytest.raises(holdfast.RunFailed) as failed:
            handle.result()
        assert failed.value.failure["type"] == "EffectFailed"


@pytest.mark.parametrize("given", [None, {"recorded": 1, "result": 2}])
@pytest.mark.parametrize("result_at", [(), ("result",)])
def test_an_undo_gets_the_result_of_the_tool_and_its_arguments(
    app: holdfast.App, result_at: tuple[str, ...], given: object
) -> None:
    undone: list[Any] = []

    @app.undo
    def take_back(result: object, arguments: dict[str, Any]) -> None:
        undone.append((result, arguments))

    async def pays() -> object:
        if given is not None:
            raise TimeoutError
        return {"result": {"receipt": 7}, "actions": {}} if result_at else {"receipt": 7}

    @app.workflow
    async def work(run: holdfast.AsyncRun) -> None:
        await run.step(str, key="first")
        call = ToolCall("1", "pay", {"order": "A"}, ToolPolicy(undo=take_back))
        await perform(run, call, pays, result_at=result_at)
        await run.ask("Go on?", bool)

    app.start(work, run_id="r")
    if given is not None:
        app.answer("r", {"outcome": "happened", "result": given})
    assert app.rollback_plan("r", to="first").undo[0].result == (given or {"receipt": 7})
    app.rollback("r", to="first")
    assert undone == [(given or {"receipt": 7}, {"order": "A"})]


@pytest.mark.parametrize(
    ("key", "result", "found"),
    [
        ("tool 1", {"recorded": "paid"}, "paid"),
        ("tool 1", {"recorded": {"result": "paid", "actions": {}}}, "paid"),
        ("tool 1", {"recorded": {"result": "paid", "kind": "tool_return"}}, "paid"),
        ("tool 1", {"recorded": {"result": "paid", "order": "A"}}, {"result": "paid", "order": "A"}),
        ("tool 1", {"receipt": 7}, {"receipt": 7}),
        ("pay#1", {"recorded": "paid"}, {"recorded": "paid"}),
    ],
)
def test_a_result_that_was_recorded_without_its_path_is_found(key: str, result: Any, found: object) -> None:
    assert plain_result(key, result, {"args": []}) == found


def test_a_tool_that_only_asked_leaves_nothing_to_undo(app: holdfast.App) -> None:
    tried: list[str] = []

    async def asks() -> object:
        tried.append("asked")
        raise OnlyAsked({"why": "above 10 EUR"})

    @app.workflow
    async def work(run: holdfast.AsyncRun) -> object:
        await run.step(str, key="first")
        call = ToolCall("1", "pay", {"amount": 40})
        found = await perform(run, call, asks)
        (decision,) = await ask_approvals(run, [call._replace(id="2", note=found)])
        return [found, decision.approved]

    handle = app.start(work, run_id="r")
    assert app.gates("r")[0].show == {"metadata": {"why": "above 10 EUR"}, "amount": 40}
    assert [effect.state for effect in app.store.effects("r")] == ["failed"]
    app.rollback("r", to="first")
    app.answer("r", {"approve": True})
    assert handle.result() == [{"why": "above 10 EUR"}, True]
    assert tried == ["asked", "asked"]  # again after the rollback, and not on the resume


@pytest.mark.parametrize("record", ["effect", "step"])
@pytest.mark.parametrize("verb", ["ask", "sleep", "wait_for", "child", "effect", "step", "now", "gather"])
def test_a_tool_that_waits_or_records_inside_its_recorded_call_is_refused(
    app: holdfast.App, verb: str, record: Any
) -> None:
    """A resume does not repeat the tool: a call inside it would not be reached, and the run be Diverged."""
    done: list[int] = []

    async def waits() -> object:
        run = holdfast.current_run()
        assert isinstance(run, holdfast.AsyncRun)
        given: dict[str, list[Any]] = {"sleep": [1], "effect": [lambda: done.append(1)], "step": [str], "now": []}
        return await getattr(run, verb)(*given.get(verb, ["work"]))

    @app.workflow
    async def work(run: holdfast.AsyncRun) -> object:
        return await perform(run, ToolCall("1", "pay", {}, ToolPolicy(record=record)), waits)

    with pytest.raises(holdfast.RunFailed, match=f"run.{verb} was called inside .*'pay'.* record=\"none\""):
        app.start(work, run_id="r").result()
    assert app.gates("r") == []
    assert done == []


def test_a_tool_that_is_not_recorded_may_ask(app: holdfast.App) -> None:
    async def asks() -> object:
        run = holdfast.current_run()
        assert isinstance(run, holdfast.AsyncRun)
        return await run.ask("Really?", bool)

    @app.workflow
    async def work(run: holdfast.AsyncRun) -> object:
        return await perform(run, ToolCall("1", "pay", {}, ToolPolicy(record="none")), asks)

    app.start(work, run_id="r")
    assert app.answer("r", True).result() is True


def test_an_undo_that_is_not_registered_is_refused_before_the_gate(app: holdfast.App) -> None:
    def take_back(result: object, arguments: object) -> None: ...

    @app.workflow
    async def work(run: holdfast.AsyncRun) -> object:
        return await ask_approvals(run, [ToolCall("1", "pay", {}, ToolPolicy(undo=take_back))])

    with pytest.raises(holdfast.RunFailed, match=r"undo 'take_back' of tool 'pay' is not registered; put @app.undo"):
        app.start(work, run_id="r").result()
    assert app.gates("r") == []


def test_an_approval_that_expires_is_refused_with_the_reason(app: holdfast.App) -> None:
    @app.workflow
    async def work(run: holdfast.AsyncRun) -> list[object]:
        (decision,) = await ask_approvals(run, [ToolCall("1", "pay", {}, ToolPolicy(expires=0.01))])
        return list(decision)

    handle = app.start(work, run_id="r")
    while handle.status() == "waiting":
        app.worker().run(until_idle=True)
    assert handle.result() == [False, "The approval expired: no person answered in time."]
