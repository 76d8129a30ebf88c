"""LlamaIndex workflows inside a run: questions, state, failures, tools. The story has the rest."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("workflows")
from workflows import Workflow
from workflows.events import InputRequiredEvent

import holdfast
from holdfast.adapters.llama_index import HoldfastRuntime, perform_tool, run_workflow
from holdfast.adapters.llama_index.session import Session
from holdfast.testing import replay
from tests.adapters.llama_index.material import (
    Chat,
    Confirm,
    Deaf,
    Fails,
    Flaky,
    Greet,
    Hasty,
    Pays,
    Price,
    Stream,
    Tools,
    TwoAnswers,
    Waits,
    WaitsForItems,
    WaitsForOne,
    _note,
    _start,
    calls,
)


def test_a_returned_question_is_a_gate_and_its_answer_the_response(app: holdfast.App) -> None:
    handle = _start(app, Greet)
    (gate,) = app.gates("r")
    assert gate.prompt.strip() == "What is your name?"
    app.answer("r", {"response": "Ana"})
    assert handle.result() == "Hello Ana"
    assert calls == ["ask"], "a step that has returned is not executed again"
    assert replay(app, "r").status == "completed"


def test_gates_have_the_options_that_are_given_for_their_event(app: holdfast.App) -> None:
    options = {"prompt": "Who?", "fields": {"response": holdfast.field(str, choices=["Ana", "Ben"])}, "who": "cho"}
    handle = _start(app, Greet, gates={InputRequiredEvent: options})
    (gate,) = app.gates("r")
    assert (gate.prompt, gate.who) == ("Who?", ("cho",))
    with pytest.raises(holdfast.InvalidAnswer):
        app.answer("r", {"response": "Dan"}, by="cho")
    app.answer("r", {"response": "Ben"}, by="cho")
    assert handle.result() == "Hello Ben"


def test_a_question_in_the_stream_is_a_gate(app: holdfast.App) -> None:
    handle = _start(app, Stream)
    assert [gate.prompt for gate in app.gates("r")] == ["Name?"]
    app.answer("r", {"response": "Ana"})
    assert handle.result() == "Hello Ana"


def test_the_class_of_an_answer_must_be_known(app: holdfast.App) -> None:
    with pytest.raises(holdfast.RunFailed, match="accepts Confirm, HumanResponseEvent; pass"):
        _start(app, TwoAnswers).result()
    handle = _start(app, TwoAnswers, "s", gates={InputRequiredEvent: {"response": Confirm}})
    app.answer("s", {"yes": True})
    assert handle.result() == "confirmed True"


@pytest.mark.parametrize("kind", [Waits, WaitsForOne])
def test_an_answer_that_two_steps_would_take_is_refused(app: holdfast.App, kind: type[Workflow]) -> None:
    with pytest.raises(holdfast.RunFailed, match="one answer would be taken for both"):
        _start(app, kind).result()


def test_answers_reach_the_step_that_asked(app: holdfast.App) -> None:
    handle = _start(app, WaitsForItems)
    gates = {gate.prompt: gate.gate for gate in app.gates("r")}
    app.answer("r", {"response": "yes"}, gate=gates["And b?"])
    assert calls == []
    app.answer("r", {"response": "no"}, gate=gates["And a?"])
    assert handle.result() == ["a no", "b yes"]


def test_a_workflow_that_waits_for_something_else_fails_and_does_not_hang(app: holdfast.App) -> None:
    with pytest.raises(holdfast.RunFailed, match="waits for an event that no step sends"):
        _start(app, Deaf).result()


def test_the_state_store_is_restored_with_what_was_changed_in_place(app: holdfast.App) -> None:
    handle = _start(app, Chat)
    app.answer("r", {"response": "bye"})
    assert handle.result() == [{"text": "hi", "tags": ["x~/y", "z"]}, {"text": "there"}, {"text": "bye"}]


def test_after_a_failure_a_retry_repeats_the_step_that_failed_and_no_tool(
    app: holdfast.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def execute(run: holdfast.AsyncRun) -> int:
        found: Price = await run_workflow(run, Fails(runtime=HoldfastRuntime()))
        return found.amount

    app.workflow(execute)
    handle = app.start("execute", run_id="r")
    with pytest.raises(holdfast.RunFailed, match="no price"):
        handle.result()
    monkeypatch.setattr(Fails, "broken", False)
    assert app.retry("r").result() == 40
    assert calls == ["look", "looked", "price", "priced", "price"]


def test_a_failure_can_be_handled_and_the_run_goes_on(app: holdfast.App) -> None:
    async def execute(run: holdfast.AsyncRun) -> str:
        try:
            await run_workflow(run, Fails(runtime=HoldfastRuntime()))
        except holdfast.StepFailed as error:
            await run.ask(f"It failed: {error.failure['message']}", {"ok": bool})
        return "handled"

    app.workflow(execute)
    handle = app.start("execute", run_id="r")
    app.answer("r", {"ok": True})
    assert handle.result() == "handled"
    assert calls.count("price") == 1


def test_the_retries_of_llama_index_work_and_do_not_repeat_a_tool_call(app: holdfast.App) -> None:
    assert _start(app, Flaky).result() == "done"
    assert calls == ["attempt 0", "paid", "attempt 1", "attempt 2"]


def test_an_event_that_a_step_sends_is_delivered_when_the_step_is_recorded(app: holdfast.App) -> None:
    _start(app, Hasty).result()
    assert calls == ["thought", "acted"]


@pytest.mark.parametrize("at", range(1, 16))
def test_an_execution_that_ends_at_any_record_is_continued_by_another(
    app: holdfast.App, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    left = [at]
    apply = Session.apply

    def dies(session: Session, record: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        apply(session, record)

    monkeypatch.setattr(Session, "apply", dies)

    def survive(act: Any) -> None:
        try:
            act()
        except KeyboardInterrupt:
            app.resume("r")

    survive(lambda: _start(app, Pays))
    for _ in range(2):
        survive(lambda: app.answer("r", {"response": "yes"}, gate=app.gates("r")[0].gate))
    assert app.handle("r").result() == ["a yes", "b yes", "begin"]
    assert sorted(calls) == ["a yes", "b yes"]


def test_a_tool_that_did_nothing_is_told_to_the_step_and_a_tool_that_reads_has_no_key(app: holdfast.App) -> None:
    assert _start(app, Tools).result() == ["no money", "key None"]
    assert calls == ["read"]


def test_two_workflows_of_a_run_do_not_share_the_ids_of_tool_calls(app: holdfast.App) -> None:
    async def execute(run: holdfast.AsyncRun) -> list[Any]:
        found = [await run_workflow(run, Tools(runtime=HoldfastRuntime())) for _ in range(2)]
        await run.ask("Go on?", {"ok": bool})
        return found

    app.workflow(execute)
    handle = app.start("execute", run_id="r")
    app.answer("r", {"ok": True})
    assert len(handle.result()) == 2
    assert calls == ["read", "read"]


def test_wrong_options_and_wrong_places_are_refused(app: holdfast.App) -> None:
    async def bare(run: holdfast.AsyncRun) -> Any:
        return await run_workflow(run, Hasty())

    async def outside(run: holdfast.AsyncRun) -> Any:
        return await perform_tool("call-1", _note, {"text": "x"})

    async def a_class(run: holdfast.AsyncRun) -> Any:
        return await run_workflow(run, Hasty)  # type: ignore[arg-type]

    expected = {bare: "with a HoldfastRuntime", outside: "use run.effect here", a_class: "an instance"}
    for function, words in expected.items():
        app.workflow(function)
        with pytest.raises(holdfast.RunFailed, match=words):
            app.start(function.__name__).result()
    with pytest.raises(holdfast.InvalidInput, match="no option 'undoo'"):
        asyncio.run(perform_tool("call-1", _note, {"text": "x"}, policy={"undoo": 1}))
    assert calls == []


def test_a_verbose_workflow_is_recorded_too(app: holdfast.App, capsys: pytest.CaptureFixture[str]) -> None:
    async def execute(run: holdfast.AsyncRun) -> Any:
        return await run_workflow(run, Greet(verbose=True, runtime=HoldfastRuntime()))

    app.workflow(execute)
    handle = app.start("execute", run_id="r")
    app.answer("r", {"response": "Ana"})
    assert handle.result() == "Hello Ana"
    assert "complete with InputRequiredEvent" in capsys.readouterr().out


def test_outside_a_run_tools_are_only_called() -> None:
    assert asyncio.run(perform_tool("call-1", _note, {"text": "x"})) == "x"
    assert calls == ["x"]
